"""Qwen3's mixture-of-experts models: Qwen3's attention, and experts in every layer.

Source: ``modeling_qwen3_moe.py`` in transformers. Layers without experts among the others are
refused; no published checkpoint has them.
"""

from dataclasses import replace

from wafer_jax.models.config import DecoderConfig, Experts
from wafer_jax.models.config_reader import MAX_LAYERS, MAX_SIZE, ConfigReader, read_decoder, show
from wafer_jax.models.families.family import Family

_MAX_EXPERTS = 1024


def _read(read: ConfigReader) -> DecoderConfig:
    decoder = read_decoder(read, max_positions=32768, bos_token_id=None, eos_token_id=None)
    read.full_attention_everywhere(decoder.num_layers)
    bias = read.boolean("attention_bias")
    return replace(
        decoder,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=True,
        intermediate_size=read.integer("moe_intermediate_size", 1, MAX_SIZE),
        feed_forward="experts",
        experts=_read_experts(read, decoder.num_layers),
    )


def _read_experts(read: ConfigReader, num_layers: int) -> Experts:
    new, old = (read.config.get(name) for name in ("num_local_experts", "num_experts"))
    if None not in (new, old) and new != old:
        read.problems.append(f"num_local_experts={show(new)} and num_experts={show(old)} differ")
    name = "num_experts" if new is None else "num_local_experts"  # transformers 4 and 5
    count = read.integer(name, 1, _MAX_EXPERTS)
    if count * num_layers > 32 * MAX_LAYERS:
        read.problems.append(f"{name}={count} in {num_layers} layers are too many")
    return Experts(
        count=count,
        chosen=read.integer("num_experts_per_tok", 1, count),
        renormalise=read.boolean("norm_topk_prob"),
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
