"""Cycles of MeshGEMM, from the machine's latencies and the words of a block.

A step costs the larger of its product and its transfer, plus the control around it (WaferLLM
section 5.3: communication of the next step overlaps with the product). What differs from the paper
is what bounds a transfer: here a word takes the PE's issue slot when it is sent and again when it
is received, so a block of w words takes 2 w cycles, not w.

With s = stream_setup_cycles and l the latency of two hops, a step that starts with `go` in cycle 0
sends its first word in cycle max(6, 5 + s): go, onward and their waits, the start of the product
and of the pause take the slot one after another. The pause ends l cycles after that first word.
After the last word come three cycles of control, and the next step starts in the fourth.

Exact wherever no two streams want the same RAMP or slot. What is left: where a transfer bounds the
step and a block is shorter than l words (7 on the WSE-2), the end of a block of A that comes over
two hops meets the start of a block of B that comes over one at the RAMP, which costs at most
``hop_cycles + s`` a step.
"""

import math
from dataclasses import dataclass

from wafer_jax.collectives.gemm_layout import Layout, block_words, check_align, layout_of
from wafer_jax.collectives.kernels import clear_cycles, gemm_cycles
from wafer_jax.hardware import HardwareSpec
from wafer_jax.plmr import plmr


@dataclass(frozen=True)
class Parts:
    """Where the cycles of a product go.

    Attributes:
      compute: Clearing C and multiplying.
      align: Skewing A and B on chip.
      exposed: Transfers that the products do not hide, and control.
    """

    compute: int
    align: int
    exposed: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.compute + self.align + self.exposed


def cost(
    hw: HardwareSpec, m: int, k: int, n: int, *, align: str = "chip", dtype: str = "float32"
) -> int:
    """Cycles of ``gemm.program`` with the same arguments."""
    return cost_parts(hw, m, k, n, align=align, dtype=dtype).total


def cost_parts(
    hw: HardwareSpec, m: int, k: int, n: int, *, align: str = "chip", dtype: str = "float32"
) -> Parts:
    """Cycles of ``gemm.program`` with the same arguments, by what they are for.

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


def _steps_cycles(hw: HardwareSpec, layout: Layout, product: int, dtype: str) -> int:
    """All steps but the last, in which nothing moves."""
    height, width = layout.mesh
    words = [w for w, length in zip(_words(layout, dtype), (width, height), strict=True)
             if length > 1]  # fmt: skip
    period = math.lcm(layout.a_blocks + (width > 1), layout.b_blocks + (height > 1))
    steps = layout.steps - 1
    loops = steps // period if steps >= 2 * period else 0
    if not words:
        return steps * product + loops

    def step(loop: bool) -> int:
        moving = max(6, 5 + hw.stream_setup_cycles) + transfer_cycles(hw, words, loop) + 4
        return max(product + 3 + loop, moving + 2 * loop)

    return (steps - loops) * step(False) + loops * step(True)


def _align_cycles(hw: HardwareSpec, layout: Layout, dtype: str) -> int:
    """Rounds that move whole PE tiles: transfer, then a masked copy."""
    height, width = layout.mesh
    a_words, b_words = _words(layout, dtype)
    a_size, b_size = layout.tile_m * layout.block_k, layout.block_k * layout.tile_n
    total = 0
    for length, rounds, blocks, words, size in (
        (width, layout.a_rounds, layout.a_blocks, a_words, a_size),
        (height, layout.b_rounds, layout.b_blocks, b_words, b_size),
    ):
        copy = copy_cycles(hw, blocks * size, dtype)
        loop = rounds > 1
        moving = transfer_cycles(hw, [blocks * words], loop) + 2 * loop
        around = max(5, 4 + hw.stream_setup_cycles) + 4
        total += rounds * (copy + (around + moving if length > 1 else 0))
    return total


def transfer_cycles(hw: HardwareSpec, words: list[int], loop: bool) -> int:
    """Cycles from the first word sent to the last received, on a PE that sends and receives.

    Args:
      hw: The machine.
      words: Words of each block that moves, one stream after the other.
      loop: The sender has a loop event to issue behind its last word, besides its signal.
    """
    latency, setup, total = two_hops_cycles(hw), hw.stream_setup_cycles, sum(words)
    alone = latency + total - 1 + setup * (len(words) - 1)
    gaps = 0
    if len(words) == 2:
        # The set-up of a second stream is hidden while the other thread has words to issue.
        first = _within(latency - words[0], setup)
        gaps = first + _within(latency - words[1] - 1 - loop - (first > 0), setup)
    return max(alone, 2 * total + loop + gaps)


def copy_cycles(hw: HardwareSpec, elements: int, dtype: str = "float32") -> int:
    """Cycles to copy a PE's tile once, in an alignment round."""
    return math.ceil(hw.vector_cycles(elements, dtype))


def two_hops_cycles(hw: HardwareSpec) -> int:
    """Cycles from the issue of a word to its arrival two hops away."""
    return plmr(hw).access_cycles(hops=2, stages=1)


def _within(value: int, limit: int) -> int:
    return min(max(value, 0), limit)


def _words(layout: Layout, dtype: str) -> tuple[int, int]:
    """Words of a block of A and of B."""
    a_size, b_size = layout.tile_m * layout.block_k, layout.block_k * layout.tile_n
    return block_words(a_size, dtype), block_words(b_size, dtype)
