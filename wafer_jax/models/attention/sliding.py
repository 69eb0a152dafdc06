"""Causal attention to a window of tokens, the new one included; otherwise as `full`.

In decode the keys and values of the window lie in a ring over the rows. In prefill the scores of
all tokens are made, as `full` makes those after a token, and masked.

Axes as in `mesh_layout`; P layers of a stack, l tokens per row in prefill.
"""

from collections.abc import Iterator
from dataclasses import replace

import jax
from flax import nnx

from wafer_jax.collectives.tiles import tile_size
from wafer_jax.models.attention import decode_heads, full, head_costs
from wafer_jax.models.caches import ring
from wafer_jax.models.caches.ring import RingCache
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_relay import Values
from wafer_jax.models.operator_cost import Meter, OperatorCost

NAME = full.NAME
Weights = full.Weights
parameter_shapes = full.parameter_shapes


class Dense(full.Dense):
    """The dense reference; its cache keeps all tokens, of which it sees the window."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        super().__init__(config, rngs=rngs)
        self.window = config.window


dense_cache = full.dense_cache
dense_step = full.dense_step
lay_out = full.lay_out
relay = full.relay
create_cache = RingCache.create


def cache_from_prefill(
    kept: tuple[jax.Array, jax.Array], length: jax.Array, slots: int, layout: LayerLayout
) -> RingCache:
    """The cache of a prompt's ``length`` tokens, keys and values [P, l, m, d, Y, X] kept."""
    return RingCache.from_prefill(*kept, length, slots, layout)


def decode_step(
    cache: RingCache, length: jax.Array, layout: LayerLayout
) -> tuple[RingCache, full.Step]:
    """Token ``length`` sees itself and those before it that are in the window."""
    seen = cache.held(length + 1)
    return cache, full.Step(length, *decode_heads.angles(layout, length), seen)


decode = full.decode


def prefill(
    tiles: Weights, x: jax.Array, length: jax.Array, layout: LayerLayout, values: Values, k: int
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """A prompt's [l, ex, Y, X], normalised, to [l, ex, Y, X]; keys and values [l, m, d, Y, X]."""
    return full.prefill_within(layout.config.window, tiles, x, layout, values, k)


def decode_costs(meter: Meter, layout: LayerLayout, context: int) -> Iterator[OperatorCost]:
    """Operators of one token that so many tokens precede, itself included."""
    heads = head_costs.decode(meter, layout, _slots(layout, context))
    named = (replace(cost, operator=f"window {cost.operator}") for cost in heads)
    yield from full.costs_around(meter, layout, [ring.put_costs(meter, layout), *named])


prefill_costs = full.prefill_costs
balance_costs = ring.balance_costs
turned_rows = full.turned_rows
decode_tiles = full.decode_tiles
prefill_tiles = full.prefill_tiles
vector_elements = full.vector_elements


def cache_bytes(layout: LayerLayout, context: int, size: int) -> int:
    """Bytes per PE of the keys and values of the window, ``size`` bytes an element."""
    return head_costs.cache_bytes(layout, _slots(layout, context), size)


def decode_elements(layout: LayerLayout, context: int) -> int:
    """Elements per PE of the most that is alive at once, the residual stream apart."""
    return head_costs.decode_elements(layout, _slots(layout, context))


step_bytes = full.step_bytes
prefill_bytes = full.prefill_bytes


def _slots(layout: LayerLayout, context: int) -> int:
    """Tokens in the fullest row of the ring."""
    return tile_size(min(context, ring.window_of(layout)), layout.mesh[0])
