"""Qwen2 and Qwen2.5: Llama's layers, with biases on queries, keys and values only.

Source: ``modeling_qwen2.py`` in transformers. Sliding windows are refused; no published checkpoint
turns them on.
"""

from dataclasses import replace

from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.config_reader import ConfigReader, read_decoder
from wafer_jax.models.families.family import Family


def _read(read: ConfigReader) -> DecoderConfig:
    decoder = read_decoder(read, max_positions=32768, bos_token_id=None, eos_token_id=None)
    read.full_attention_everywhere(decoder.num_layers)
    return replace(decoder, qkv_bias=True)


QWEN2 = Family(
    model_type="qwen2",
    architecture="Qwen2ForCausalLM",
    read=_read,
    handled=frozenset({"layer_types"}),
    required=("num_key_value_heads",),
    ignored=frozenset({"sliding_window", "max_window_layers"}),  # of use_sliding_window
    must_equal={"use_sliding_window": (False,), "use_mrope": (False,)},
)
