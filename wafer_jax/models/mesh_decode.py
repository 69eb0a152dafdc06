"""One token through the decoder in WaferLLM's decode layout, tile by tile (bulk level).

The embedding axis lies over the rows of a region and is replicated over its columns, and
projections alternate the axis over which they reduce (WaferLLM, arXiv 2502.04563, section 4.2; the
order of operators is that of its decode kernel). A vector that is replicated along an axis of the
mesh is held once.

All sums across PEs are K-tree allreduces with the fabric's order of additions, and a projection
gives bit for bit what `gemv.apply` gives on the same tiles (of two rows or more).

Axes: L layers; Y, X, e, v as in `mesh_layout`.
"""

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.collectives.tiles import tile_size
from wafer_jax.models.attention import kinds_of
from wafer_jax.models.feed_forward import kind_of
from wafer_jax.models.mesh_cache import MeshCache
from wafer_jax.models.mesh_layout import LayerLayout, VocabLayout
from wafer_jax.models.mesh_products import Accumulate, project, rms_norm
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
    weights: tuple[LayerWeights, ...],
    x: jax.Array,
    cache: MeshCache,
    layout: LayerLayout,
    k: int = 2,
    accumulate: Accumulate = "float32",
) -> tuple[jax.Array, MeshCache, jax.Array]:
    """One token through all decoder layers.

    Args:
      weights: The layers, by place in the period.
      x: [Y, e], the token's embedding.
      cache: Earlier tokens; must have room for one more.
      layout: Layout of the layers.
      k: Phases of the K-trees.
      accumulate: What products are summed in; norms and softmax always sum in float32.

    Returns:
      [Y, e]; the cache with the new token; [L, Y, e], the residual stream after each layer.
    """
    config, kinds = layout.config, kinds_of(layout.config)
    norm = lambda x, weight: rms_norm(x, weight, config.hidden_size, config.rms_norm_eps, k)
    feed_forward = kind_of(config).decode
    before = zip(kinds, cache.layers, strict=True)
    with_room = [kind.decode_step(of_place, cache.length, layout) for kind, of_place in before]
    caches, steps = zip(*with_room, strict=True)

    def body(carry: tuple[jax.Array, tuple], layer: jax.Array):
        x, caches = carry
        longer, after = [], []
        for kind, tiles, of_place, step in zip(kinds, weights, caches, steps, strict=True):
            normed = norm(x, tiles.attention_norm[layer])
            attended, of_place = kind.decode(
                tiles.attention, normed, of_place, layer, step, layout, k, accumulate
            )
            x = x + attended.reshape(x.shape)
            normed = norm(x, tiles.ffn_norm[layer])
            out = feed_forward(tiles.feed_forward, normed, layer, layout, k, accumulate)
            x = x + out.reshape(x.shape)
            longer.append(of_place)
            after.append(x)
        return (x, tuple(longer)), jnp.stack(after)

    order = jnp.arange(config.periods, dtype=jnp.int32)
    (x, caches), after = lax.scan(body, (x, caches), order)
    return x, MeshCache(layers=caches, length=cache.length + 1), after.reshape(-1, *x.shape)
