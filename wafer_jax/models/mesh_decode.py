"""One token through the decoder in WaferLLM's decode layout, tile by tile (bulk level).

The embedding axis lies over the rows of a region and is replicated over its columns, projections
alternate the axis over which they reduce, and the KV cache lies over the rows: every row holds a
run of consecutive tokens (WaferLLM, arXiv 2502.04563, sections 4.2 and 4.3; the order of operators
is that of its decode kernel). A vector that is replicated along an axis of the mesh is held once.

All sums across PEs are K-tree allreduces with the fabric's order of additions, and a projection
gives bit for bit what `gemv.apply` gives on the same tiles (of two rows or more).

Axes: L layers, S slots of a row, m key/value heads of a column's group, G queries per key/value
head, p RoPE pairs, d = 2 p; g groups of c columns; Y, X, R, C, e, q, f, v as in `mesh_layout`.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.collectives import allreduce_ktree, kv_shift
from wafer_jax.collectives.tiles import tile_size
from wafer_jax.models.feed_forward import kind_of
from wafer_jax.models.mesh_cache import MeshCache
from wafer_jax.models.mesh_heads import head_norm, over_columns, sum_in_groups
from wafer_jax.models.mesh_layout import LayerLayout, VocabLayout
from wafer_jax.models.mesh_products import Accumulate, loop, multiply_add, project, rms_norm
from wafer_jax.models.mesh_weights import LayerWeights, MeshWeights
from wafer_jax.models.packed_tiles import column_numbers


def embed(weights: MeshWeights, token: jax.Array, layer: LayerLayout) -> jax.Array:
    """The token's column of the embedding, handed to the first layer's region.

    Args:
      weights: The model.
      token: [] int32.
      layer: Layout of the decoder layers.

    Returns:
      [Y, e].
    """
    column = column_numbers(weights.embedding, token[None])[0, :, :, 0]
    return hand_over(column.T, layer.config.hidden_size, layer.mesh[0])


def hand_over(x: jax.Array, size: int, rows: int) -> jax.Array:
    """Cut a vector [Y, e] of ``size`` elements anew over the rows of another region."""
    if x.shape[0] == rows:
        return x
    flat = x.reshape(-1)[:size]
    per_row = tile_size(size, rows)
    return jnp.pad(flat, (0, rows * per_row - size)).reshape(rows, per_row)


def score_vocabulary(
    weights: MeshWeights,
    x: jax.Array,
    layout: VocabLayout,
    k: int = 2,
    accumulate: Accumulate = "float32",
) -> jax.Array:
    """Final norm and head on the head's region.

    Args:
      weights: The model.
      x: [Y, e] on the last layer's region.
      layout: Layout of the head.
      k: Phases of the K-trees.
      accumulate: What the product is summed in.

    Returns:
      [V] float32.
    """
    config = layout.config
    x = hand_over(x, config.hidden_size, layout.mesh[0])
    x = rms_norm(x, weights.final_norm, config.hidden_size, config.rms_norm_eps, k)
    head = weights.embedding if weights.head is None else weights.head
    return project(x, head, jnp.int32(0), k, accumulate)[: config.vocab_size]


def decode_layers(
    weights: LayerWeights,
    x: jax.Array,
    cache: MeshCache,
    layout: LayerLayout,
    k: int = 2,
    accumulate: Accumulate = "float32",
) -> tuple[jax.Array, MeshCache, jax.Array]:
    """One token through all decoder layers.

    Args:
      weights: The layers.
      x: [Y, e], the token's embedding.
      cache: Earlier tokens; must have room for one more.
      layout: Layout of the layers.
      k: Phases of the K-trees.
      accumulate: What products are summed in; norms and softmax always sum in float32.

    Returns:
      [Y, e]; the cache with the new token; [L, Y, e], the residual stream after each layer.
    """
    position = cache.length
    rope = _rope(layout, position)
    cache = cache.make_room()
    seen = kv_shift.held(position + 1, cache.slots, layout.mesh[0]) >= 0  # [S, Y]

    def body(carry: tuple[jax.Array, MeshCache], layer: jax.Array):
        x, cache = carry
        x, cache = _attention(weights, x, cache, layer, layout, rope, seen, k, accumulate)
        x = _feed_forward(weights, x, layer, layout, k, accumulate)
        return (x, cache), x

    order = jnp.arange(layout.config.num_layers, dtype=jnp.int32)
    (x, cache), after = lax.scan(body, (x, cache), order)
    return x, replace(cache, length=position + 1), after


def _attention(
    weights: LayerWeights,
    x: jax.Array,
    cache: MeshCache,
    layer: jax.Array,
    layout: LayerLayout,
    rope: tuple[jax.Array, jax.Array],
    seen: jax.Array,
    k: int,
    accumulate: Accumulate,
) -> tuple[jax.Array, MeshCache]:
    config, (rows, width) = layout.config, layout.mesh
    norm = weights.attention_norm[layer]
    normed = rms_norm(x, norm, config.hidden_size, config.rms_norm_eps, k)
    qkv = project(normed, weights.qkv, layer, k, accumulate)
    if weights.qkv_bias is not None:
        qkv = qkv + weights.qkv_bias[layer]
    tiles = qkv.reshape(width, -1).T  # [q + 2 kv, X]
    q, key, value = jnp.split(tiles, (layout.q_x, layout.q_x + layout.kv_x))
    heads, pairs = layout.heads, layout.pairs
    q, key = (t.reshape(heads, -1, 2, pairs, 1, width) for t in (q, key))
    if weights.qk_norm is not None:
        of_queries, of_keys = weights.qk_norm[layer]
        q, key = head_norm(q, of_queries, layout, k), head_norm(key, of_keys, layout, k)
    q, key = _rotate(q[..., 0, :], *rope), _rotate(key[..., 0, :], *rope)
    cache = cache.put(key[:, 0], value.reshape(heads, -1, width), layer)
    keys = lax.dynamic_index_in_dim(cache.keys, layer, keepdims=False)  # [S, m, d, Y, X]
    values = lax.dynamic_index_in_dim(cache.values, layer, keepdims=False)

    # A PE's part of the scores, summed over the columns of its group.
    scores = _scores(q.astype(accumulate), keys)
    scores = sum_in_groups(scores, layout, k).astype(jnp.float32)  # [S, m, G, Y, g]
    scores = jnp.where(seen[:, None, None, :, None], scores * config.head_dim**-0.5, -jnp.inf)
    share = _softmax(scores, k)  # [S, m, G, Y, g]
    share = over_columns(share, layout)  # [S, m, G, Y, X]
    mixed = _mix(share.astype(accumulate), values)  # [m, G, d, Y, X]
    mixed = allreduce_ktree.apply(mixed, k, "y", broadcast=False).reshape(layout.q_x, width)
    out = project(mixed.T, weights.out, layer, k, accumulate)
    if weights.out_bias is not None:
        out = out + weights.out_bias[layer]
    return x + out.reshape(rows, -1), cache


def _feed_forward(
    weights: LayerWeights,
    x: jax.Array,
    layer: jax.Array,
    layout: LayerLayout,
    k: int,
    accumulate: Accumulate,
) -> jax.Array:
    config = layout.config
    norm = weights.ffn_norm[layer]
    normed = rms_norm(x, norm, config.hidden_size, config.rms_norm_eps, k)
    out = kind_of(config).decode(weights.feed_forward, normed, layer, layout, k, accumulate)
    return x + out.reshape(x.shape)


def _rope(layout: LayerLayout, position: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine [p, X] of every pair at one position."""
    angle = position.astype(jnp.float32) * jnp.asarray(layout.inverse_frequencies, jnp.float32)
    magnitude = jnp.asarray(layout.magnitudes, jnp.float32)
    return jnp.cos(angle) * magnitude, jnp.sin(angle) * magnitude


def _rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """RoPE on [m, G, 2, p, X], both elements of a pair on the same PE; [m, G, 2 p, X]."""
    first, second = x[:, :, 0], x[:, :, 1]
    cos, sin = cos[None, None], sin[None, None]
    turned = (first * cos - second * sin, second * cos + first * sin)
    return jnp.concatenate(turned, axis=2)


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


def _softmax(scores: jax.Array, k: int) -> jax.Array:
    """Softmax of [S, m, G, Y, g] over S and Y: two small allreduces along the columns."""
    top = allreduce_ktree.apply(jnp.max(scores, axis=0), k, "y", broadcast=False, op="max")
    weights = jnp.exp(scores - top[None])
    total = allreduce_ktree.apply(jnp.sum(weights, axis=0), k, "y", broadcast=False)
    return weights / total[None]
