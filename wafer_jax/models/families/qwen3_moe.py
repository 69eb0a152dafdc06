"""Qwen3's mixture-of-experts models: Qwen3's attention, and experts in every layer.

Source: ``modeling_qwen3_moe.py`` in transformers. Layers without experts among the others are
refused; no published checkpoint has them.
"""

from dataclasses import replace

from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.config_reader import MAX_SIZE, ConfigReader, read_decoder
from wafer_jax.models.families.expert_counts import read_experts
from wafer_jax.models.families.family import Family


def _read(read: ConfigReader) -> DecoderConfig:
    decoder = read_decoder(read, max_positions=32768, bos_token_id=None, eos_token_id=None)
    read.full_attention_everywhere(decoder.num_layers)
    bias = read.boolean("attention_bias")
    experts = read_experts(read, decoder.num_layers)
    return replace(
        decoder,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm="head",
        intermediate_size=read.integer("moe_intermediate_size", 1, MAX_SIZE),
        feed_forward="experts",
        experts=replace(experts, renormalise=read.boolean("norm_topk_prob")),
    )


QWEN3_MOE = Family(
    model_type="qwen3_moe",
    architecture="Qwen3MoeForCausalLM",
    read=_read,
    handled=frozenset(
        """attention_bias layer_types moe_intermediate_size num_experts num_local_experts
        num_experts_per_tok norm_topk_prob""".split()
    ),
    required=("num_key_value_heads", "head_dim", "norm_topk_prob"),
    ignored=frozenset(  # of use_sliding_window, and of training
        "sliding_window max_window_layers router_aux_loss_coef output_router_logits".split()
    ),
    must_equal={
        "use_sliding_window": (False,),
        "decoder_sparse_step": (1,),
        "mlp_only_layers": ([],),
    },
)
