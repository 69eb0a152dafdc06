"""What every GEMV on the mesh does before its allreduce: each PE multiplies its tile.

Axes as in `gemv`: k rows and n columns of a PE's tile of the matrix [K, N].
"""

from collections.abc import Callable

import jax

from wafer_jax.builder import ProgramBuilder, ThreadBuilder
from wafer_jax.collectives.kernels import GEMV, gemv, gemv_cycles
from wafer_jax.collectives.lines import line_length
from wafer_jax.collectives.tiles import Axis, tile_size
from wafer_jax.errors import WaferError
from wafer_jax.events import Tile
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES, HardwareSpec


def tile_shape(hw: HardwareSpec, rows: int, cols: int, axis: Axis = "y") -> tuple[int, int]:
    """(k, n) of one PE's tile of a [rows, cols] matrix whose rows are cut along ``axis``."""
    other: Axis = "x" if axis == "y" else "y"
    return tile_size(rows, line_length(hw, axis)), tile_size(cols, line_length(hw, other))


def add_tiles(
    builder: ProgramBuilder, rows: int, cols: int, axis: Axis, dtype: str
) -> tuple[Tile, Callable[[ThreadBuilder], object]]:
    """Add tiles x [k], w [k, n] and y [n]; y, and what appends the product to a thread."""
    k, n = tile_shape(builder.hw, rows, cols, axis)
    x = builder.tile("x", (k,), dtype)
    w = builder.tile("w", (k, n), dtype)
    y = builder.tile("y", (n,), dtype)
    cycles = gemv_cycles(builder.hw, k, n, dtype)
    return y, lambda thread: thread.compute(GEMV, (x, w), (y,), cycles)


def product(x: jax.Array, w: jax.Array) -> jax.Array:
    """Bulk level: x [k, Y, X] times w [k, n, Y, X] to partial sums [n, Y, X].

    Raises:
      WaferError: Shapes that do not match.
    """
    check_operands(x, w)
    return gemv(x, w)


def check_operands(x: jax.Array, w: jax.Array) -> None:
    """Raise ``WaferError`` unless x is [k, Y, X] and w [k, n, Y, X]."""
    if x.ndim != 3 or w.ndim != 4 or w.shape != (*x.shape[:1], *w.shape[1:2], *x.shape[1:]):
        raise WaferError(f"GEMV: x {x.shape} and w {w.shape} are not [k, Y, X], [k, n, Y, X]")


def cost_parts(hw: HardwareSpec, rows: int, cols: int, axis: Axis, dtype: str) -> tuple[int, int]:
    """Cycles of the local product, and the words of y that are to be summed."""
    k, n = tile_shape(hw, rows, cols, axis)
    return gemv_cycles(hw, k, n, dtype), tile_size(n * DTYPE_BYTES[dtype], WORD_BYTES)
