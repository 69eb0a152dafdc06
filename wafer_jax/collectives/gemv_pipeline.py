"""GEMV with a pipeline allreduce: the baseline that WaferLLM measures MeshGEMV against.

The vendor's GEMV (WaferLLM, arXiv 2502.04563, sections 6.1 and 7.3): the same tiles and the same
local product as MeshGEMV in `gemv`, but the partial sums take 2 N hops and N stages.
"""

import jax

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives import allreduce_pipeline
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.gemv_local import add_tiles, cost_parts, product
from wafer_jax.collectives.tiles import Axis
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program


@checked
def program(
    hw: HardwareSpec, rows: int, cols: int, axis: Axis = "y", dtype: str = "float32"
) -> Program:
    """``y = x @ w`` for a matrix [rows, cols]: inputs x [k] and w [k, n], output y [n] per PE.

    Args:
      hw: Machine and mesh.
      rows: Rows of the matrix, K.
      cols: Columns of the matrix, N.
      axis: Axis along which the rows are cut and the sum runs.
      dtype: Element type of x, w and y; kernels accumulate in float32, the allreduce in dtype.

    Raises:
      WaferError: Tiles over the SRAM budget; too few colours.
    """
    builder = ProgramBuilder(hw, f"GEMV {rows}x{cols}, pipeline, summed along {axis}")
    y, multiply = add_tiles(builder, rows, cols, axis, dtype)
    allreduce_pipeline.add_to(builder, y, axis, multiply)
    return builder.build(inputs=("x", "w"), outputs=("y",))


def apply(x: jax.Array, w: jax.Array, axis: Axis = "y") -> jax.Array:
    """Bulk level of ``y = x @ w``, the fabric's additions in the fabric's order.

    Args:
      x: [k, Y, X], cut along ``axis``, replicated along the other axis.
      w: [k, n, Y, X] tiles of the matrix, ``tile_matrix(..., rows_along=axis)``.
      axis: Axis along which the rows are cut and the sum runs.

    Returns:
      [n, Y, X] in the dtype of x.

    Raises:
      WaferError: Shapes that do not match; an unknown axis.
    """
    return allreduce_pipeline.apply(product(x, w), axis)


@checked
def cost(hw: HardwareSpec, rows: int, cols: int, axis: Axis = "y", dtype: str = "float32") -> int:
    """Cycles: the local product, then the allreduce (`allreduce_pipeline.cost`), exact."""
    compute, words = cost_parts(hw, rows, cols, axis, dtype)
    return compute + allreduce_pipeline.cost(hw, words, axis)
