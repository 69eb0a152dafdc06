"""Qwen3, the dense models: RMSNorm of every query and key before RoPE, heads of a given width.

Source: ``modeling_qwen3.py`` in transformers.
"""

from dataclasses import replace

from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.config_reader import ConfigReader, read_decoder
from wafer_jax.models.families.family import Family


def _read(read: ConfigReader) -> DecoderConfig:
    decoder = read_decoder(read, max_positions=32768, bos_token_id=None, eos_token_id=None)
    read.full_attention_everywhere(decoder.num_layers)
    bias = read.boolean("attention_bias")
    return replace(decoder, qkv_bias=bias, out_bias=bias, qk_norm="head")


QWEN3 = Family(
    model_type="qwen3",
    architecture="Qwen3ForCausalLM",
    read=_read,
    handled=frozenset({"attention_bias", "layer_types"}),
    required=("num_key_value_heads", "head_dim"),
    ignored=frozenset({"sliding_window", "max_window_layers"}),  # of use_sliding_window
    must_equal={"use_sliding_window": (False,)},
)
