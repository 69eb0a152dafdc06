"""A prompt through the decoder in WaferLLM's prefill layout, tile by tile (bulk level).

The sequence lies over the rows of a region, the embedding axis over its columns. Projections are
MeshGEMMs, the scores a transposed one, so neither keys nor activations are ever transposed; the
statistics of RMSNorm and softmax are small allreduces along rows (WaferLLM, arXiv 2502.04563,
section 4.1; the order of operators is that of its prefill kernel). Attention runs in the columns of
each key/value head, on a mesh of its own of Y x c PEs.

The weights are those of decode, re-laid layer by layer: only o and down change the axis of their
rows.

Axes: l tokens per row, M rows of a tile, g groups of c columns, m key/value heads of a group, G
queries per key/value head, d elements of a head per PE; L, Y, X, e, q, f, v as in `mesh_layout`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.collectives import allreduce_ktree, gemm, gemm_transposed
from wafer_jax.collectives.tiles import tile_matrix
from wafer_jax.models.feed_forward import kind_of
from wafer_jax.models.mesh_heads import head_norm
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_relay import (
    Values,
    hidden_columns,
    pad,
    relay_to_columns,
    relay_to_hidden,
)
from wafer_jax.models.mesh_weights import LayerWeights, MeshWeights
from wafer_jax.models.packed_tiles import column_numbers


class PrefillTiles(NamedTuple):
    """One layer's weights as MeshGEMM takes them: [k, n, Y, X], norms [ex, X], biases [n, X].

    The norms of queries and keys are [2, 2, p, X], as in decode.
    """

    attention_norm: jax.Array
    qkv: jax.Array
    qkv_bias: jax.Array | None
    out: jax.Array
    out_bias: jax.Array | None
    ffn_norm: jax.Array
    feed_forward: dict[str, jax.Array]
    qk_norm: jax.Array | None


def embed_prompt(weights: MeshWeights, ids: jax.Array, layout: LayerLayout) -> jax.Array:
    """Embeddings of a prompt, handed to the first layer's region.

    Args:
      weights: The model.
      ids: [l * Y] int32, padded at the end with any ids.
      layout: Layout of the decoder layers.

    Returns:
      [l, ex, Y, X], token t in row t // l.
    """
    columns = column_numbers(weights.embedding, ids)[0]  # [e, Y, T]
    dense = columns.transpose(2, 1, 0).reshape(len(ids), -1)
    return tile_matrix(hidden_columns(dense, layout), layout.mesh)


def take_token(x: jax.Array, index: jax.Array, layout: LayerLayout) -> jax.Array:
    """Turn one token of [l, ex, Y, X] into decode's layout [Y, e], for the head."""
    tokens = x.shape[0]
    row = lax.dynamic_index_in_dim(x, index // tokens, 2, keepdims=False)
    token = lax.dynamic_index_in_dim(row, index % tokens, 0, keepdims=False)  # [ex, X]
    dense = token.T.reshape(-1)[: layout.config.hidden_size]
    padding = layout.mesh[0] * layout.hidden_y - dense.shape[0]
    return jnp.pad(dense, (0, padding)).reshape(layout.mesh[0], -1)


def untile_tokens(x: jax.Array, layout: LayerLayout) -> jax.Array:
    """Put [..., l, ex, Y, X] back together to [..., l * Y, E]."""
    blocks = jnp.moveaxis(x, (-2, -1), (-4, -2))  # [..., Y, l, X, ex]
    *lead, rows, tokens, width, size = blocks.shape
    return blocks.reshape(*lead, rows * tokens, width * size)[..., : layout.config.hidden_size]


def prefill_layers(
    weights: LayerWeights,
    x: jax.Array,
    layout: LayerLayout,
    *,
    values: Values = "rounds",
    k: int = 2,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """A prompt through all decoder layers, from an empty cache.

    Args:
      weights: The layers.
      x: [l, ex, Y, X].
      layout: Layout of the layers.
      values: How MeshGEMM makes its values.
      k: Phases of the K-trees.

    Returns:
      [l, ex, Y, X]; keys and values [L, l, m, d, Y, X]; the residual stream after each layer
      [L, l, ex, Y, X].
    """
    kind = kind_of(layout.config)

    def body(x: jax.Array, layer: LayerWeights):
        tiles = relay(layer, layout)
        attended, keys, v = _attention(tiles, x, layout, values, k)
        x = x + attended
        normed = _rms_norm(x, tiles.ffn_norm, layout, k)
        x = x + kind.prefill(tiles.feed_forward, normed, layout, values, k)
        return x, (keys, v, x)

    x, (keys, v, after) = lax.scan(body, x, weights)
    return x, keys, v, after


def _attention(
    tiles: PrefillTiles, x: jax.Array, layout: LayerLayout, values: Values, k: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Output of attention [l, ex, Y, X], keys and values [l, m, d, Y, X]."""
    tokens, _, *mesh = x.shape
    heads, pairs = layout.heads, layout.pairs
    qkv = gemm.apply(_rms_norm(x, tiles.attention_norm, layout, k), tiles.qkv, values=values)
    if tiles.qkv_bias is not None:
        qkv = qkv + tiles.qkv_bias[None, :, None]
    q, keys, v = jnp.split(qkv, (layout.q_x, layout.q_x + layout.kv_x), axis=1)
    rope = _rope(layout, tokens)
    q, keys = (t.reshape(tokens, heads, -1, 2, pairs, *mesh) for t in (q, keys))
    if tiles.qk_norm is not None:
        of_queries, of_keys = tiles.qk_norm
        q, keys = head_norm(q, of_queries, layout, k), head_norm(keys, of_keys, layout, k)
    q, keys = _rotate(q, *rope), _rotate(keys, *rope)[:, :, 0]
    v = v.reshape(tokens, heads, -1, *mesh)
    mixed = _mix(q, keys, v, layout, values, k)
    mixed = pad(mixed, 1, layout.contracted(layout.q_x))
    out = gemm.apply(mixed, tiles.out, values=values)
    if tiles.out_bias is not None:
        out = out + tiles.out_bias[None, :, None]
    return out, keys, v


def _mix(
    q: jax.Array, keys: jax.Array, v: jax.Array, layout: LayerLayout, values: Values, k: int
) -> jax.Array:
    """Causal attention of q [l, m, G, d, Y, X], keys and v [l, m, d, Y, X]: [l, q, Y, X].

    The group of a key/value head is a mesh of Y x c PEs. Its G queries are further rows of one
    product. Keys count in whole blocks of both axes of that mesh; padded ones are masked.
    """
    tokens, heads, group, d, rows, width = q.shape
    padded = layout.attention_rows(tokens)
    q, keys, v = (_by_group(t, layout) for t in (q, keys, v))  # [g, l, m, ..., Y, c]
    q = jnp.moveaxis(q, 1, 3).reshape(layout.groups, heads, group * tokens, d, rows, -1)
    keys, v = (pad(jnp.moveaxis(t, 1, 2), 2, padded) for t in (keys, v))
    scores = gemm_transposed.apply(q, keys, values=values) * layout.config.head_dim**-0.5
    seen = _causal(tokens, padded, scores.shape[-3], rows, layout.columns)
    seen = np.tile(seen, (group, 1, 1, 1))[None, None]
    share = _softmax(jnp.where(seen, scores, -jnp.inf), k)
    mixed = gemm.apply(share, v, values=values)  # [g, m, G l, d, Y, c]
    mixed = mixed.reshape(layout.groups, heads, group, tokens, d, rows, -1)
    mixed = jnp.moveaxis(mixed, (0, 3), (-2, 0))  # [l, m, G, d, Y, g, c]
    return pad(mixed.reshape(tokens, layout.q_x, rows, -1), 3, width)


def _rms_norm(x: jax.Array, weight: jax.Array, layout: LayerLayout, k: int) -> jax.Array:
    """RMSNorm of every token of [l, ex, Y, X]: local sums of squares, l words per PE to add up."""
    config = layout.config
    squares = allreduce_ktree.apply(jnp.sum(x * x, axis=1), k, "x", broadcast=False)
    scale = lax.rsqrt(squares / config.hidden_size + config.rms_norm_eps)  # [l, Y, 1]
    return x * scale[:, None] * weight[None, :, None]


def _softmax(scores: jax.Array, k: int) -> jax.Array:
    """Softmax of [..., M, n, Y, c] over n and c: two small allreduces along the rows."""
    top = allreduce_ktree.apply(jnp.max(scores, axis=-3), k, "x", broadcast=False, op="max")
    weights = jnp.exp(scores - jnp.expand_dims(top, -3))
    total = allreduce_ktree.apply(jnp.sum(weights, axis=-3), k, "x", broadcast=False)
    return weights / jnp.expand_dims(total, -3)


def _causal(tokens: int, padded: int, keys: int, rows: int, columns: int) -> np.ndarray:
    """[l, n, Y, c] bool: which keys each query sees.

    Query i of row y is token y l + i. Keys are numbered row by row with ``padded`` places per row,
    and cut over the columns.
    """
    query = np.arange(rows) * tokens + np.arange(tokens)[:, None]  # [l, Y]
    number = np.arange(columns) * keys + np.arange(keys)[:, None]  # [n, c]
    row, place = number // padded, number % padded
    key = np.where(place < tokens, row * tokens + place, tokens * rows)
    return key[None, :, None, :] <= query[:, None, :, None]


def _rope(layout: LayerLayout, tokens: int) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine [l, 1, 1, p, Y, X] of every pair at every token's position."""
    inverse, magnitude = (
        table.astype(np.float32)[:, None]
        for table in (layout.inverse_frequencies, layout.magnitudes)
    )
    position = np.arange(layout.mesh[0]) * tokens + np.arange(tokens)[:, None]  # [l, Y]
    angle = jnp.asarray(position[:, None, None, None, :, None].astype(np.float32) * inverse)
    magnitude = jnp.asarray(magnitude[None, None, None])
    return jnp.cos(angle) * magnitude, jnp.sin(angle) * magnitude


def _rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """RoPE on [l, m, G, 2, p, Y, X], both elements of a pair on the same PE: [l, m, G, d, Y, X]."""
    first, second = x[:, :, :, 0], x[:, :, :, 1]
    turned = (first * cos - second * sin, second * cos + first * sin)
    return jnp.concatenate(turned, axis=3)


def relay(layer: LayerWeights, layout: LayerLayout) -> PrefillTiles:
    """One layer's weights from decode's layout to prefill's.

    Args:
      layer: One layer, without the axis L.
      layout: Layout of the layers.

    Returns:
      What MeshGEMM takes.
    """
    width = layout.mesh[1]
    vector = lambda v: hidden_columns(v.reshape(1, -1), layout).reshape(width, -1).T
    bias = lambda v: None if v is None else v.reshape(width, -1).T
    return PrefillTiles(
        attention_norm=vector(layer.attention_norm),
        qkv=relay_to_columns(layer.qkv, layout),
        qkv_bias=bias(layer.qkv_bias),
        out=relay_to_hidden(layer.out, layout),
        out_bias=None if layer.out_bias is None else vector(layer.out_bias),
        ffn_norm=vector(layer.ffn_norm),
        feed_forward=kind_of(layout.config).relay(layer.feed_forward, layout),
        qk_norm=layer.qk_norm,
    )


def _by_group(tiles: jax.Array, layout: LayerLayout) -> jax.Array:
    """[..., Y, X] to [g, ..., Y, c], idle columns left out."""
    used = layout.groups * layout.columns
    grouped = tiles[..., :used].reshape(*tiles.shape[:-1], layout.groups, layout.columns)
    return jnp.moveaxis(grouped, -2, 0)
