"""A checkpoint as tiles on the mesh, in the layouts of `mesh_layout`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.models.attention import kinds_of
from wafer_jax.models.feed_forward import kind_of
from wafer_jax.models.mesh_layout import LayerLayout, VocabLayout, blocks
from wafer_jax.models.mesh_tiles import cut
from wafer_jax.models.packed_tiles import Tiles, matrix_tiles
from wafer_jax.models.quantized.packed import Matrix
from wafer_jax.models.quantized.packed import below as concatenate


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class LayerWeights:
    """Layers in decode's layout, those of one place in the period stacked along P.

    A matrix is [P, r, R, C * c]: tiles [r, c], their rows cut over R and their columns over C. The
    axes of a tile do not lie together because a product reads row after row, each on all PEs.
    Matrices may be packed (`PackedTiles`).

    Attributes:
      attention: As its kind lays it out, see `attention`.
      feed_forward: As its kind lays it out, see `feed_forward`.
      attention_norm: [P, Y, e].
      ffn_norm: [P, Y, e].
    """

    attention: dict[str, Any]
    feed_forward: dict[str, Any]
    attention_norm: jax.Array
    ffn_norm: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class MeshWeights:
    """A whole model on the mesh.

    Attributes:
      layers: The decoder layers, by place in the period.
      embedding: [1, e, Y, X * v] on the embedding's region.
      final_norm: [Y, e] on the head's region.
      head: [1, e, Y, X * v] on the head's region, or None where it is the embedding.
    """

    layers: tuple[LayerWeights, ...]
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
    layers = [_layer(weights, f"model.layers.{i}.", i, layer) for i in range(config.num_layers)]
    period = len(config.attention)
    stacks = (_stack(layers[place::period]) for place in range(period))
    final_norm = np.asarray(weights["model.norm.weight"], np.float32) + config.norm_offset
    return MeshWeights(
        layers=tuple(LayerWeights(**stack) for stack in stacks),
        embedding=_vocabulary(weights["model.embed_tokens.weight"], embedding),
        final_norm=jnp.asarray(cut(final_norm, blocks(config.hidden_size, head.mesh[0]))),
        head=None if config.tie_embeddings else _vocabulary(weights["lm_head.weight"], head),
    )


def _stack(layers: list[dict[str, Any]]) -> dict[str, Any]:
    return jax.tree.map(lambda *tiles: jnp.asarray(np.stack(tiles)), *layers)


def _layer(
    weights: Mapping[str, Matrix], prefix: str, number: int, layout: LayerLayout
) -> dict[str, Any]:
    config = layout.config
    hidden = blocks(config.hidden_size, layout.mesh[0])
    attention = kinds_of(config)[number % len(config.attention)]

    def below(module: str) -> Callable[..., Matrix]:
        return lambda *names: concatenate(*(weights[f"{prefix}{module}.{name}"] for name in names))

    def norm(name: str) -> np.ndarray:
        weight = np.asarray(weights[f"{prefix}{name}.weight"], np.float32)
        return cut(weight + config.norm_offset, hidden)

    return {
        "attention": attention.lay_out(below(attention.NAME), layout),
        "feed_forward": kind_of(config).lay_out(below("mlp"), layout),
        "attention_norm": norm("input_layernorm"),
        "ffn_norm": norm("post_attention_layernorm"),
    }


def _vocabulary(matrix: Matrix, layout: VocabLayout) -> Tiles:
    """[V, E] to [1, e, Y, X * v]."""
    hidden = blocks(layout.config.hidden_size, layout.mesh[0])
    vocab = blocks(layout.config.vocab_size, layout.mesh[1])
    return jax.tree.map(lambda a: jnp.asarray(a[None]), matrix_tiles(matrix, hidden, vocab))
