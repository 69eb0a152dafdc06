"""SUMMA: C = A B by outer products of blocks that are broadcast along rows and columns.

van de Geijn and Watts (1997), the vendor's default (WaferLLM, OSDI'25, section 5.1; its own layer
of 2-D collectives and the public port that uses it broadcast block by block, double-buffered). In
step s the PEs of one column broadcast the s-th block of A along their rows, those of one row the
s-th block of B along their columns, and every PE adds the product of what it received to its tile
of C. The broadcasts of the next step overlap with the product.

`gemm_broadcast` says which block is where, and which colours there are: every PE of a line is a
source in its turn, so there are X + Y of them. Ordinary machines run out of input queues first, one
for every source that a PE listens to. Buffers for two blocks of A and two of B come on top of a
PE's own tiles.

As in MeshGEMM streams are launched one after another, are wide, and end in a task:

    control   launch A, launch B; product of the current blocks; wait for both; next task
    A, B      wait; receive the next block, or broadcast it if it is the PE's own; done
"""

from collections.abc import Sequence

from wafer_jax.builder import ProgramBuilder, RoleBuilder
from wafer_jax.collectives import gemm_broadcast
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.compute_shift import clear
from wafer_jax.collectives.gemm_broadcast import apply, load
from wafer_jax.collectives.gemm_broadcast_cost import shared_cycles
from wafer_jax.collectives.gemm_broadcast_cost import summa_cost_parts as cost_parts
from wafer_jax.collectives.gemm_layout import Layout, layout_of, tile_operands
from wafer_jax.collectives.kernels import GEMM, clear_cycles, gemm_cycles
from wafer_jax.collectives.launches import join, launch
from wafer_jax.events import Tile
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program
from wafer_jax.segment_builder import SegmentBuilder

__all__ = ["apply", "cost", "cost_parts", "load", "program", "tile_operands"]

_CONTROL = 0
_STREAMS = (1, 2)
"""Threads of A and B; a stream begins on the semaphore of its number, and tells on `_DONE`."""
_DONE = 0
_BUFFERS = 2


@checked
def program(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> Program:
    """C = A B for A [m, k] and B [k, n].

    Inputs are what `load` returns; the output is c [tile_m, tile_n] float32.

    Args:
      hw: Machine and mesh.
      m: Rows of A and C.
      k: Columns of A, rows of B.
      n: Columns of B and C.
      dtype: Element type of A and B; products are summed in float32.

    Raises:
      WaferError: Blocks over the SRAM budget; too few colours, queues or threads.
    """
    layout = layout_of(hw.mesh, m, k, n)
    builder = ProgramBuilder(hw, f"SUMMA {m}x{k}x{n}")
    gemm_broadcast.paint(builder, builder.name)
    return build(builder, layout, gemm_broadcast.source_colors(layout), dtype)


summa = program


def build(
    builder: ProgramBuilder,
    layout: Layout,
    colors: tuple[list[int], list[int]],
    dtype: str,
    segments: Sequence[SegmentBuilder] = (),
) -> Program:
    """Tiles and roles of SUMMA on routes that are painted.

    Args:
      builder: The program under construction.
      layout: Sizes of the product.
      colors: On which the block of each step is broadcast, of A and of B.
      dtype: Element type of A and B.
      segments: To which PEs go at the beginning of steps 1, 2, ...
    """
    hw, (height, width) = builder.hw, layout.mesh
    a, b = gemm_broadcast.block_tiles(builder, layout, dtype)
    spare = _buffers(builder, "a_next", a[0], width), _buffers(builder, "b_next", b[0], height)
    c = builder.tile("c", (layout.tile_m, layout.tile_n))
    for y in range(height):
        for x in range(width):
            role = builder.role(f"y{y} x{x}", at=(y, x))
            blocks = [
                _blocks(layout.steps, own, buffers, position)
                for own, buffers, position in zip((a, b), spare, (x, y), strict=True)
            ]
            _products(hw, role, layout, blocks, c, dtype, segments)
            for axis, own in enumerate((a, b)):
                if spare[axis]:
                    _stream(role, _STREAMS[axis], colors[axis], blocks[axis], own)
    return builder.build(inputs=[*a, *b], outputs=[c])


def _buffers(builder: ProgramBuilder, name: str, block: Tile, length: int) -> list[Tile]:
    count = _BUFFERS if length > 1 else 0
    return [builder.tile(f"{name}{i}", block.shape, block.dtype) for i in range(count)]


def _blocks(steps: int, own: list[Tile], buffers: list[Tile], position: int) -> list[Tile]:
    """Where a PE has the block of each step: its own tile, or the buffers in turn."""
    out = []
    for step in range(steps):
        source, block = divmod(step, len(own))
        mine = source == position or not buffers
        out.append(own[block] if mine else buffers[step % _BUFFERS])
    return out


def _products(
    hw: HardwareSpec,
    role: RoleBuilder,
    layout: Layout,
    blocks: list[list[Tile]],
    c: Tile,
    dtype: str,
    segments: Sequence[SegmentBuilder],
) -> None:
    """Clear C while the first blocks come in, then a product per step."""
    control, any_tile = role.thread(_CONTROL), role.tiles["a0"]
    moving = [t for t, n in zip(_STREAMS, reversed(layout.mesh), strict=True) if n > 1]
    product = gemm_cycles(hw, layout.tile_m, layout.block_k, layout.tile_n, dtype)
    shared = shared_cycles(hw, layout, dtype)
    for step in range(-1, layout.steps):
        if 1 <= step <= len(segments):
            control.reconfigure(segments[step - 1])
        moves = moving if step < layout.steps - 1 else []
        for semaphore in moves:
            launch(hw, control, semaphore, any_tile)
        if step < 0:
            control.compute(clear(c.shape), (any_tile,), (c,), clear_cycles(hw, c.size))
        else:
            a, b = blocks
            cycles = product + (shared if moves else 0)
            control.compute(GEMM, (c, a[step], b[step]), (c,), cycles)
        join(hw, control, [_DONE] * len(moves), any_tile)


def _stream(
    role: RoleBuilder, thread: int, colors: list[int], blocks: list[Tile], own: list[Tile]
) -> None:
    """Receive each step's block, or broadcast it."""
    stream = role.thread(thread)
    for color, block in zip(colors, blocks, strict=True):
        stream.wait(thread)
        if block in own:
            stream.send(color, block, wide=True)
        else:
            stream.receive(color, block, wide=True)
        stream.signal(_DONE)


@checked
def cost(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> int:
    """Cycles of `program` with the same arguments; `gemm_broadcast_cost` has the closed form."""
    return cost_parts(hw, m, k, n, dtype=dtype).total
