"""Cycles of Cannon's algorithm: MeshGEMM's steps over one hop, and the way back (`gemm_cost`).

The way back takes D = (N - 2) h cycles more than a hop, so the head of a line ends a step later
than the others, by D less what its launches and its product hide. But PEs wait for their own tiles
only. The head stays behind by as much from then on and need not wait for the way back again; the
PEs behind it fall back one after another, in every step one more, less what their products hide. A
product pays for the way back once in every revolution of a ring, N steps: O(alpha N) for all steps
together, where WaferLLM (section 5.1) has O(alpha N) for the critical path of each. That figure
stands for PEs that take their steps in unison, for which `unison_cost_parts` is the closed form:

    step = max(product path, way back of the first PE: L(N - 1) + w) + control

or, if a core does nothing else while its blocks move (``overlap=False``), the sum of both.

On a mesh both axes add up: a tile may come late over the way back of its row, and its PE's other
tile then passes on over the way back of its column. `_behind` finds the worst such path.

Exact where products hide the hops, and off by a few cycles per step elsewhere, as `gemm_cost`.
"""

from collections.abc import Iterator

from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.compute_shift_cost import (
    align_cycles,
    arrival_cycles,
    looped,
    step_cycles,
)
from wafer_jax.collectives.gemm_cost import Parts, block_sizes, moving_words, period_of
from wafer_jax.collectives.gemm_layout import Layout, aligned_on_chip, block_words, layout_of
from wafer_jax.collectives.kernels import clear_cycles, copy_cycles, gemm_cycles
from wafer_jax.hardware import HardwareSpec


@checked
def cost(
    hw: HardwareSpec, m: int, k: int, n: int, *, align: str = "chip", dtype: str = "float32"
) -> int:
    """Cycles of ``gemm_cannon.program`` with the same arguments."""
    return cost_parts(hw, m, k, n, align=align, dtype=dtype).total


@checked
def cost_parts(
    hw: HardwareSpec, m: int, k: int, n: int, *, align: str = "chip", dtype: str = "float32"
) -> Parts:
    """Cycles of ``gemm_cannon.program`` with the same arguments, by what they are for.

    Raises:
      WaferError: A size below 1, an unknown ``align``.
    """
    layout = layout_of(hw.mesh, m, k, n)
    product = gemm_cycles(hw, layout.tile_m, layout.block_k, layout.tile_n, dtype)
    compute = clear_cycles(hw, layout.tile_m * layout.tile_n) + layout.steps * product
    aligning = _align_rounds_cycles(hw, layout, align, dtype)
    exposed = _steps_cycles(hw, layout, product, dtype) - (layout.steps - 1) * product
    return Parts(compute, aligning, exposed)


def unison_cost_parts(
    hw: HardwareSpec,
    m: int,
    k: int,
    n: int,
    *,
    align: str = "chip",
    dtype: str = "float32",
    overlap: bool = True,
) -> Parts:
    """Cycles if no PE begins a step before all have ended the one before.

    No program does that; it is what a critical path per step that crosses the line stands for.

    Args:
      hw: Machine and mesh.
      m: Rows of A and C.
      k: Columns of A, rows of B.
      n: Columns of B and C.
      align: As for ``gemm_cannon.program``.
      dtype: Element type of A and B.
      overlap: Blocks move while the products are made, as in the program.

    Raises:
      WaferError: A size below 1, an unknown ``align``.
    """
    layout = layout_of(hw.mesh, m, k, n)
    product = gemm_cycles(hw, layout.tile_m, layout.block_k, layout.tile_n, dtype)
    words, steps = moving_words(layout, dtype), layout.steps - 1
    compute = clear_cycles(hw, layout.tile_m * layout.tile_n) + layout.steps * product
    hops = [length - 1 for length in layout.mesh[::-1] if length > 1]
    if overlap:
        step = max(step_cycles(hw, words, product), _way_back_cycles(hw, words, hops))
    else:
        step = max(step_cycles(hw, words, 0), _way_back_cycles(hw, words, hops)) + product
    aligning = _align_in_unison_cycles(hw, layout, align, dtype)
    exposed = looped(step, period_of(layout), steps) - steps * product
    return Parts(compute, aligning, exposed)


def _way_back_cycles(hw: HardwareSpec, words: list[int], hops: list[int]) -> int:
    """Cycles of a step of the first PE, whose blocks all come over ways back, by one RAMP."""
    ends = [arrival_cycles(hw, 2 * i + 1, sum(words[i:]), d) for i, d in enumerate(hops)]
    return max(ends, default=0)


def _align_in_unison_cycles(hw: HardwareSpec, layout: Layout, align: str, dtype: str) -> int:
    """Rounds that move whole PE tiles, each as long as its way back."""
    total = 0
    for length, rounds, elements, words in _aligned(layout, align, dtype):
        each = align_cycles(hw, words, elements, dtype)
        if words:
            way_back = arrival_cycles(hw, 1, words, length - 1)
            each = max(each, way_back + copy_cycles(hw, elements, dtype))
        total += looped(each, 1, rounds)
    return total


def _steps_cycles(hw: HardwareSpec, layout: Layout, product: int, dtype: str) -> int:
    """All steps but the last, in which nothing moves."""
    words, steps = moving_words(layout, dtype), layout.steps - 1
    each = step_cycles(hw, words, product)
    # A step whose tile of A, or of B, comes over one hop, with nothing else to wait for.
    late = [arrival_cycles(hw, 2 * i + 1, w) for i, w in enumerate(words)]
    a_slack, b_slack = (each - late[0], each - late[-1]) if late else (0, 0)
    total = looped(each, period_of(layout), steps)
    return total + _behind(hw, layout.mesh, steps, a_slack, b_slack)


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


def _align_rounds_cycles(hw: HardwareSpec, layout: Layout, align: str, dtype: str) -> int:
    """Rounds that move whole PE tiles: transfer, then a masked copy; the way back once."""
    total = 0
    for length, rounds, elements, words in _aligned(layout, align, dtype):
        each = align_cycles(hw, words, elements, dtype)
        total += looped(each, 1, rounds)
        if words:
            alone = arrival_cycles(hw, 1, words) + copy_cycles(hw, elements, dtype)
            total += _behind(hw, (1, length), rounds, each - alone, 0)
    return total


def _aligned(layout: Layout, align: str, dtype: str) -> Iterator[tuple[int, int, int, int]]:
    """PEs of a ring, rounds, and elements and words of a PE's tile, of what is aligned on chip."""
    height, width = layout.mesh
    a_size, b_size = block_sizes(layout)
    plan = (
        (width, layout.a_rounds, layout.a_blocks, a_size),
        (height, layout.b_rounds, layout.b_blocks, b_size),
    )
    for on_chip, (length, rounds, blocks, size) in zip(aligned_on_chip(align), plan, strict=True):
        if on_chip and rounds:
            words = blocks * block_words(size, dtype) if length > 1 else 0
            yield length, rounds, blocks * size, words
