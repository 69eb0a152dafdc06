"""Cycles of Cannon's algorithm, from the machine's latencies and the words of a block.

A step takes the larger of its product and its transfer over one hop, plus the control around it, as
in `gemm_cost` (a word takes the PE's issue slot when it is sent and again when it is received).

The way back takes D = (N - 2) h cycles more than a hop, so the head of a line ends a step later
than the others, by D less what its product hides. But PEs wait for their own tiles only. The head
stays behind by as much from then on and need not wait for the way back again; the PEs behind it
fall back one after another, in every step one more, less what their products hide. A product pays
for the way back once in every revolution of a ring, N steps: O(alpha N) for all steps together,
where WaferLLM (section 5.1) has O(alpha N) for the critical path of each. That figure stands for
PEs that take their steps in unison.

On a mesh both axes add up: a tile may come late over the way back of its row, and its PE's other
tile then passes on over the way back of its column. `_behind` finds the worst such path.

Exact where products hide the transfers over one hop. Elsewhere, where a late tile of B meets the
words of A in the issue slot, off by a few cycles per revolution; tests hold how many.
"""

import math

from wafer_jax.collectives.gemm_cost import Parts, copy_cycles
from wafer_jax.collectives.gemm_layout import Layout, block_words, check_align, layout_of
from wafer_jax.collectives.kernels import clear_cycles, gemm_cycles
from wafer_jax.collectives.loops import loop_rounds
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.hardware import HardwareSpec


def cost(
    hw: HardwareSpec, m: int, k: int, n: int, *, align: str = "chip", dtype: str = "float32"
) -> int:
    """Cycles of ``gemm_cannon.program`` with the same arguments."""
    return cost_parts(hw, m, k, n, align=align, dtype=dtype).total


def cost_parts(
    hw: HardwareSpec, m: int, k: int, n: int, *, align: str = "chip", dtype: str = "float32"
) -> Parts:
    """Cycles of ``gemm_cannon.program`` with the same arguments, by what they are for.

    Raises:
      WaferError: A size below 1, an unknown ``align``.
    """
    check_align(align)
    layout = layout_of(hw.mesh, m, k, n)
    product = gemm_cycles(hw, layout.tile_m, layout.block_k, layout.tile_n, dtype)
    compute = clear_cycles(hw, layout.tile_m * layout.tile_n) + layout.steps * product
    aligning = _align_cycles(hw, layout, dtype) if align == "chip" else 0
    exposed = _steps_cycles(hw, layout, product, dtype) - (layout.steps - 1) * product
    return Parts(compute, aligning, exposed)


def pause_cycles(hw: HardwareSpec) -> int:
    """From the receiver's pause to the arrival of the first word, less the receiver's set-up."""
    return pass_cycles(hw, 1) + (hw.stream_setup_cycles == 0)


def _steps_cycles(hw: HardwareSpec, layout: Layout, product: int, dtype: str) -> int:
    """All steps but the last, in which nothing moves."""
    height, width = layout.mesh
    a_words = block_words(layout.tile_m * layout.block_k, dtype) if width > 1 else 0
    b_words = block_words(layout.block_k * layout.tile_n, dtype) if height > 1 else 0
    period = math.lcm(layout.a_blocks + (width > 1), layout.b_blocks + (height > 1))
    steps = layout.steps - 1
    loops = loop_rounds(period, steps)
    if not a_words + b_words:
        return steps * product + loops
    around, setup = max(6, 5 + hw.stream_setup_cycles), hw.stream_setup_cycles
    first, second = (a_words, b_words) if a_words and b_words else (a_words + b_words, 0)

    def step(loop: bool) -> int:
        moving = around + _transfer_cycles(hw, first, second, loop) + 4
        return max(product + 3 + loop, moving + 2 * loop)

    each = step(False)
    # A step whose first, or second, tile comes over one hop, with nothing else to wait for.
    alone = around + pass_cycles(hw, 1) + first - 1 + 4
    late_first = alone + (setup + second if second else 0)
    late_second = alone + max(first, setup) + second
    late_a, late_b = (late_first, late_second) if first == a_words else (late_second, late_first)
    behind = _behind(hw, layout.mesh, steps, each - late_a, each - late_b)
    return (steps - loops) * each + loops * step(True) + behind


def _behind(hw: HardwareSpec, mesh: tuple[int, int], steps: int, a_slack: int, b_slack: int) -> int:
    """Cycles by which the last PE is behind in the end.

    A path through the PEs, one hop or way back per step, gains D on each way back and loses the
    slack of the step on every move.
    """
    height, width = mesh
    a_gain, b_gain = (max(0, (n - 2) * hw.hop_cycles) for n in (width, height))
    a_most, b_most = _ways_back(width, steps), _ways_back(height, steps)

    def moves(count: int, length: int) -> int:
        return count + (count - 1) * (length - 1) if count else 0

    return max(
        i * a_gain - moves(i, width) * a_slack + j * b_gain - moves(j, height) * b_slack
        for i in range(a_most + 1)
        for j in range(b_most + 1)
        if moves(i, width) + moves(j, height) <= steps
    )


def _ways_back(length: int, steps: int) -> int:
    """Ways back that a path along a line passes in so many steps."""
    return -(-steps // length) if length > 1 else 0


def _transfer_cycles(hw: HardwareSpec, first: int, second: int, loop: bool) -> int:
    """Cycles from the first word sent to the last received, over one hop, of two streams."""
    latency, setup, total = pass_cycles(hw, 1), hw.stream_setup_cycles, first + second
    alone = latency + total - 1 + (setup if second else 0)
    gaps = 0
    if second:
        # The set-up of a second stream is hidden while the other thread has words to issue.
        before = min(max(latency - first, 0), setup)
        gaps = before + min(max(latency - second - 1 - loop - (before > 0), 0), setup)
    return max(alone, 2 * total + loop + gaps)


def _align_cycles(hw: HardwareSpec, layout: Layout, dtype: str) -> int:
    """Rounds that move whole PE tiles: transfer, then a masked copy; the way back once."""
    height, width = layout.mesh
    a_size, b_size = layout.tile_m * layout.block_k, layout.block_k * layout.tile_n
    total = 0
    for length, rounds, blocks, size in (
        (width, layout.a_rounds, layout.a_blocks, a_size),
        (height, layout.b_rounds, layout.b_blocks, b_size),
    ):
        copy = copy_cycles(hw, blocks * size, dtype)
        if length == 1 or not rounds:
            total += rounds * copy
            continue
        words, loop = blocks * block_words(size, dtype), rounds > 1
        around = max(5, 4 + hw.stream_setup_cycles)
        moving = around + _transfer_cycles(hw, words, 0, loop) + 2 * loop + 4
        alone = around + pass_cycles(hw, 1) + words - 1 + 4
        total += rounds * (copy + moving) + _behind(hw, (1, length), rounds, moving - alone, 0)
    return total
