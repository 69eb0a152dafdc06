"""The sums of a pre-order tree at the bulk level: the fabric's additions in the fabric's order."""

from functools import partial

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
    where = tiles.ndim + axis_index(axis)
    check_tree(parents, tiles.shape[where])
    children = np.array(completion_order(parents)[:-1], np.int32)
    return _sums(tiles, children, np.array(parents, np.int32)[children], where, op)


@partial(jax.jit, static_argnames=("where", "op"))
def _sums(
    tiles: jax.Array, children: jax.Array, parents: jax.Array, where: int, op: Op
) -> jax.Array:
    """Add each child's tile to its parent's in turn; the tree is data, so all share one loop."""
    combine = combination(op, tiles.dtype)

    def message(k: jax.Array, sums: jax.Array) -> jax.Array:
        child = lax.dynamic_index_in_dim(sums, children[k], where)
        total = combine(lax.dynamic_index_in_dim(sums, parents[k], where), child)
        return lax.dynamic_update_slice_in_dim(sums, total, parents[k], where)

    sums = lax.fori_loop(0, len(children), message, tiles) if len(children) else tiles
    return lax.slice_in_dim(sums, 0, 1, axis=where)
