"""A prompt through the decoder in WaferLLM's prefill layout, tile by tile (bulk level).

The sequence lies over the rows of a region, the embedding axis over its columns. Projections are
MeshGEMMs, so activations are never transposed; the statistics of RMSNorm are small allreduces along
rows (WaferLLM, arXiv 2502.04563, section 4.1; the order of operators is that of its prefill
kernel).

The weights are those of decode, re-laid layer by layer: only those that give back the embedding
axis change the axis of their rows.

Axes: l tokens per row; L, Y, X, e, v as in `mesh_layout`.
"""

from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.collectives import allreduce_ktree
from wafer_jax.collectives.tiles import tile_matrix
from wafer_jax.models.attention import kinds_of
from wafer_jax.models.feed_forward import kind_of
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_relay import Values, hidden_columns, vector_to_hidden
from wafer_jax.models.mesh_weights import LayerWeights, MeshWeights
from wafer_jax.models.packed_tiles import column_numbers


class PrefillTiles(NamedTuple):
    """One layer's weights as its kinds take them, norms [ex, X]."""

    attention_norm: jax.Array
    attention: dict[str, Any]
    ffn_norm: jax.Array
    feed_forward: dict[str, jax.Array]


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
    weights: tuple[LayerWeights, ...],
    x: jax.Array,
    length: jax.Array,
    layout: LayerLayout,
    *,
    values: Values = "rounds",
    k: int = 2,
) -> tuple[jax.Array, tuple[Any, ...], jax.Array]:
    """A prompt through all decoder layers, from an empty cache.

    Args:
      weights: The layers, by place in the period.
      x: [l, ex, Y, X].
      length: [] int32, tokens of the prompt; what comes behind fills the rows up.
      layout: Layout of the layers.
      values: How MeshGEMM makes its values.
      k: Phases of the K-trees.

    Returns:
      [l, ex, Y, X]; by place, what its kind keeps for `MeshCache.from_prefill`; the residual stream
      after each layer [L, l, ex, Y, X].
    """
    kinds, feed_forward = kinds_of(layout.config), kind_of(layout.config).prefill

    def body(x: jax.Array, period: tuple[LayerWeights, ...]):
        kept, after = [], []
        for kind, layer in zip(kinds, period, strict=True):
            tiles = relay(layer, kind, layout)
            normed = _rms_norm(x, tiles.attention_norm, layout, k)
            attended, of_place = kind.prefill(tiles.attention, normed, length, layout, values, k)
            x = x + attended
            normed = _rms_norm(x, tiles.ffn_norm, layout, k)
            x = x + feed_forward(tiles.feed_forward, normed, layout, values, k)
            kept.append(of_place)
            after.append(x)
        return x, (tuple(kept), jnp.stack(after))

    x, (kept, after) = lax.scan(body, x, weights)
    return x, kept, after.reshape(-1, *x.shape)


def _rms_norm(x: jax.Array, weight: jax.Array, layout: LayerLayout, k: int) -> jax.Array:
    """RMSNorm of every token of [l, ex, Y, X]: local sums of squares, l words per PE to add up."""
    config = layout.config
    squares = allreduce_ktree.apply(jnp.sum(x * x, axis=1), k, "x", broadcast=False)
    scale = lax.rsqrt(squares / config.hidden_size + config.rms_norm_eps)  # [l, Y, 1]
    return x * scale[:, None] * weight[None, :, None]


def relay(layer: LayerWeights, kind: ModuleType, layout: LayerLayout) -> PrefillTiles:
    """One layer's weights from decode's layout to prefill's.

    Args:
      layer: One layer, without the axis P.
      kind: Of its attention.
      layout: Layout of the layers.

    Returns:
      What MeshGEMM takes.
    """
    return PrefillTiles(
        attention_norm=vector_to_hidden(layer.attention_norm, layout),
        attention=kind.relay(layer.attention, layout),
        ffn_norm=vector_to_hidden(layer.ffn_norm, layout),
        feed_forward=kind_of(layout.config).relay(layer.feed_forward, layout),
    )
