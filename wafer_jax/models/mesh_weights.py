"""A checkpoint as tiles on the mesh, in the layouts of `mesh_layout`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.models.mesh_layout import PAD, LayerLayout, VocabLayout, blocks
from wafer_jax.models.packed_tiles import PackedTiles, Tiles, cut, cut_matrix, pack_tiles
from wafer_jax.models.quantized.packed import PackedMatrix


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
      gate_up: [L, e, Y, X * 2 f].
      down: [L, f, X, Y * e].
      attention_norm: [L, Y, e].
      ffn_norm: [L, Y, e].
      qkv_bias: [L, X * (q + 2 kv)], or None.
      out_bias: [L, Y * e], or None.
    """

    qkv: Tiles
    out: Tiles
    gate_up: Tiles
    down: Tiles
    attention_norm: jax.Array
    ffn_norm: jax.Array
    qkv_bias: jax.Array | None = None
    out_bias: jax.Array | None = None


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
    weights: Mapping[str, np.ndarray | PackedMatrix],
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
    stacks: dict[str, list[np.ndarray | PackedTiles]] = {}
    for i in range(config.num_layers):
        for name, tiles in _layer(weights, f"model.layers.{i}.", layer).items():
            stacks.setdefault(name, []).append(tiles)
    return MeshWeights(
        layers=LayerWeights(
            **{
                name: jax.tree.map(lambda *t: jnp.asarray(np.stack(t)), *tiles)
                for name, tiles in stacks.items()
            }
        ),
        embedding=_vocabulary(weights["model.embed_tokens.weight"], embedding),
        final_norm=jnp.asarray(
            cut(
                np.asarray(weights["model.norm.weight"], np.float32),
                blocks(config.hidden_size, head.mesh[0]),
            )
        ),
        head=None if config.tie_embeddings else _vocabulary(weights["lm_head.weight"], head),
    )


def _layer(
    weights: Mapping[str, np.ndarray | PackedMatrix], prefix: str, layout: LayerLayout
) -> dict[str, np.ndarray | PackedTiles]:
    config, (height, width) = layout.config, layout.mesh
    hidden, ffn = blocks(config.hidden_size, height), blocks(config.intermediate_size, width)
    queries, keys = layout.q_columns, layout.kv_columns
    qkv = _side_by_side((config.q_size, queries), (config.kv_size, keys), (config.kv_size, keys))
    gate_up = _side_by_side((config.intermediate_size, ffn), (config.intermediate_size, ffn))

    def read(*names: str) -> np.ndarray | PackedMatrix:
        return _join(*(weights[prefix + name] for name in names))

    def vector(*names: str) -> np.ndarray:
        return np.asarray(read(*names), np.float32)

    def of_qkv(kind: str) -> list[str]:
        return [f"self_attn.{name}_proj.{kind}" for name in "qkv"]

    tiles = {
        "qkv": _matrix(read(*of_qkv("weight")), hidden, qkv),
        "out": _matrix(read("self_attn.o_proj.weight"), queries, hidden),
        "gate_up": _matrix(read("mlp.gate_proj.weight", "mlp.up_proj.weight"), hidden, gate_up),
        "down": _matrix(read("mlp.down_proj.weight"), ffn, hidden),
        "attention_norm": cut(vector("input_layernorm.weight"), hidden),
        "ffn_norm": cut(vector("post_attention_layernorm.weight"), hidden),
    }
    if config.attention_bias:
        tiles["qkv_bias"] = cut(vector(*of_qkv("bias")), qkv).reshape(-1)
        tiles["out_bias"] = cut(vector("self_attn.o_proj.bias"), hidden).reshape(-1)
    return tiles


def _vocabulary(matrix: np.ndarray | PackedMatrix, layout: VocabLayout) -> Tiles:
    """[V, E] to [1, e, Y, X * v]."""
    hidden = blocks(layout.config.hidden_size, layout.mesh[0])
    vocab = blocks(layout.config.vocab_size, layout.mesh[1])
    return jax.tree.map(lambda a: jnp.asarray(a[None]), _matrix(matrix, hidden, vocab))


def _side_by_side(*parts: tuple[int, np.ndarray]) -> np.ndarray:
    """Index of several axes after one another, cut each for itself: (length, [C, c]) each."""
    columns, start = [], 0
    for length, index in parts:
        columns.append(np.where(index != PAD, index + start, PAD))
        start += length
    return np.concatenate(columns, axis=1)


def _matrix(
    weight: np.ndarray | PackedMatrix, rows: np.ndarray, columns: np.ndarray
) -> "np.ndarray | PackedTiles":
    """[out, in] to [r, R, C * c], where ``rows`` [R, r] and ``columns`` [C, c] index in and out."""
    if isinstance(weight, PackedMatrix):
        return pack_tiles(weight, rows, columns)
    return cut_matrix(weight, rows, columns)


def _join(*matrices: np.ndarray | PackedMatrix) -> np.ndarray | PackedMatrix:
    """Rows of one format below one another."""
    packed = [m for m in matrices if isinstance(m, PackedMatrix)]
    if not packed:
        return np.concatenate([m for m in matrices if isinstance(m, np.ndarray)])
    join = lambda arrays: np.concatenate(list(arrays))
    return replace(
        packed[0],
        codes=join(m.codes for m in packed),
        scales=join(m.scales for m in packed),
        offsets=None if packed[0].offsets is None else join(m.offsets for m in packed),
    )
