"""Two-dimensional broadcast: one PE's words flood the whole mesh by multicast.

They run along the source's row, and every router of the row sends them up and down its column, at
one word per cycle; no core takes part (2D Broadcast of Luczynski et al., HPDC'24). One colour.
"""

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives.broadcast import paint
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.lines import Lines, check_position
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.hardware import DTYPE_BYTES, RAMP, WORD_BYTES, HardwareSpec, N, S
from wafer_jax.program import Program


@checked
def program(
    hw: HardwareSpec, words: int, y: int = 0, x: int = 0, dtype: str = "float32"
) -> Program:
    """Copy tile x of PE (y, x) to the tile x of every PE.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE; the tile is [words] float32, or [2 words] of a 16-bit type.
      y: Row of the source.
      x: Column of the source.
      dtype: Element type.

    Raises:
      WaferError: A source off the mesh, or tiles over the SRAM budget.
    """
    _check_source(y, x, hw.mesh)
    builder = ProgramBuilder(hw, f"broadcast of {words} words from PE (y={y}, x={x})")
    tile = builder.tile("x", (words * (WORD_BYTES // DTYPE_BYTES[dtype]),), dtype)
    height, width = hw.mesh
    if height * width > 1:
        _paint(builder, y, x)
        builder.role("sink", at=(slice(None), slice(None))).thread().receive(0, tile)
        builder.role("source", at=(y, x)).thread().send(0, tile)
    return builder.build(inputs=("x",), outputs=("x",))


def _paint(builder: ProgramBuilder, y: int, x: int) -> None:
    """Route colour 0: along row y, and from every router of the row along its column."""
    height, width = builder.hw.mesh
    paint(Lines(builder, "x", across=[y]), 0, x)
    up_and_down = [d for d, some in ((N, y > 0), (S, y < height - 1)) if some]
    row = Lines(builder, "x", across=[y])
    for positions, rx in (
        ([x], RAMP),
        (range(x), row.forward),
        (range(x + 1, width), row.back),
    ):
        if up_and_down and len(positions):
            row.route(0, positions, rx, up_and_down)
    for rows, rx, ahead in ((range(y), S, N), (range(height - 1, y, -1), N, S)):
        if rows:
            builder.route(0, rows, slice(None), rx, RAMP)
        if rows[1:]:
            builder.route(0, rows[1:], slice(None), rx, ahead)


def apply(tiles: jax.Array, y: int = 0, x: int = 0) -> jax.Array:
    """Bulk level: [..., Y, X] to the same shape, every PE with the tile of PE (y, x).

    Raises:
      WaferError: A source off the mesh.
    """
    _check_source(y, x, tiles.shape[-2:])
    row = lax.slice_in_dim(tiles, y, y + 1, axis=tiles.ndim - 2)
    return jnp.broadcast_to(lax.slice_in_dim(row, x, x + 1, axis=tiles.ndim - 1), tiles.shape)


@checked
def cost(hw: HardwareSpec, words: int, y: int = 0, x: int = 0) -> int:
    """Cycles: ``s + 2 R + 1 + h d + B``, d links from the source to the furthest corner; exact.

    From a corner, with h = 1, it is Luczynski et al.'s ``B + M + N - 2 + 2 T_R + 1`` plus s.
    """
    _check_source(y, x, hw.mesh)
    height, width = hw.mesh
    distance = max(y, height - 1 - y) + max(x, width - 1 - x)
    return hw.stream_setup_cycles + pass_cycles(hw, distance) + words if distance else 0


def _check_source(y: int, x: int, mesh: tuple[int, ...]) -> None:
    check_position(y, mesh[0], "row")
    check_position(x, mesh[1], "column")
