"""Products and norms of one token on the mesh, as decode makes them (bulk level).

Axes: L layers (or whatever else is stacked), R and C the axis that a product reduces over and the
other one; small letters for one PE's part, see `mesh_layout`.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.collectives import allreduce_ktree
from wafer_jax.collectives.tree_bulk import rounded
from wafer_jax.models.packed_tiles import Tiles, stack_of_one

Accumulate = Literal["float32", "float16"]
"""What sums of products are made in: float16 rounds after every addition, as the device does."""

_UNROLL = (4, 3, 2, 1)
"""Multiply-adds per trip of a loop, the first that divides it: a remainder would be slow."""


def project(x: jax.Array, w: Tiles, layer: jax.Array, k: int, accumulate: Accumulate) -> jax.Array:
    """`matvec` of float32 to float32, summed in another type."""
    return matvec(x.astype(accumulate), w, layer, k).astype(jnp.float32)


def matvec(x: jax.Array, w: Tiles, layer: jax.Array, k: int = 2) -> jax.Array:
    """MeshGEMV, ``x @ w[layer]``: multiply by every tile, then sum over R with a K-tree.

    Args:
      x: [R, r]; its dtype is that of all sums.
      w: [L, r, R, C * c], in any format.
      layer: [] int32.
      k: Phases of the K-tree.

    Returns:
      [C * c] in the dtype of x, on every PE along R.
    """
    return sum_along(multiply(x, w, layer), k)


def multiply(x: jax.Array, w: Tiles, layer: jax.Array, start: jax.Array | None = None) -> jax.Array:
    """Every PE's own part of ``x @ w[layer]``, added to ``start``.

    The kernel's loop over the rows of a tile, but it picks each row straight out of the stack of
    layers: slicing the layer first would copy it, twice the traffic of the product itself.

    Args:
      x: [R, r]; its dtype is that of the sum.
      w: [L, r, R, C * c], in any format.
      layer: [] int32.
      start: [R, C * c] in the dtype of x, zero by default.

    Returns:
      [R, C * c] in the dtype of x.
    """
    w, layer = stack_of_one(w, layer)
    rows = w.shape[1]
    by_row, w = x.T, w.reshape(-1, *w.shape[2:])

    def body(i: jax.Array, acc: jax.Array) -> jax.Array:
        part = lax.dynamic_index_in_dim(by_row, i, 0, keepdims=False)
        row = lax.dynamic_index_in_dim(w, layer * rows + i, keepdims=False)
        return multiply_add(acc, part[:, None], row)

    return loop(rows, body, jnp.zeros(w.shape[1:], x.dtype) if start is None else start)


def multiply_add(acc: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """``acc + a * b`` in float32, rounded where the accumulator is shorter."""
    wide = lambda x: x.astype(jnp.float32)
    total = wide(acc) + wide(a) * wide(b)
    return total if acc.dtype == jnp.float32 else rounded(total, acc.dtype)


def sum_along(tiles: jax.Array, k: int = 2) -> jax.Array:
    """K-tree sum of [R, ...] over R."""
    flat = tiles.reshape(tiles.shape[0], -1)
    return allreduce_ktree.apply(flat, k, "y", broadcast=False).reshape(tiles.shape[1:])


def rms_norm(x: jax.Array, weight: jax.Array, size: int, eps: float, k: int = 2) -> jax.Array:
    """RMSNorm of [Y, e] over Y and e: local sums of squares, one word per PE to add up."""
    mean_square = sum_along(jnp.sum(x * x, axis=1), k) / size
    return x * lax.rsqrt(mean_square + eps) * weight


def loop(trips: int, body: Callable, start: jax.Array) -> jax.Array:
    """Accumulate ``body(i, acc)``."""
    unroll = next(u for u in _UNROLL if trips % u == 0)
    return lax.fori_loop(0, trips, body, start, unroll=unroll)
