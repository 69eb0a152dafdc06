"""Gated DeltaNet: attention whose memory of all tokens so far is one state per head.

The cache of a layer has the same size after any number of tokens: the state, which every token
decays, reads and updates (`rule`), and the last tokens of a short causal convolution. Three of four
layers of Qwen3.5 are of this kind.
"""

from wafer_jax.models.attention.gated_delta.costs import (
    balance_costs,
    cache_bytes,
    decode_costs,
    decode_elements,
    decode_tiles,
    prefill_bytes,
    prefill_costs,
    prefill_tiles,
    step_bytes,
    turned_rows,
    vector_elements,
)
from wafer_jax.models.attention.gated_delta.dense import (
    Dense,
    dense_cache,
    dense_step,
    parameter_shapes,
)
from wafer_jax.models.attention.gated_delta.mesh import (
    cache_from_prefill,
    create_cache,
    decode,
    decode_step,
    lay_out,
    prefill,
    relay,
)

__all__ = [
    "NAME",
    "Dense",
    "balance_costs",
    "cache_bytes",
    "cache_from_prefill",
    "create_cache",
    "decode",
    "decode_costs",
    "decode_elements",
    "decode_step",
    "decode_tiles",
    "dense_cache",
    "dense_step",
    "lay_out",
    "parameter_shapes",
    "prefill",
    "prefill_bytes",
    "prefill_costs",
    "prefill_tiles",
    "relay",
    "step_bytes",
    "turned_rows",
    "vector_elements",
]

NAME = "linear_attn"
