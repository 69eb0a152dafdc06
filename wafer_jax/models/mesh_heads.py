"""Operators within the columns of PEs that hold one key/value head and its queries (bulk level).

Axes: g groups of c columns, m key/value heads of a group, G queries of each, p RoPE pairs of a head
per PE, Y, X as in `mesh_layout`.
"""

from typing import Protocol

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.collectives import allreduce_ktree
from wafer_jax.models.mesh_layout import LayerLayout


class ColumnGroups(Protocol):
    """A layout whose columns are grouped by head."""

    @property
    def mesh(self) -> tuple[int, int]:
        """(Y, X) PEs."""
        ...

    @property
    def groups(self) -> int:
        """Groups g of columns that share nothing."""
        ...

    @property
    def columns(self) -> int:
        """Columns c per group."""
        ...


def sum_in_groups(tiles: jax.Array, layout: ColumnGroups, k: int) -> jax.Array:
    """K-tree sum of [..., Y, X] over the columns of each group: [..., Y, g]."""
    used = layout.groups * layout.columns
    grouped = tiles[..., :used].reshape(*tiles.shape[:-1], layout.groups, layout.columns)
    return allreduce_ktree.apply(grouped, k, "x", broadcast=False)[..., 0]


def over_columns(tiles: jax.Array, layout: ColumnGroups) -> jax.Array:
    """Give [..., Y, g] to all columns of each group; idle columns get zeros."""
    spread = jnp.repeat(tiles, layout.columns, axis=-1)
    idle = layout.mesh[1] - spread.shape[-1]
    return jnp.pad(spread, [(0, 0)] * (tiles.ndim - 1) + [(0, idle)])


def head_norm(x: jax.Array, weight: jax.Array, layout: LayerLayout, k: int) -> jax.Array:
    """RMSNorm of every head by itself: one word per head and token to add up over its columns.

    Args:
      x: [..., 2, p, Y, X], queries or keys; padding is zero.
      weight: [2, p, X].
      layout: Layout of the layers.
      k: Phases of the K-tree.

    Returns:
      As x.
    """
    config = layout.config
    squares = jnp.sum(x * x, axis=(-4, -3))  # [..., Y, X]
    mean_square = over_columns(sum_in_groups(squares, layout, k), layout) / config.head_dim
    scale = lax.rsqrt(mean_square + config.rms_norm_eps)[..., None, None, :, :]
    lead = (1,) * (x.ndim - 4)
    return x * scale * weight.reshape(*lead, *weight.shape[:2], 1, -1)


def norm_of_all_heads(x: jax.Array, weight: jax.Array, layout: LayerLayout, k: int) -> jax.Array:
    """RMSNorm of all heads together: one word per token to add up over all columns.

    Args:
      x: [..., m, G, 2, p, Y, X], queries, or keys with G = 1; padding is zero.
      weight: [m, G, 2, p, X].
      layout: Layout of the layers.
      k: Phases of the K-tree.

    Returns:
      As x.
    """
    config, queries = layout.config, x.shape[-5]
    squares = jnp.sum(x * x, axis=(-6, -5, -4, -3))  # [..., Y, X]
    total = allreduce_ktree.apply(squares, k, "x", broadcast=False)  # [..., Y, 1]
    scale = lax.rsqrt(total / (config.kv_size * queries) + config.rms_norm_eps)
    lead = (1,) * (x.ndim - 6)
    return (
        x
        * scale[..., None, None, None, None, :, :]
        * weight[..., None, :].reshape(*lead, *weight.shape[:4], 1, -1)
    )
