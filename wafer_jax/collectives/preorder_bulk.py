"""The sums of a pre-order tree at the bulk level: the fabric's additions in the fabric's order."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.collectives.preorder_tree import Parents, check_tree, completion_order
from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.collectives.tree_bulk import Op, combination


def reduce_preorder(tiles: jax.Array, parents: Parents, axis: Axis, op: Op = "add") -> jax.Array:
    """Combine along one axis of the mesh, one message of every line after the other.

    Args:
      tiles: [..., Y, X].
      parents: The tree on a line of that axis.
      axis: Axis of the mesh.
      op: "add" or "max".

    Returns:
      The tiles at position 0 of every line, [..., Y, 1] or [..., 1, X].

    Raises:
      WaferError: Unknown axis or op, or no pre-order tree.
    """
    tiles = jnp.asarray(tiles)
    combine = combination(op, tiles.dtype)
    where = tiles.ndim + axis_index(axis)
    check_tree(parents, tiles.shape[where])
    children = np.array(completion_order(parents)[:-1], np.int32)
    into = np.array([parents[i] for i in children], np.int32)

    def message(k: jax.Array, sums: jax.Array) -> jax.Array:
        child = lax.dynamic_index_in_dim(sums, jnp.asarray(children)[k], where)
        parent = lax.dynamic_index_in_dim(sums, jnp.asarray(into)[k], where)
        return lax.dynamic_update_slice_in_dim(
            sums, combine(parent, child), jnp.asarray(into)[k], where
        )

    sums = lax.fori_loop(0, len(children), message, tiles) if len(children) else tiles
    return lax.slice_in_dim(sums, 0, 1, axis=where)
