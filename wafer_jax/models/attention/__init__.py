"""Kinds of attention layers, one file each; a new one is added to ``KINDS``.

A model's layers repeat a period of kinds. The layers of one place of the period are stacked, P of
them; a place's tiles and its cache have that leading axis, and ``layer`` [] int32 is the number in
the stack. Whoever calls a kind makes the norm before it, the residual addition after it, and holds
one ``length`` [] int32, the tokens so far, for all caches. Nothing here branches on the host by
lengths, so that sequences of several lengths can be mapped over.

A kind is a module with the following names, as `full` has them. ``cache`` is any pytree of the
kind's with a property ``capacity``, in tokens, or None without limit. ``step`` is any pytree: what
all its layers share in one call, such as the angles of RoPE, made ahead of the scan over layers.

Parameters:

- ``NAME``: Hugging Face's name of the module in a layer, such as "self_attn".
- ``parameter_shapes(config)``: shape of every parameter by its name below ``NAME``.

The dense reference, B sequences of T new tokens:

- ``Dense(config, rngs=)``, an nnx module, called as ``(x [B, T, E], cache, layer, step)``, gives
  [B, T, E] and the cache with the new tokens.
- ``dense_cache(config, batch, capacity)``: an empty cache of leaves [P, B, ...].
- ``dense_step(config, length, tokens)``: the step of so many tokens from position ``length`` on.

Values on the mesh:

- ``lay_out(read, layout)``: one layer's tiles by name in decode's layout, those of the output
  projection as "out"; ``read`` concatenates parameters by name.
- ``create_cache(layout, slots)``: an empty cache; ``slots`` tokens per row of PEs if it grows.
- ``cache_from_prefill(kept, length, slots, layout)``: the cache of a prompt's ``length`` tokens,
  from what ``prefill`` kept, stacked along P.
- ``decode_step(cache, length, layout)``: the cache with room for one more token, and the step.
- ``decode(tiles, x [Y, e], cache, layer, step, layout, k, accumulate)``: [Y * e], and the cache
  with the new token.
- ``relay(tiles, layout)``: one layer's tiles from decode's layout to prefill's.
- ``prefill(tiles, x [l, ex, Y, X], length, layout, values, k)``: [l, ex, Y, X] from an empty cache,
  and what it keeps. Token t is in row t // l; those from ``length`` on only fill the rows up.

What it costs:

- ``decode_costs(meter, layout, context)``, ``prefill_costs(meter, layout, tokens)``: the operators,
  of a token that sees ``context`` tokens, itself included, or of a whole prompt.
- ``balance_costs(meter, layout, tokens)``: one layer's cache from prefill's layout to decode's.
- ``turned_rows(layout)``: rows of the matrices that lie along another axis in prefill.

What a PE holds:

- ``decode_tiles(layout)``, ``prefill_tiles(layout)``: the weights in both layouts.
- ``vector_elements(layout)``: biases and norms, in the larger one of both layouts.
- ``cache_bytes(layout, context, size)``: the cache, of activations of ``size`` bytes.
- ``decode_elements(layout, context)``: the most activations at once, the residual stream apart.
- ``step_bytes(layout)``: the step of a token.
- ``prefill_bytes(layout, tokens, size)``: the most at once, with so many tokens per row, beside the
  residual stream and apart from products with weights.
"""

from types import ModuleType

from wafer_jax.models.attention import full, gated_delta, sliding
from wafer_jax.models.config import DecoderConfig

KINDS: dict[str, ModuleType] = {"full": full, "sliding": sliding, "gated_delta": gated_delta}
"""By the entries of ``DecoderConfig.attention``."""


def kinds_of(config: DecoderConfig) -> tuple[ModuleType, ...]:
    """The modules of one period."""
    return tuple(KINDS[name] for name in config.attention)
