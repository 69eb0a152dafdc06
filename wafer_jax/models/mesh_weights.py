"""A checkpoint as tiles on the mesh, in the layouts of `mesh_layout`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.models.feed_forward import kind_of
from wafer_jax.models.mesh_layout import LayerLayout, VocabLayout, blocks
from wafer_jax.models.mesh_tiles import cut, side_by_side
from wafer_jax.models.packed_tiles import Tiles, matrix_tiles
from wafer_jax.models.quantized.packed import Matrix, below


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """The decoder layers in decode's layout, stacked along L.

    A matrix is [L, r, R, C * c]: tiles [r, c], their rows cut over R and their columns over C. The
    axes of a tile do not lie together because a product reads row after row, each on all PEs.
    Matrices may be packed (`PackedTiles`).

    Attributes:
      qkv: [L, e, Y, X * (q + 2 kv)], queries, keys and values of a column side by side.
      out: [L, q, X, Y * e].
      feed_forward: As its kind lays it out, see `feed_forward`.
      attention_norm: [L, Y, e].
      ffn_norm: [L, Y, e].
      qkv_bias: [L, X * (q + 2 kv)], or None.
      out_bias: [L, Y * e], or None.
      qk_norm: [L, 2, 2, p, X], of queries and of keys, both halves of every RoPE pair, or None.
    """

    qkv: Tiles
    out: Tiles
    feed_forward: dict[str, Tiles]
    attention_norm: jax.Array
    ffn_norm: jax.Array
    qkv_bias: jax.Array | None = None
    out_bias: jax.Array | None = None
    qk_norm: jax.Array | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class MeshWeights:
    """A whole model on the mesh.

    Attributes:
      layers: The decoder layers.
      embedding: [1, e, Y, X * v] on the embedding's region.
      final_norm: [Y, e] on the head's region.
      head: [1, e, Y, X * v] on the head's region, or None where it is the embedding.
    """

    layers: LayerWeights
    embedding: Tiles
    final_norm: jax.Array
    head: Tiles | None


def lay_out(
    weights: Mapping[str, Matrix],
    layer: LayerLayout,
    embedding: VocabLayout,
    head: VocabLayout,
) -> MeshWeights:
    """Cut a checkpoint into tiles.

    Args:
      weights: Hugging Face name to array, projections [out, in], as in ``Checkpoint.weights`` or
        from `precision.stored_weights`.
      layer: Layout of the decoder layers.
      embedding: Layout of the embedding.
      head: Layout of the head.

    Returns:
      The tiles, matrices in the format of the weights, norms and biases in float32.
    """
    config = layer.config
    layers = [_layer(weights, f"model.layers.{i}.", layer) for i in range(config.num_layers)]
    stacks = jax.tree.map(lambda *tiles: jnp.asarray(np.stack(tiles)), *layers)
    final_norm = np.asarray(weights["model.norm.weight"], np.float32)
    return MeshWeights(
        layers=LayerWeights(**stacks),
        embedding=_vocabulary(weights["model.embed_tokens.weight"], embedding),
        final_norm=jnp.asarray(cut(final_norm, blocks(config.hidden_size, head.mesh[0]))),
        head=None if config.tie_embeddings else _vocabulary(weights["lm_head.weight"], head),
    )


def _layer(weights: Mapping[str, Matrix], prefix: str, layout: LayerLayout) -> dict[str, Any]:
    config = layout.config
    hidden = blocks(config.hidden_size, layout.mesh[0])
    queries, keys = layout.q_columns, layout.kv_columns
    qkv = side_by_side((config.q_size, queries), (config.kv_size, keys), (config.kv_size, keys))

    def read(*names: str) -> Matrix:
        return below(*(weights[prefix + name] for name in names))

    def vector(*names: str) -> np.ndarray:
        return np.asarray(read(*names), np.float32)

    def of_qkv(kind: str) -> list[str]:
        return [f"self_attn.{name}_proj.{kind}" for name in "qkv"]

    tiles: dict[str, Any] = {
        "qkv": matrix_tiles(read(*of_qkv("weight")), hidden, qkv),
        "out": matrix_tiles(read("self_attn.o_proj.weight"), queries, hidden),
        "feed_forward": kind_of(config).lay_out(
            lambda *names: read(*(f"mlp.{name}" for name in names)), layout
        ),
        "attention_norm": cut(vector("input_layernorm.weight"), hidden),
        "ffn_norm": cut(vector("post_attention_layernorm.weight"), hidden),
    }
    if config.qkv_bias:
        tiles["qkv_bias"] = cut(vector(*of_qkv("bias")), qkv).reshape(-1)
    if config.out_bias:
        tiles["out_bias"] = cut(vector("self_attn.o_proj.bias"), hidden).reshape(-1)
    if config.qk_norm:
        norms = (vector(f"self_attn.{name}_norm.weight") for name in "qk")
        tiles["qk_norm"] = np.stack([cut(norm, layout.head_index) for norm in norms])
    return tiles


def _vocabulary(matrix: Matrix, layout: VocabLayout) -> Tiles:
    """[V, E] to [1, e, Y, X * v]."""
    hidden = blocks(layout.config.hidden_size, layout.mesh[0])
    vocab = blocks(layout.config.vocab_size, layout.mesh[1])
    return jax.tree.map(lambda a: jnp.asarray(a[None]), matrix_tiles(matrix, hidden, vocab))
