"""Llama 2 and 3, Code Llama, and what else has their architecture, such as SmolLM2.

Code Llama differs in its values only (``rope_theta`` is 1e6). Source: ``modeling_llama.py`` in
transformers.
"""

from dataclasses import replace

from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.config_reader import ConfigReader, read_decoder
from wafer_jax.models.families.family import Family


def _read(read: ConfigReader) -> DecoderConfig:
    decoder = read_decoder(read, max_positions=2048, bos_token_id=1, eos_token_id=2)
    bias = read.boolean("attention_bias")
    return replace(decoder, qkv_bias=bias, out_bias=bias)


LLAMA = Family(
    model_type="llama",
    architecture="LlamaForCausalLM",
    read=_read,
    handled=frozenset({"attention_bias"}),
    must_equal={"mlp_bias": (False,), "sliding_window": (), "use_sliding_window": (False,)},
)
