"""Cycles of SUMMA and of the all-gather product, from the latencies and the words of a block.

With s = ``stream_setup_cycles``, R = ``ramp_cycles``, h = ``hop_cycles`` and blocks of w words, the
farthest PE has the first block s + 2 R + 1 + h d + w cycles after the start (`broadcast.cost`).

SUMMA: from then on a PE finds a step's blocks in its buffers if products take longer than
transfers. Else a step takes as long as its words in the issue slot and what lies between two
sources: the next one sends when it has received the block of the one before, over one hop. (In
WaferLLM's table every step has a critical path of O[(alpha + beta) N], a broadcast across the line.
PEs that wait for their own blocks only pay the line once, in the first step.)

Exact on rows with a stream set-up of 2 cycles or more whose products hide the transfers; within 3
cycles on any line. On a mesh the streams of rows and columns share the PEs' issue slots,
with each other and with the control of the products: what that costs is fitted (`_SHARED`), and
tests hold the rest. Elsewhere a late block of one axis delays the other's, which is not counted.

All-gather: every PE receives the words of whole lines, at most one per cycle over its RAMP, and
`_sources_cycles` counts what lies between two sources. Exact on lines of two PEs; on longer ones
all sources send at once and their words meet at the RAMPs, on meshes those of rows and columns,
too. That is contention, counted as if blocks were long; tests hold the rest.
"""

from wafer_jax.collectives.gemm_cost import Parts
from wafer_jax.collectives.gemm_layout import Layout, block_words, layout_of
from wafer_jax.collectives.kernels import clear_cycles, gemm_cycles
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.hardware import HardwareSpec

_SHARED = 4
"""Slots that streams of the other axis take from a step's control, fitted: two signals and two
waits each meet a word."""


def summa_cost_parts(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> Parts:
    """Cycles of ``gemm_summa.program`` with the same arguments, by what they are for.

    Raises:
      WaferError: A size below 1.
    """
    layout = layout_of(hw.mesh, m, k, n)
    product = gemm_cycles(hw, layout.tile_m, layout.block_k, layout.tile_n, dtype)
    clear = clear_cycles(hw, layout.tile_m * layout.tile_n)
    compute = clear + layout.steps * product
    words = _moving_words(layout, dtype)
    if not words:
        return Parts(compute, 0, 0)
    start = _first_product(hw, layout, words, clear)
    products = layout.steps * product + _control(hw, layout, len(words))
    turn = sum(words) + hw.stream_setup_cycles + 1 + pass_cycles(hw, 1)
    transfers = (layout.steps - 1) * turn + product
    exposed = start - clear + max(products, transfers) - layout.steps * product
    return Parts(compute, 0, exposed)


def _first_product(hw: HardwareSpec, layout: Layout, words: list[int], clear: int) -> int:
    """Cycle in which the last PE starts its first product."""
    farthest = max(layout.mesh) - 1
    arrival = max(hw.stream_setup_cycles, 1) + pass_cycles(hw, farthest) + sum(words)
    if len(words) == 1:
        return max(clear, arrival + 1) + 1
    # The longer block is still under way when the sources of the shorter one take their turn.
    behind = min(abs(words[0] - words[1]), *words)
    return max(clear, arrival + 1) + 5 + behind


def _control(hw: HardwareSpec, layout: Layout, axes: int) -> int:
    """Cycles around all products of a PE: waits for blocks, and the signals that buffers are free.

    The other threads' waits take slots in between, and so do their first words, unless the set-up
    of a stream holds these back.
    """
    received = layout.steps - max(blocks for _, blocks in _moving(layout))
    freed = max(0, received - 2)
    early = hw.stream_setup_cycles <= 1
    return axes * (received - 1 + freed * (2 + early)) + (axes - 1) * freed * _SHARED


def allgather_cost_parts(
    hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32"
) -> Parts:
    """Cycles of ``gemm_allgather.program`` with the same arguments, by what they are for.

    Raises:
      WaferError: A size below 1.
    """
    layout = layout_of(hw.mesh, m, k, n)
    product = gathered_product_cycles(hw, layout, dtype)
    lines = [
        (length, blocks * words)
        for (length, blocks), words in zip(
            _moving(layout), _moving_words(layout, dtype), strict=True
        )
    ]
    if not lines:
        return Parts(product, 0, 0)
    received = sum(length * words for length, words in lines)
    gathering = received + max(_sources_cycles(hw, *line) for line in lines)
    latency = max(hw.stream_setup_cycles + pass_cycles(hw, n - 1) + w for n, w in lines)
    joined = 2 if layout.mesh[0] > 1 else 0  # the threads of A and B meet
    return Parts(product, 0, max(gathering, latency) + joined)


def _sources_cycles(hw: HardwareSpec, length: int, words: int) -> int:
    """Cycles between the words of a line's sources: skew, set-up, and words that came early.

    When a PE turns to the next source, this one's words have waited for the PEs on its other side,
    which adds two hops. Meanwhile the first words of all later sources have filled their input
    queues, and taken the RAMP from those before.
    """
    setup, ramp, hop = hw.stream_setup_cycles, hw.ramp_cycles, hw.hop_cycles
    if length == 2:
        return setup
    queues = hw.input_queue_depths[: length - 1]
    early = sum(min(words, depth + ramp) for depth in (*queues, *queues[-1:]))
    return length * (2 * hop + setup) + early + ramp + 1 - 3 * hop


def gathered_product_cycles(hw: HardwareSpec, layout: Layout, dtype: str) -> int:
    """Cycles of one product over all of the contracted axis, and of clearing C for it."""
    clear = clear_cycles(hw, layout.tile_m * layout.tile_n)
    contracted = layout.steps * layout.block_k
    return clear + gemm_cycles(hw, layout.tile_m, contracted, layout.tile_n, dtype)


def _moving(layout: Layout) -> list[tuple[int, int]]:
    """PEs of a row and blocks of A on each, if rows have several PEs; likewise columns and B."""
    height, width = layout.mesh
    both = ((width, layout.a_blocks), (height, layout.b_blocks))
    return [(length, blocks) for length, blocks in both if length > 1]


def _moving_words(layout: Layout, dtype: str) -> list[int]:
    """Words of a block of A, if rows have several PEs, and of B, if columns have."""
    height, width = layout.mesh
    sizes = (layout.tile_m * layout.block_k, layout.block_k * layout.tile_n)
    return [
        block_words(size, dtype)
        for size, length in zip(sizes, (width, height), strict=True)
        if length > 1
    ]
