"""Qwen3.5: three layers of gated DeltaNet to one of attention with gated heads; norms around zero.

Published folders are of models that see images, too: their language model is the ``text_config`` of
a wrapper. Its RoPE has sections for the axes of an image, which turn alike in text. The tensors of
the vision tower and of the layer that predicts further tokens (``mtp``) are left out. Sources:
``modeling_qwen3_5.py`` and ``modeling_qwen3_5_moe.py`` in transformers, and the files of
Qwen3.5-27B and Qwen3.5-35B-A3B.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from wafer_jax.models.config import DecoderConfig, DeltaHeads
from wafer_jax.models.config_reader import (
    MAX_LAYERS,
    MAX_SIZE,
    ConfigReader,
    read_decoder,
    read_rotary_factor,
)
from wafer_jax.models.families.expert_counts import read_experts
from wafer_jax.models.families.family import Family, Found, Wrapper
from wafer_jax.models.fused_experts import split_experts
from wafer_jax.models.quantized.stored import Parameter

_KINDS = {"linear_attention": "gated_delta", "full_attention": "full"}
_MAX_KERNEL = 64


def _read(read: ConfigReader) -> DecoderConfig:
    read.config = _for_text(read.config)
    decoder = read_decoder(
        read,
        max_positions=32768,
        bos_token_id=None,
        eos_token_id=None,
        rotary_factor=read_rotary_factor(read, default=0.25),
    )
    if read.config.get("layer_types") is None:
        interval = read.integer("full_attention_interval", 1, MAX_LAYERS, default=4)
        period = ["linear_attention"] * (interval - 1) + ["full_attention"]
        types = (period * decoder.num_layers)[: decoder.num_layers]
        read.config = {**read.config, "layer_types": types}
    bias = read.boolean("attention_bias")
    return replace(
        decoder,
        attention=read.layer_period(decoder.num_layers, _KINDS),
        delta=_read_delta(read),
        norm_offset=1.0,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm="head",
        attention_gate=True,
    )


def _read_moe(read: ConfigReader) -> DecoderConfig:
    size = read.integer("moe_intermediate_size", 1, MAX_SIZE)
    read.config = {**read.config, "intermediate_size": size}
    decoder = _read(read)
    shared = read.integer("shared_expert_intermediate_size", 1, MAX_SIZE)
    experts = replace(read_experts(read, decoder.num_layers), shared_size=shared)
    return replace(decoder, feed_forward="shared_experts", experts=experts)


def _for_text(config: Mapping[str, Any]) -> dict[str, Any]:
    """Without the sections of RoPE."""
    rope = config.get("rope_parameters")
    if not isinstance(rope, Mapping):
        return dict(config)
    plain = {name: rope[name] for name in rope if not str(name).startswith("mrope_")}
    return {**config, "rope_parameters": plain}


def _read_delta(read: ConfigReader) -> DeltaHeads:
    # Their absence is a problem already: a default that keeps it from being named twice.
    size = lambda name: read.integer(f"linear_{name}", 1, MAX_SIZE, default=1)
    heads = DeltaHeads(
        keys=size("num_key_heads"),
        values=size("num_value_heads"),
        key_dim=size("key_head_dim"),
        value_dim=size("value_head_dim"),
        kernel=read.integer("linear_conv_kernel_dim", 2, _MAX_KERNEL, default=2),
    )
    if heads.values % heads.keys:
        read.problems.append(
            f"linear_num_value_heads={heads.values} is not a multiple of "
            f"linear_num_key_heads={heads.keys}"
        )
    return heads


def _internal(found: Found, config: DecoderConfig) -> Found:
    """The language model's tensors; one of all experts is split."""
    named = (
        (name.replace("model.language_model.", "model.", 1), parameter)
        for name, parameter in found
        if not name.startswith(("mtp.", "model.visual."))
    )
    return _split(named, config)


def _split(found: Found, config: DecoderConfig) -> Iterator[tuple[str, Parameter]]:
    if config.experts is None:
        yield from found
        return
    size = config.intermediate_size
    fused = {
        "gate_up_proj": {
            "gate_proj.weight": slice(size),
            "up_proj.weight": slice(size, None),
        },
        "down_proj": {"down_proj.weight": slice(None)},
    }
    yield from split_experts(found, fused, config.experts.count, output_axis=1)


_DELTA = (
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
)
_COMMON: dict[str, Any] = {
    "handled": frozenset(
        (
            "attention_bias",
            "layer_types",
            "full_attention_interval",
            "partial_rotary_factor",
            *_DELTA,
        )
    ),
    "required": ("num_key_value_heads", "head_dim", *_DELTA),
    "ignored": frozenset(
        """mamba_ssm_dtype mtp_num_hidden_layers mtp_use_dedicated_embeddings router_aux_loss_coef
        output_router_logits""".split()
    ),
    "must_equal": {
        "attn_output_gate": (True,),
        "output_gate_type": ("swish", "silu"),
        "mlp_only_layers": ([],),
        "decoder_sparse_step": (1,),
        "norm_topk_prob": (True,),
        "use_sliding_window": (False,),
    },
    "internal": _internal,
    "head_as_stored": True,
}

QWEN3_5 = Family(
    model_type="qwen3_5_text", architecture="Qwen3_5ForCausalLM", read=_read, **_COMMON
)

_MOE = """moe_intermediate_size shared_expert_intermediate_size num_experts num_local_experts
    num_experts_per_tok""".split()
QWEN3_5_MOE = Family(
    model_type="qwen3_5_moe_text",
    architecture="Qwen3_5MoeForCausalLM",
    read=_read_moe,
    **{**_COMMON, "handled": _COMMON["handled"] | set(_MOE)},
)

_IMAGES = frozenset(
    """vision_config image_token_id video_token_id vision_start_token_id vision_end_token_id
    language_model_only""".split()
)
QWEN3_5_WRAPPER = Wrapper("qwen3_5", "Qwen3_5ForConditionalGeneration", QWEN3_5, _IMAGES)
QWEN3_5_MOE_WRAPPER = Wrapper(
    "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", QWEN3_5_MOE, _IMAGES
)
