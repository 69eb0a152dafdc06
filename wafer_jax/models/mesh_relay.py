"""Matrices from decode's layout to what MeshGEMM takes in prefill (bulk level).

Axes as in `mesh_weights`.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from wafer_jax.collectives.tiles import tile_matrix
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.packed_tiles import Tiles, numbers

Values = Literal["rounds", "dense"]
"""How MeshGEMM makes its values, see `gemm.apply`."""


def relay_to_columns(w: Tiles, layout: LayerLayout) -> jax.Array:
    """[e, Y, X * c], with the embedding axis along its rows, to numbers [k, c, Y, X]."""
    dense = numbers(w).swapaxes(0, 1).reshape(-1, w.shape[-1])
    return tile_matrix(hidden_columns(dense.T, layout).T, layout.mesh)


def relay_to_hidden(w: Tiles, layout: LayerLayout) -> jax.Array:
    """[r, X, Y * e], with the embedding axis along its columns, to numbers [k, ex, Y, X]."""
    dense = pad(numbers(w).swapaxes(0, 1), 1, layout.contracted(w.shape[0]))
    return tile_matrix(hidden_columns(dense.reshape(-1, dense.shape[-1]), layout), layout.mesh)


def bias_to_columns(bias: jax.Array, layout: LayerLayout) -> jax.Array:
    """[X * c], cut over the columns already, to [c, X]."""
    return bias.reshape(layout.mesh[1], -1).T


def vector_to_hidden(vector: jax.Array, layout: LayerLayout) -> jax.Array:
    """[Y, e] or [Y * e], cut over the rows, to [ex, X]."""
    return bias_to_columns(hidden_columns(vector.reshape(1, -1), layout), layout)


def hidden_columns(dense: jax.Array, layout: LayerLayout) -> jax.Array:
    """[N, padded E] as decode pads it to [N, X * ex] as prefill does."""
    size = layout.config.hidden_size
    return pad(dense[:, :size], 1, layout.mesh[1] * layout.hidden_x)


def pad(array: jax.Array, axis: int, size: int) -> jax.Array:
    """Append zeros to an axis."""
    if array.shape[axis] == size:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, size - array.shape[axis])
    return jnp.pad(array, widths)
