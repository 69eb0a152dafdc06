"""Dense matrices and vectors to tiles on the mesh and back, padded with zeros where they must be.

Axes: R rows and C columns of the dense matrix, r and c of one PE's tile, L and l likewise for a
vector, Y and X of the mesh. A matrix is cut into blocks, one per PE: block row i lies on mesh row
i (``rows_along="y"``, and its columns on the columns of the mesh), or block row i lies on mesh
column i (``rows_along="x"``). A vector is cut along one axis of the mesh and replicated along the
other. So ``y = x @ w`` takes x cut along "y" and w with ``rows_along="y"`` to y cut along "x",
which is what a product with ``rows_along="x"`` takes next, with no transpose in between.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from wafer_jax.errors import WaferError

Axis = Literal["x", "y"]
"""Axis of the mesh."""


def axis_index(axis: Axis) -> int:
    """Array axis of a mesh axis, counted from the end: PE axes are [..., Y, X].

    Raises:
      WaferError: Neither "x" nor "y".
    """
    if axis not in ("x", "y"):
        raise WaferError(f'axis {axis!r} of the mesh: choose "x" (along rows) or "y"')
    return -1 if axis == "x" else -2


def tile_size(length: int, num_pes: int) -> int:
    """Elements per PE of a dense axis of ``length`` cut over ``num_pes``: rounded up."""
    return -(-length // num_pes)


def tile_matrix(dense: ArrayLike, mesh: tuple[int, int], rows_along: Axis = "y") -> jax.Array:
    """Cut a matrix [R, C] into tiles [r, c, Y, X], padded with zeros.

    Raises:
      WaferError: An array that is no matrix, or an unknown axis.
    """
    matrix = _array(dense, 2)
    turned = axis_index(rows_along) == -1
    height, width = mesh[::-1] if turned else mesh
    rows, cols = (tile_size(n, p) for n, p in zip(matrix.shape, (height, width), strict=True))
    pad = (rows * height - matrix.shape[0], cols * width - matrix.shape[1])
    padded = jnp.pad(matrix, ((0, pad[0]), (0, pad[1])))
    blocks = padded.reshape(height, rows, width, cols)
    return blocks.transpose(1, 3, 2, 0) if turned else blocks.transpose(1, 3, 0, 2)


def untile_matrix(tiles: ArrayLike, shape: tuple[int, int], rows_along: Axis = "y") -> jax.Array:
    """Put tiles [r, c, Y, X] back together to a matrix of ``shape`` (R, C), less the padding."""
    array = _array(tiles, 4)
    turned = axis_index(rows_along) == -1
    blocks = array.transpose(3, 0, 2, 1) if turned else array.transpose(2, 0, 3, 1)
    height, rows, width, cols = blocks.shape
    return blocks.reshape(height * rows, width * cols)[: shape[0], : shape[1]]


def tile_vector(dense: ArrayLike, mesh: tuple[int, int], along: Axis = "y") -> jax.Array:
    """Cut a vector [L] along one axis of the mesh: [l, Y, X], replicated along the other axis.

    Raises:
      WaferError: An array that is no vector, or an unknown axis.
    """
    vector = _array(dense, 1)
    axis = axis_index(along)
    num_pes = mesh[axis]
    size = tile_size(len(vector), num_pes)
    blocks = jnp.pad(vector, (0, size * num_pes - len(vector))).reshape(num_pes, size).T
    line = blocks[:, None, :] if axis == -1 else blocks[:, :, None]
    return jnp.broadcast_to(line, (size, *mesh))


def untile_vector(tiles: ArrayLike, length: int, along: Axis = "y") -> jax.Array:
    """Put a vector of ``length`` back together from [l, Y, X], read at the other axis' first PE."""
    array = _array(tiles, 3)
    line = array[:, 0, :] if axis_index(along) == -1 else array[:, :, 0]
    return line.T.reshape(-1)[:length]


def _array(value: ArrayLike, ndim: int) -> jax.Array:
    array = jnp.asarray(value)
    if array.ndim != ndim:
        raise WaferError(f"expected an array of {ndim} axes, got shape {np.shape(value)}")
    return array
