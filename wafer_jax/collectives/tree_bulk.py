"""The sums of a reduction tree at the bulk level: the fabric's additions in the fabric's order."""

from collections.abc import Callable
from itertools import groupby
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.collectives.tree import Group, Phases
from wafer_jax.errors import WaferError

Op = Literal["add", "max"]
"""What a tree combines with; the fabric adds, the bulk level can take a maximum too."""

_UNROLL_UP_TO = 32
"""Members of a half-chain that are written out; longer ones become a loop."""


def reduce_tree(tiles: jax.Array, phases: Phases, axis: Axis, op: Op = "add") -> jax.Array:
    """Combine along one axis of the mesh, all groups of a phase at once.

    Args:
      tiles: [..., Y, X].
      phases: The tree on a line of that axis.
      axis: Axis of the mesh.
      op: "add" or "max".

    Returns:
      The root's tile of every line, [..., Y, 1] or [..., 1, X].

    Raises:
      WaferError: Unknown axis or op.
    """
    combine = combination(op, tiles.dtype)
    where = tiles.ndim + axis_index(axis)
    for phase in phases:
        parts, start = [], 0
        # Equal neighbours are reduced together: a phase has a handful of such runs.
        for group, run in groupby(phase):
            count = len(list(run))
            stop = start + count * group.size
            parts.append(
                _reduce_run(lax.slice_in_dim(tiles, start, stop, axis=where), group, where, combine)
            )
            start = stop
        tiles = jnp.concatenate(parts, axis=where) if len(parts) > 1 else parts[0]
    return tiles


def _reduce_run(block: jax.Array, group: Group, where: int, combine: Callable) -> jax.Array:
    """Reduce consecutive groups of one shape: axis ``where`` shrinks by the group's size."""
    if group.size == 1:
        return block
    shape = block.shape
    grouped = block.reshape(*shape[:where], -1, group.size, *shape[where + 1 :])

    def member(i: int | jax.Array) -> jax.Array:
        return lax.dynamic_index_in_dim(grouped, i, where + 1, keepdims=False)

    total = lax.index_in_dim(grouped, group.root, where + 1, keepdims=False)
    for chain in group.chains():
        total = combine(total, _pass_along(chain, member, combine))
    return total


def _pass_along(chain: range, member: Callable, combine: Callable) -> jax.Array:
    """What the last member of a half-chain sends to the root."""
    word = member(chain[0])
    if len(chain) > _UNROLL_UP_TO:
        return lax.fori_loop(
            1, len(chain), lambda i, w: combine(member(chain.start + chain.step * i), w), word
        )
    for i in chain[1:]:
        word = combine(member(i), word)
    return word


def combination(op: Op, dtype: jnp.dtype) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """What combines two words as the fabric does, 16-bit sums rounded after every addition.

    Raises:
      WaferError: An unknown op.
    """
    if op == "max":
        return jnp.maximum
    if op != "add":
        raise WaferError(f'op {op!r}: choose "add" or "max"')
    return jnp.add if dtype.itemsize > 2 else _add_rounded


def _add_rounded(a: jax.Array, b: jax.Array) -> jax.Array:
    """Add 16-bit numbers and round; a bare chain of adds may keep float32 in between."""
    return rounded(a.astype(jnp.float32) + b.astype(jnp.float32), a.dtype)


def rounded(exact: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Round float32 to 16 bits, for certain.

    A sum in the subnormal range is exact, and rounding would flush it to zero.
    """
    info = jnp.finfo(dtype)
    short = lax.reduce_precision(exact, exponent_bits=info.nexp, mantissa_bits=info.nmant)
    return jnp.where(jnp.abs(exact) < float(info.smallest_normal), exact, short).astype(dtype)
