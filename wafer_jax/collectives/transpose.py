"""Transpose of a matrix on a square mesh: tile (y, x) goes to PE (x, y).

WaferLLM's plan has none (arXiv 2502.04563, section 4): every tile of a row has to pass the PE on
the diagonal, so N - 1 tiles share its links and the cores of the corners wait longest.

    row y:     (y, 0) -> ... -> (y, y) <- ... <- (y, N - 1)       PEs take turns, nearest first
    column y:  (0, y) <- ... <- (y, y) -> ... -> (N - 1, y)       the nearest takes the first tile

Tiles below the diagonal run east, turn north in the router on the diagonal and are dealt to its
column; those above run west and turn south. The order in which a row takes turns is that in which
the column is dealt to, so the same control wavelet turns a sender's switch and its receiver's
(`turns`). Two colours, which never share a link; no core forwards anything.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.lines import Lines
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.collectives.turns import collect_cycles, paint_collect, paint_deal
from wafer_jax.errors import WaferError
from wafer_jax.events import Kernel
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES, E, HardwareSpec, N, S, W
from wafer_jax.program import Program

TRANSPOSE = Kernel(name="transpose", fn=lambda tile: jnp.swapaxes(tile, 0, 1))
"""``Compute(TRANSPOSE, inputs=(x,), outputs=(y,), ...)`` from [r, c] to [c, r]."""

_BELOW, _ABOVE = range(2)
"""Colours of the tiles that start below and above the diagonal."""

_SEND, _RECEIVE = range(2)
"""Threads: a PE's turn to send may come after the one to receive."""


@checked
def program(hw: HardwareSpec, rows: int, cols: int, dtype: str = "float32") -> Program:
    """Tile x [rows, cols] of PE (y, x), transposed, as tile y [cols, rows] of PE (x, y).

    Args:
      hw: Machine and mesh, as many rows as columns.
      rows: Rows of a PE's tile.
      cols: Columns of a PE's tile.
      dtype: Element type.

    Raises:
      WaferError: A mesh that is not square, or tiles over the SRAM budget.
    """
    length = check_square(hw.mesh)
    builder = ProgramBuilder(hw, f"transpose of tiles [{rows}, {cols}] on {length}x{length} PEs")
    x = builder.tile("x", (rows, cols), dtype)
    y = builder.tile("y", (cols, rows), dtype)
    buffer = builder.tile("buffer", (rows, cols), dtype)
    cycles = kernel_cycles(hw, rows, cols, dtype)
    _paint(builder, length)
    place = np.arange(length)
    row, col = place[:, None], place[None, :]
    sides = (
        ("below", _BELOW, col < row, col == 0),
        ("above", _ABOVE, col > row, col == length - 1),
    )
    builder.role("diagonal", where=row == col).thread().compute(TRANSPOSE, (x,), (y,), cycles)
    for side, color, mask, end in sides:
        for name, where in ((f"{side}, at the end", mask & end), (side, mask & ~end)):
            role = builder.role(name, where=where)
            role.thread(_SEND).send(color, x)
            if name == side:
                role.thread(_SEND).control(color, "advance")
            arrival = role.thread(_RECEIVE).receive(1 - color, buffer)
            arrival.compute(TRANSPOSE, (buffer,), (y,), cycles)
    return builder.build(inputs=("x",), outputs=("y",))


switched = program
"""The name of `program` in ``wj.transpose.switched(...)``."""


def _paint(builder: ProgramBuilder, length: int) -> None:
    for place in range(length):
        row, column = Lines(builder, "x", place), Lines(builder, "y", place)
        if lower := range(place - 1, -1, -1):
            paint_collect(row, _BELOW, lower, row.forward)
            builder.route(_BELOW, place, place, W, N)
            paint_deal(column, _BELOW, lower, column.forward)
        if upper := range(place + 1, length):
            paint_collect(row, _ABOVE, upper, row.back)
            builder.route(_ABOVE, place, place, E, S)
            paint_deal(column, _ABOVE, upper, column.back)


def check_square(mesh: tuple[int, int]) -> int:
    """Side of a square mesh.

    Raises:
      WaferError: Another mesh.
    """
    if mesh[0] != mesh[1]:
        raise WaferError(f"a transpose on {mesh[0]}x{mesh[1]} PEs: the mesh must be square")
    return mesh[0]


def apply(tiles: jax.Array) -> jax.Array:
    """Bulk level: [r, c, Y, X] to [c, r, X, Y], tile and mesh both transposed.

    Raises:
      WaferError: Another number of axes, or a mesh that is not square.
    """
    if tiles.ndim != 4:
        raise WaferError(f"transpose: tiles {tiles.shape} are not [r, c, Y, X]")
    check_square((tiles.shape[-2], tiles.shape[-1]))
    return tiles.transpose(1, 0, 3, 2)


def kernel_cycles(hw: HardwareSpec, rows: int, cols: int, dtype: str = "float32") -> int:
    """Cycles to transpose a tile within the SRAM: one vector instruction for each of its rows."""
    return math.ceil(rows * hw.vector_cycles(cols, dtype))


@checked
def cost(hw: HardwareSpec, rows: int, cols: int, dtype: str = "float32") -> int:
    """Cycles of N x N PEs with tiles of w words: N - 1 turns, twice the way, and the kernel.

    ``s + 2 T_R + 1 + h + w + (N > 2) (s + 1 + h + w) + (N - 3) (1 + h + w) + h (N - 1)`` until the
    corners have the last of the N - 1 tiles that share a diagonal's links (`collect_cycles`), then
    `kernel_cycles`. A PE whose own tile is longer than the way of what it receives still sends
    when that arrives, both through its issue slot: ``w - L(2 k)`` more in turn k, where L(d) =
    2 T_R + 1 + h d. Exact for N = 2, and where w + s < L(2), so that nobody does both at once.
    Otherwise a control wavelet that meets a word costs one cycle more, and what lies in a sender's
    queue before its turn as many fewer in every turn: up to the capacity of its router's FIFO.

    Raises:
      WaferError: A mesh that is not square.
    """
    length, kernel = check_square(hw.mesh), kernel_cycles(hw, rows, cols, dtype)
    if length == 1:
        return kernel
    words = -(-rows * cols * DTYPE_BYTES[dtype] // WORD_BYTES)
    shared = sum(max(words - pass_cycles(hw, 2 * k), 0) for k in range(1, length))
    arrival = collect_cycles(hw, words, length - 1, 0) + hw.hop_cycles * (length - 1)
    return arrival + shared + kernel
