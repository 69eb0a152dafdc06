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
from wafer_jax.collectives import allreduce_ktree, gemv_pipeline, gemv_ring
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.gemv_local import add_tiles, check_operands, cost_parts, product
from wafer_jax.collectives.lines import line_length
from wafer_jax.collectives.tiles import (
    Axis,
    axis_index,
    tile_vector,
    untile_matrix,
    untile_vector,
)
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program


@checked
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
    builder = ProgramBuilder(hw, f"MeshGEMV {rows}x{cols}, k={k}, summed along {axis}")
    y, multiply = add_tiles(builder, rows, cols, axis, dtype)
    phases = allreduce_ktree.phases_of(line_length(hw, axis), k, groups)
    allreduce_ktree.add_to(builder, y, phases, axis, broadcast, multiply)
    return builder.build(inputs=("x", "w"), outputs=("y",))


mesh = program
"""The name of `program` in ``wj.gemv.mesh(...)``."""

pipeline, ring = gemv_pipeline.program, gemv_ring.program
"""The same product with other allreduces, to compare with."""


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
    if values == "ordered":
        return allreduce_ktree.apply(product(x, w), k, axis, broadcast, groups)
    if values != "dense":
        raise WaferError(f'values={values!r}: choose "ordered" or "dense"')
    check_operands(x, w)
    return _dense(x, w, axis, broadcast)


def _dense(x: jax.Array, w: jax.Array, axis: Axis, broadcast: bool) -> jax.Array:
    tile_rows, tile_cols, *pes = w.shape
    here = axis_index(axis)
    other: Axis = "x" if axis == "y" else "y"
    rows, cols = tile_rows * pes[here], tile_cols * pes[axis_index(other)]
    vector = untile_vector(x, rows, axis)
    matrix = untile_matrix(w, (rows, cols), axis)
    dense = jnp.matmul(vector, matrix, preferred_element_type=jnp.float32).astype(x.dtype)
    tiles = tile_vector(dense, (pes[0], pes[1]), other)
    if broadcast:
        return tiles
    return tiles[:, :1, :] if axis == "y" else tiles[:, :, :1]


@checked
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
    compute, words = cost_parts(hw, rows, cols, axis, dtype)
    return compute + allreduce_ktree.cost(hw, words, k, axis, broadcast, groups)
