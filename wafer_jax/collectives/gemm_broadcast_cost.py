"""Cycles of SUMMA and of the all-gather product, from the latencies and the words of a block.

With s = ``stream_setup_cycles``, R = ``ramp_cycles``, h = ``hop_cycles``, l = ``launch_cycles`` and
blocks of w words, a PE d hops from the source has all of a block s + 2 R + 1 + h d + w cycles after
its launch (`broadcast.cost`).

SUMMA: a step takes what the control and its product take, with n streams

    n l + product + shared + n + task

or, where transfers bound it, what its words take from the launch at the source of a step to its
neighbour, which is the source of the next. In WaferLLM's table every step has a critical path of
O[(alpha + beta) N], a broadcast across the line. But PEs wait for their own blocks only: those far
from the first source are behind it from the first step on, and pay for the line once. What the
table stands for is PEs in unison, for which `summa_unison_cost_parts` is the closed form:

    step = max(product path, way from the step's source to the farthest PE) + control

or, if a core does nothing else while its blocks move (``overlap=False``), the sum of both.

Exact on lines (within a cycle per PE where launches are shorter than the control's events). On
a mesh the streams of rows and columns meet in a PE's slot and at its RAMP: up to 3 cycles a step
more or less, and up to 12 % less on what-if machines with long hops and short launches.

All-gather: every PE receives the words of whole lines, at most one per cycle over its RAMP, unless
launches take longer; `_sources_cycles` counts what lies between two sources. All sources send at
once and their words meet at the RAMPs, on meshes those of rows and columns, too. That is
contention, counted as if blocks were long and both axes worst at once; tests hold the rest, which
is at most 5 % and 12 cycles (on short lines of blocks of 12 words and more, up to 30 cycles less).
"""

from wafer_jax.collectives.gemm_cost import Parts
from wafer_jax.collectives.gemm_layout import Layout, block_words, layout_of
from wafer_jax.collectives.kernels import clear_cycles, gemm_cycles
from wafer_jax.collectives.launches import launched
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.hardware import HardwareSpec


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
    product_step = launched(hw, len(words)) + product + shared_cycles(hw, layout, dtype)
    step = max(product_step + len(words), _transfer_cycles(hw, words, 1)) + hw.task_cycles
    clearing = launched(hw, len(words)) + clear + len(words)
    first = max(clearing, _transfer_cycles(hw, words, max(layout.mesh) - 1)) + hw.task_cycles
    total = first + (layout.steps - 1) * step + product
    return Parts(compute, 0, total - compute)


def summa_unison_cost_parts(
    hw: HardwareSpec,
    m: int,
    k: int,
    n: int,
    *,
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
      dtype: Element type of A and B.
      overlap: Blocks move while the products are made, as in the program.

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
    control, total = launched(hw, len(words)) + len(words), product
    for step, distance in enumerate(_farthest(layout)):
        work, shared = (product, shared_cycles(hw, layout, dtype)) if step else (clear, 0)
        transfer = _transfer_cycles(hw, words, distance)
        both = max(control + work + shared, transfer) if overlap else work + transfer
        total += both + hw.task_cycles
    return Parts(compute, 0, total - compute)


def _farthest(layout: Layout) -> list[int]:
    """Hops from the sources of each step to the PE that is farthest from one of them."""
    height, width = layout.mesh
    lines = ((width, layout.a_blocks), (height, layout.b_blocks))
    return [
        max(max(s // blocks, length - 1 - s // blocks) for length, blocks in lines)
        for s in range(layout.steps)
    ]


def _transfer_cycles(hw: HardwareSpec, words: list[int], distance: int) -> int:
    """Cycles from a step's start to the end of the wait for words of a source so far away.

    The words of A and B come in over one RAMP, so those that are launched last come last.
    """
    begin = hw.stream_setup_cycles + pass_cycles(hw, distance)
    ends = [launched(hw, i + 1) + begin + sum(words[i:]) for i in range(len(words))]
    return max(ends) + 2


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
    setup, axes = hw.stream_setup_cycles, len(lines)
    received = [words * (length if length > 2 else 1) for length, words in lines]
    streams = axes + sum(length - 1 for length, _ in lines)
    ends = [launched(hw, axes + i + 1) + sum(received[i:]) for i in range(axes)]
    gathered = max(ends) + max(_sources_cycles(hw, *line) for line in lines)
    last_launched = launched(hw, streams) + min(words for _, words in lines) + 2
    exposed = max(gathered, last_launched) + setup + 2 * axes + hw.task_cycles
    return Parts(product, 0, exposed)


def _sources_cycles(hw: HardwareSpec, length: int, words: int) -> int:
    """Cycles between the words of a line's sources: skew, set-up, and words that came early.

    When a PE turns to the next source, this one's words have waited for the PEs on its other side,
    which adds two hops. Meanwhile the first words of all later sources have filled their input
    queues, and taken the RAMP from those before. Those of the first came while the core launched
    the receives.
    """
    setup, ramp, hop = hw.stream_setup_cycles, hw.ramp_cycles, hw.hop_cycles
    if length == 2:
        return 2
    queues = hw.input_queue_depths[: length - 1]
    early = sum(min(words, depth + ramp) for depth in (*queues, *queues[-1:]))
    between = length * (2 * hop + setup + 1) + early
    return between + ramp + 1 - 3 * hop - (pass_cycles(hw, 1) + 2 * setup + 1)


def gathered_product_cycles(hw: HardwareSpec, layout: Layout, dtype: str) -> int:
    """Cycles of one product over all of the contracted axis, and of clearing C for it."""
    clear = clear_cycles(hw, layout.tile_m * layout.tile_n)
    contracted = layout.steps * layout.block_k
    return clear + gemm_cycles(hw, layout.tile_m, contracted, layout.tile_n, dtype)


def shared_cycles(hw: HardwareSpec, layout: Layout, dtype: str) -> int:
    """Cycles that SUMMA's streams take from a product: the words that move after the last launch.

    Streams and vector instructions share the datapath, as in MeshGEMM. A wide instruction moves two
    words, so the words of A and B, which a PE either sends or receives, take half a cycle each.
    """
    *earlier, last = _moving_words(layout, dtype) or [0]
    head_start = launched(hw, 1) - hw.stream_setup_cycles
    return -(-(sum(max(0, words - head_start) for words in earlier) + last) // 2)


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
