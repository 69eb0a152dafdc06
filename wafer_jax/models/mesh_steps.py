"""What is compiled of a model on the mesh: a prompt, one token, and one token of every slot.

A batch is what one sequence does, mapped over slots: caches have a leading axis B and their lengths
differ, the weights are shared, so that a product reads every row of a tile once for all sequences.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.compilation import compiled
from wafer_jax.models import mesh_decode, mesh_prefill
from wafer_jax.models.mesh_cache import MeshCache
from wafer_jax.models.mesh_layout import LayerLayout, VocabLayout
from wafer_jax.models.mesh_products import Accumulate
from wafer_jax.models.mesh_relay import Values
from wafer_jax.models.mesh_weights import MeshWeights


@dataclass(frozen=True)
class Plan:
    """What the compiled functions are specialised on.

    Attributes:
      layer: Layout of the layers.
      embedding: Layout of the embedding.
      head: Layout of the head.
      values: How prefill's products are made.
      k: Phases of the K-trees.
      accumulate: What decode's products are summed in.
      slots: Tokens per row of PEs that a growing cache from prefill holds.
    """

    layer: LayerLayout
    embedding: VocabLayout
    head: VocabLayout
    values: Values
    k: int
    accumulate: Accumulate
    slots: int = 1


def run(step: Callable, plan: Plan, *args):
    """Call one of the functions below, compiled once per plan and shapes."""
    height, width = plan.layer.mesh
    name = step.__name__.replace("_", " ")
    return compiled(f"{name} on {height}x{width} PEs", step, (plan,), *args)[0](*args)


@partial(jax.jit, static_argnums=0)
def prefill(
    plan: Plan, weights: MeshWeights, ids: jax.Array, length: jax.Array
) -> tuple[jax.Array, MeshCache, jax.Array]:
    """A prompt from an empty cache.

    Args:
      plan: What this is specialised on.
      weights: The model.
      ids: [l * Y] int32, filled up at the end.
      length: [] int32, tokens of the prompt.

    Returns:
      Logits [V] after it, the cache, and the residual stream [L + 1, l * Y, E].
    """
    start = mesh_prefill.embed_prompt(weights, ids, plan.layer)
    x, kept, after = mesh_prefill.prefill_layers(
        weights.layers, start, length, plan.layer, values=plan.values, k=plan.k
    )
    cache = MeshCache.from_prefill(kept, length, plan.slots, plan.layer)
    last = mesh_prefill.take_token(x, length - 1, plan.layer)
    logits = mesh_decode.score_vocabulary(weights, last, plan.head, plan.k)
    hidden = mesh_prefill.untile_tokens(jnp.concatenate([start[None], after]), plan.layer)
    return logits, cache, hidden


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def decode(
    plan: Plan, weights: MeshWeights, cache: MeshCache, token: jax.Array
) -> tuple[jax.Array, MeshCache, jax.Array]:
    """One token [] int32: logits [V], the cache with it, the residual stream [L + 1, 1, E]."""
    start = mesh_decode.embed(weights, token, plan.layer)
    x, cache, after = mesh_decode.decode_layers(
        weights.layers, start, cache, plan.layer, plan.k, plan.accumulate
    )
    logits = mesh_decode.score_vocabulary(weights, x, plan.head, plan.k, plan.accumulate)
    hidden = jnp.concatenate([start[None], after])
    flat = hidden.reshape(hidden.shape[0], 1, -1)[..., : plan.layer.config.hidden_size]
    return logits, cache, flat


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def decode_batch(
    plan: Plan, weights: MeshWeights, caches: MeshCache, tokens: jax.Array
) -> tuple[jax.Array, MeshCache]:
    """One token of every slot.

    Args:
      plan: What this is specialised on.
      weights: The model.
      caches: Every leaf with a leading axis B.
      tokens: [B] int32.

    Returns:
      Logits [B, V], and the caches with the tokens.
    """
    logits, caches, _ = jax.vmap(partial(decode, plan, weights))(caches, tokens)
    return logits, caches


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def decode_some(
    plan: Plan, weights: MeshWeights, caches: MeshCache, tokens: jax.Array, active: jax.Array
) -> tuple[jax.Array, MeshCache]:
    """`decode_batch`, but slots that are not ``active`` [B] bool keep their caches to the bit."""
    logits, longer = decode_batch(plan, weights, caches, tokens)

    def keep(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(active.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return logits, jax.tree.map(keep, longer, caches)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def fill(plan: Plan, caches: MeshCache, cache: MeshCache, slot: jax.Array) -> MeshCache:
    """Put one sequence's cache into a slot [] int32; nothing of what was there stays."""
    put = lambda all_, one: lax.dynamic_update_index_in_dim(all_, one, slot, 0)
    return jax.tree.map(put, caches, cache)
