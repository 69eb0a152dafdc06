"""A checkpoint as tiles on the mesh, in the layouts of `mesh_layout`."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.models.mesh_layout import PAD, LayerLayout, VocabLayout, blocks


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """The decoder layers in decode's layout, stacked along L.

    A matrix is [L, r, R, C * c]: tiles [r, c], their rows cut over R and their columns over C. The
    axes of a tile do not lie together because a product reads row after row, each on all PEs.

    Attributes:
      qkv: [L, e, Y, X * (q + 2 kv)], queries, keys and values of a column side by side.
      out: [L, q, X, Y * e].
      gate_up: [L, e, Y, X * 2 f].
      down: [L, f, X, Y * e].
      attention_norm: [L, Y, e].
      ffn_norm: [L, Y, e].
      qkv_bias: [L, X * (q + 2 kv)], or None.
      out_bias: [L, Y * e], or None.
      qk_norm: [L, 2, 2, p, X], of queries and of keys, both halves of every RoPE pair, or None.
    """

    qkv: jax.Array
    out: jax.Array
    gate_up: jax.Array
    down: jax.Array
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
    embedding: jax.Array
    final_norm: jax.Array
    head: jax.Array | None


def lay_out(
    weights: Mapping[str, np.ndarray],
    layer: LayerLayout,
    embedding: VocabLayout,
    head: VocabLayout,
) -> MeshWeights:
    """Cut a checkpoint into tiles.

    Args:
      weights: Hugging Face name to array, projections [out, in], as in ``Checkpoint.weights``.
      layer: Layout of the decoder layers.
      embedding: Layout of the embedding.
      head: Layout of the head.

    Returns:
      The tiles, float32.
    """
    config = layer.config
    stacks: dict[str, list[np.ndarray]] = {}
    for i in range(config.num_layers):
        for name, tiles in _layer(weights, f"model.layers.{i}.", layer).items():
            stacks.setdefault(name, []).append(tiles)
    return MeshWeights(
        layers=LayerWeights(**{name: jnp.asarray(np.stack(t)) for name, t in stacks.items()}),
        embedding=_vocabulary(weights["model.embed_tokens.weight"], embedding),
        final_norm=jnp.asarray(
            _cut(weights["model.norm.weight"], blocks(config.hidden_size, head.mesh[0]))
        ),
        head=None if config.tie_embeddings else _vocabulary(weights["lm_head.weight"], head),
    )


def _layer(
    weights: Mapping[str, np.ndarray], prefix: str, layout: LayerLayout
) -> dict[str, np.ndarray]:
    config, (height, width) = layout.config, layout.mesh
    hidden, ffn = blocks(config.hidden_size, height), blocks(config.intermediate_size, width)
    queries, keys = layout.q_columns, layout.kv_columns
    qkv = _side_by_side((config.q_size, queries), (config.kv_size, keys), (config.kv_size, keys))
    gate_up = _side_by_side((config.intermediate_size, ffn), (config.intermediate_size, ffn))

    def read(*names: str) -> np.ndarray:
        return np.concatenate([weights[prefix + name] for name in names]).astype(np.float32)

    def of_qkv(kind: str) -> np.ndarray:
        return read(*(f"self_attn.{name}_proj.{kind}" for name in "qkv"))

    tiles = {
        "qkv": _matrix(of_qkv("weight"), hidden, qkv),
        "out": _matrix(read("self_attn.o_proj.weight"), queries, hidden),
        "gate_up": _matrix(read("mlp.gate_proj.weight", "mlp.up_proj.weight"), hidden, gate_up),
        "down": _matrix(read("mlp.down_proj.weight"), ffn, hidden),
        "attention_norm": _cut(read("input_layernorm.weight"), hidden),
        "ffn_norm": _cut(read("post_attention_layernorm.weight"), hidden),
    }
    if config.qkv_bias:
        tiles["qkv_bias"] = _cut(of_qkv("bias"), qkv).reshape(-1)
    if config.out_bias:
        tiles["out_bias"] = _cut(read("self_attn.o_proj.bias"), hidden).reshape(-1)
    if config.qk_norm:
        norms = (read(f"self_attn.{name}_norm.weight") for name in "qk")
        tiles["qk_norm"] = np.stack([_cut(norm, layout.head_index) for norm in norms])
    return tiles


def _vocabulary(matrix: np.ndarray, layout: VocabLayout) -> jax.Array:
    """[V, E] to [1, e, Y, X * v]."""
    hidden = blocks(layout.config.hidden_size, layout.mesh[0])
    vocab = blocks(layout.config.vocab_size, layout.mesh[1])
    return jnp.asarray(_matrix(matrix.astype(np.float32, copy=False), hidden, vocab)[None])


def _side_by_side(*parts: tuple[int, np.ndarray]) -> np.ndarray:
    """Index of several axes after one another, cut each for itself: (length, [C, c]) each."""
    columns, start = [], 0
    for length, index in parts:
        columns.append(np.where(index != PAD, index + start, PAD))
        start += length
    return np.concatenate(columns, axis=1)


def _matrix(weight: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """[out, in] to [r, R, C * c], where ``rows`` [R, r] and ``columns`` [C, c] index in and out."""
    tiles = _cut(_cut(weight, columns.reshape(-1)).T, rows.T)
    return np.ascontiguousarray(tiles)


def _cut(array: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Take along the first axis, zero where the index is PAD."""
    taken = array[index]  # PAD is a valid index, of the last element
    taken[index == PAD] = 0
    return taken
