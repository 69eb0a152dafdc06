"""Attention of one token within the columns that hold a key/value head and its queries (decode).

All sums across PEs are K-tree allreduces with the fabric's order of additions; a vector that is
replicated along an axis of the mesh is held once.

Axes: S slots of a row, m key/value heads of a column's group, G queries per key/value head, p RoPE
pairs, d = 2 p; g groups of c columns; Y, X, q as in `mesh_layout`.
"""

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.collectives import allreduce_ktree
from wafer_jax.models.mesh_heads import over_columns, sum_in_groups
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_products import Accumulate, loop, multiply_add


def angles(layout: LayerLayout, position: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine [p, X] of every pair at one position."""
    angle = position.astype(jnp.float32) * jnp.asarray(layout.inverse_frequencies, jnp.float32)
    magnitude = jnp.asarray(layout.magnitudes, jnp.float32)
    return jnp.cos(angle) * magnitude, jnp.sin(angle) * magnitude


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """RoPE on [m, G, 2, p, X], both elements of a pair on the same PE; [m, G, 2 p, X]."""
    first, second = x[:, :, 0], x[:, :, 1]
    cos, sin = cos[None, None], sin[None, None]
    turned = (first * cos - second * sin, second * cos + first * sin)
    return jnp.concatenate(turned, axis=2)


def scores_of(
    q: jax.Array, keys: jax.Array, layout: LayerLayout, k: int, accumulate: Accumulate
) -> jax.Array:
    """Scaled q . k of [m, G, d, X] and [S, m, d, Y, X]: [S, m, G, Y, g] float32.

    A PE's part of the scores is summed over the columns of its group.
    """
    scores = sum_in_groups(_scores(q.astype(accumulate), keys), layout, k).astype(jnp.float32)
    return scores * layout.config.head_dim**-0.5


def softmax(scores: jax.Array, seen: jax.Array, sinks: jax.Array | None, k: int) -> jax.Array:
    """Softmax of [S, m, G, Y, g] over S and Y where [S, Y] is seen: two allreduces along Y.

    The sinks [m, G, g] are one logit more, which every PE adds to what the allreduces gave.
    """
    scores = jnp.where(seen[:, None, None, :, None], scores, -jnp.inf)
    top = allreduce_ktree.apply(jnp.max(scores, axis=0), k, "y", broadcast=False, op="max")
    if sinks is not None:
        top = jnp.maximum(top, sinks[:, :, None])
    weights = jnp.exp(scores - top[None])
    total = allreduce_ktree.apply(jnp.sum(weights, axis=0), k, "y", broadcast=False)
    if sinks is not None:
        total = total + jnp.exp(sinks[:, :, None] - top)
    return weights / total[None]


def mix(
    share: jax.Array, values: jax.Array, layout: LayerLayout, k: int, accumulate: Accumulate
) -> jax.Array:
    """Sum of values [S, m, d, Y, X] by shares [S, m, G, Y, g]: [q, X]."""
    share = over_columns(share, layout)  # [S, m, G, Y, X]
    mixed = _mix(share.astype(accumulate), values)  # [m, G, d, Y, X]
    mixed = allreduce_ktree.apply(mixed, k, "y", broadcast=False)
    return mixed.reshape(layout.q_x, layout.mesh[1])


def _scores(q: jax.Array, keys: jax.Array) -> jax.Array:
    """Local q . k of [m, G, d, X] and [S, m, d, Y, X]: [S, m, G, Y, X]."""

    def body(i: jax.Array, acc: jax.Array) -> jax.Array:
        part = lax.dynamic_index_in_dim(keys, i, 2)
        return multiply_add(acc, lax.dynamic_index_in_dim(q, i, 2)[None], part)

    slots, heads, d, rows, width = keys.shape
    start = jnp.zeros((slots, heads, q.shape[1], rows, width), q.dtype)
    return loop(d, body, start)


def _mix(share: jax.Array, values: jax.Array) -> jax.Array:
    """Local sum over S of [S, m, G, Y, X] times [S, m, d, Y, X]: [m, G, d, Y, X]."""

    def body(i: jax.Array, acc: jax.Array) -> jax.Array:
        weight = lax.dynamic_index_in_dim(share, i, keepdims=False)
        value = lax.dynamic_index_in_dim(values, i, keepdims=False)
        return multiply_add(acc, weight[:, :, None], value[:, None])

    slots, heads, group, rows, width = share.shape
    start = jnp.zeros((heads, group, values.shape[2], rows, width), share.dtype)
    return loop(slots, body, start)
