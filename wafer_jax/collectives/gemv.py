"""MeshGEMV: one vector times a matrix that lies tile by tile on the mesh.

WaferLLM's MeshGEMV (arXiv 2502.04563, section 6): the matrix W [K, N] is cut into tiles [k, n], K
along one axis of the mesh and N along the other; the vector x [K] is cut along the first and
replicated along the second. Every PE multiplies its part of x by its tile, a K-tree allreduce sums
the partial results along the first axis. The result [N] is cut along the second axis and, if
broadcast, replicated along the first: just what a product that reduces along the second axis
takes, so consecutive products alternate the axis and nothing is transposed. `tiles` cuts and joins.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives import allreduce_ktree
from wafer_jax.collectives.kernels import GEMV, gemv, gemv_cycles
from wafer_jax.collectives.lines import line_length
from wafer_jax.collectives.tiles import (
    Axis,
    axis_index,
    tile_size,
    tile_vector,
    untile_matrix,
    untile_vector,
)
from wafer_jax.errors import WaferError
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES, HardwareSpec
from wafer_jax.program import Program


def tile_shape(hw: HardwareSpec, rows: int, cols: int, axis: Axis = "y") -> tuple[int, int]:
    """(k, n) of one PE's tile of a [rows, cols] matrix whose rows are cut along ``axis``."""
    other: Axis = "x" if axis == "y" else "y"
    return tile_size(rows, line_length(hw, axis)), tile_size(cols, line_length(hw, other))


def program(
    hw: HardwareSpec,
    rows: int,
    cols: int,
    k: int = 2,
    axis: Axis = "y",
    broadcast: bool = True,
    groups: tuple[int, ...] | None = None,
    dtype: str = "float32",
) -> Program:
    """``y = x @ w`` for a matrix [rows, cols]: inputs x [k] and w [k, n], output y [n] per PE.

    Without broadcast y is the result only at `allreduce_ktree.root_of`.

    Args:
      hw: Machine and mesh.
      rows: Rows of the matrix, K.
      cols: Columns of the matrix, N.
      k: Phases of the K-tree.
      axis: Axis along which the rows are cut and the sum runs.
      broadcast: Give the result to every PE along ``axis``.
      groups: Number of groups per phase but the last, see `allreduce_ktree.phases_of`.
      dtype: Element type of x, w and y; kernels accumulate in float32, the K-tree in dtype.

    Raises:
      WaferError: Tiles over the SRAM budget; too few colours or input queues for k.
    """
    tile_rows, tile_cols = tile_shape(hw, rows, cols, axis)
    builder = ProgramBuilder(hw, f"MeshGEMV {rows}x{cols}, k={k}, summed along {axis}")
    x = builder.tile("x", (tile_rows,), dtype)
    w = builder.tile("w", (tile_rows, tile_cols), dtype)
    y = builder.tile("y", (tile_cols,), dtype)
    cycles = gemv_cycles(hw, tile_rows, tile_cols, dtype)
    phases = allreduce_ktree.phases_of(line_length(hw, axis), k, groups)
    allreduce_ktree.add_to(
        builder, y, phases, axis, broadcast, lambda t: t.compute(GEMV, (x, w), (y,), cycles)
    )
    return builder.build(inputs=("x", "w"), outputs=("y",))


mesh = program
"""The name of `program` in ``wj.gemv.mesh(...)``."""


def apply(
    x: jax.Array,
    w: jax.Array,
    k: int = 2,
    axis: Axis = "y",
    broadcast: bool = True,
    groups: tuple[int, ...] | None = None,
    values: Literal["ordered", "dense"] = "ordered",
) -> jax.Array:
    """Bulk level of ``y = x @ w``.

    Args:
      x: [k, Y, X], cut along ``axis``, replicated along the other axis.
      w: [k, n, Y, X] tiles of the matrix, ``tile_matrix(..., rows_along=axis)``.
      k: Phases of the K-tree.
      axis: Axis along which the rows are cut and the sum runs.
      broadcast: Give the result to every PE along ``axis``.
      groups: Number of groups per phase but the last, see `allreduce_ktree.phases_of`.
      values: "ordered" makes the fabric's additions in the fabric's order, bit for bit. "dense"
        joins x and w and makes one dense product in float32: another order of additions, and no
        faster unless the compiler can join w ahead of time.

    Returns:
      [n, Y, X], or without broadcast [n, 1, X] (axis "y") or [n, Y, 1], in the dtype of x.

    Raises:
      WaferError: Shapes that do not match; an unknown axis or ``values``.
    """
    if x.ndim != 3 or w.ndim != 4 or w.shape != (*x.shape[:1], *w.shape[1:2], *x.shape[1:]):
        raise WaferError(f"MeshGEMV: x {x.shape} and w {w.shape} are not [k, Y, X], [k, n, Y, X]")
    if values == "ordered":
        partial = gemv(x, w)
        return allreduce_ktree.apply(partial, k, axis, broadcast, groups)
    if values != "dense":
        raise WaferError(f'values={values!r}: choose "ordered" or "dense"')
    return _dense(x, w, axis, broadcast)


def _dense(x: jax.Array, w: jax.Array, axis: Axis, broadcast: bool) -> jax.Array:
    tile_rows, tile_cols, *pes = w.shape
    here = axis_index(axis)
    other: Axis = "x" if axis == "y" else "y"
    rows, cols = tile_rows * pes[here], tile_cols * pes[axis_index(other)]
    vector = untile_vector(x, rows, axis)
    matrix = untile_matrix(w, (rows, cols), axis)
    product = jnp.matmul(vector, matrix, preferred_element_type=jnp.float32).astype(x.dtype)
    tiles = tile_vector(product, (pes[0], pes[1]), other)
    if broadcast:
        return tiles
    return tiles[:, :1, :] if axis == "y" else tiles[:, :, :1]


def cost(
    hw: HardwareSpec,
    rows: int,
    cols: int,
    k: int = 2,
    axis: Axis = "y",
    broadcast: bool = True,
    groups: tuple[int, ...] | None = None,
    dtype: str = "float32",
) -> int:
    """Cycles: the local product, then the K-tree (WaferLLM section 6; `allreduce_ktree.cost`)."""
    tile_rows, tile_cols = tile_shape(hw, rows, cols, axis)
    words = tile_size(tile_cols * DTYPE_BYTES[dtype], WORD_BYTES)
    compute = gemv_cycles(hw, tile_rows, tile_cols, dtype)
    return compute + allreduce_ktree.cost(hw, words, k, axis, broadcast, groups)
