"""SUMMA on four colours: routes change from step to step, so that every PE can be a source.

`gemm_summa` on larger meshes: two alternating colours per axis serve all sources in turn. In
segment s the colour of parity s leads from source s, the other one from source s + 1, which sends
its block during step s. At the beginning of step s every PE goes to segment s on its own, with no
barrier and no control wavelet:

- A PE that has received block s knows that the words of block s have left its router. Segment s
  changes the other colour only, whose words, block s - 1's, left before.
- The source of block s does not receive it. It keeps that route in segment s, and goes to segment
  s + 1 when it has block s + 1, which source s + 1 sent after it had all of block s.
- A PE that is still behind either has the same routes for the new source, or listens to the old
  one: words of the new source then wait at its neighbour.

So no word leaves a router under other routes than it was sent under, which the fabric checks (the
fault ``mixed_segment``). It takes a block per PE and axis: square meshes, and lines. With one
segment per source, up to 33 PEs a side can be built.
"""

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives import broadcast
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.gemm_broadcast import apply, load
from wafer_jax.collectives.gemm_broadcast_cost import summa_cost_parts
from wafer_jax.collectives.gemm_cost import Parts
from wafer_jax.collectives.gemm_layout import Layout, layout_of, tile_operands
from wafer_jax.collectives.gemm_summa import build
from wafer_jax.collectives.lines import Lines
from wafer_jax.collectives.tiles import Axis
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program
from wafer_jax.segment_builder import SegmentBuilder
from wafer_jax.validation import MAX_SEGMENTS

__all__ = ["apply", "cost", "cost_parts", "load", "program", "tile_operands"]

_FIRST_COLORS: dict[Axis, int] = {"x": 0, "y": 2}


@checked
def program(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> Program:
    """C = A B for A [m, k] and B [k, n]; arguments, inputs and output as `gemm_summa.program`.

    Raises:
      WaferError: A mesh that is neither square nor a line, or too large; blocks over the SRAM
        budget; too few colours, queues or threads.
    """
    layout = _layout(hw, m, k, n)
    builder = ProgramBuilder(hw, f"SUMMA {m}x{k}x{n} on four colours")
    steps = range(layout.steps)
    _paint(builder, layout, 0)
    segments = [builder.segment(f"step {s}") for s in steps[1:-1]]
    for s, segment in enumerate(segments, start=1):
        _paint(segment, layout, s)
    a_colors, b_colors = ([first + s % 2 for s in steps] for first in _FIRST_COLORS.values())
    return build(builder, layout, (a_colors, b_colors), dtype, segments)


summa_segments = program


def _layout(hw: HardwareSpec, m: int, k: int, n: int) -> Layout:
    """Layout of the product.

    Raises:
      WaferError: A mesh that this form cannot serve.
    """
    layout, (height, width) = layout_of(hw.mesh, m, k, n), hw.mesh
    if height != width and min(height, width) > 1:
        raise WaferError(
            f"SUMMA on four colours takes square meshes and lines, not {height}x{width}: a source "
            f"of several blocks in turn does not know when their words have left it"
        )
    if layout.steps - 1 > MAX_SEGMENTS:
        raise WaferError(
            f"SUMMA on four colours of {layout.steps} PEs a side needs {layout.steps - 1} "
            f"segments, {MAX_SEGMENTS} can be run: use a smaller mesh, or MeshGEMM"
        )
    return layout


def _paint(routes: ProgramBuilder | SegmentBuilder, layout: Layout, segment: int) -> None:
    """Both colours of either axis, from the sources of this segment."""
    for axis, first in _FIRST_COLORS.items():
        # A segment has no roles, but painting needs none.
        lines = Lines(routes, axis)  # pyright: ignore[reportArgumentType]
        if lines.length > 1:
            for source in range(segment, min(segment + 2, layout.steps)):
                broadcast.paint(lines, first + source % 2, source)


@checked
def cost(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> int:
    """Cycles of `program` with the same arguments."""
    return cost_parts(hw, m, k, n, dtype=dtype).total


def cost_parts(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> Parts:
    """Those of `gemm_summa.cost_parts`, and a cycle for each change of the routes.

    Raises:
      WaferError: A size below 1.
    """
    parts = summa_cost_parts(hw, m, k, n, dtype=dtype)
    steps = layout_of(hw.mesh, m, k, n).steps
    return Parts(parts.compute, 0, parts.exposed + max(0, steps - 2))
