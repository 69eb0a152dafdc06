"""GPT-OSS: sliding and full attention in turns with a sink per head, biases, clamped experts.

Source: ``modeling_gpt_oss.py`` and ``configuration_gpt_oss.py`` in transformers. Checkpoints hold
all experts of a layer in one tensor, in MXFP4 or transposed in bfloat16, with rows of gate and up
in turns.
"""

from collections.abc import Iterator
from dataclasses import replace

from wafer_jax.models.activations import ClampedSwiGLU
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.config_reader import MAX_POSITIONS, ConfigReader, read_decoder
from wafer_jax.models.families.expert_counts import read_experts
from wafer_jax.models.families.family import Arrays, Family, Found
from wafer_jax.models.fused_experts import Fused, fuse_experts, split_experts
from wafer_jax.models.quantized.stored import Parameter

_ATTENTION = {"sliding_attention": "sliding", "full_attention": "full"}  # by default in turns
_EVEN, _ODD = slice(0, None, 2), slice(1, None, 2)
_FUSED: Fused = {
    "gate_up_proj": {"gate_proj.weight": _EVEN, "up_proj.weight": _ODD},
    "gate_up_proj_bias": {"gate_proj.bias": _EVEN, "up_proj.bias": _ODD},
    "down_proj": {"down_proj.weight": slice(None)},
    "down_proj_bias": {"down_proj.bias": slice(None)},
}


def _read(read: ConfigReader) -> DecoderConfig:
    decoder = read_decoder(read, max_positions=131072, bos_token_id=None, eos_token_id=None)
    attention = read.layer_period(decoder.num_layers, _ATTENTION)
    bias = read.boolean("attention_bias")
    experts = read_experts(read, decoder.num_layers)
    if all(read.config.get(name) is None for name in ("rope_scaling", "rope_parameters")):
        read.problems.append("rope_scaling is missing")  # where YaRN would be the default
    again = read.config.get("experts_per_token")
    if again not in (None, experts.chosen):
        read.problems.append("experts_per_token and num_experts_per_tok differ")
    return replace(
        decoder,
        attention=attention,
        window=read.integer("sliding_window", 1, MAX_POSITIONS) if "sliding" in attention else None,
        sinks=True,
        qkv_bias=bias,
        out_bias=bias,
        feed_forward="experts",
        ffn_bias=True,
        activation=ClampedSwiGLU(
            alpha=read.number("swiglu_alpha", 0.0, 1e6, default=1.702),
            limit=read.number("swiglu_limit", 0.0, 1e6, default=7.0),
        ),
        experts=replace(experts, scoring="softmax_of_chosen", router_bias=True),
    )


def _internal(found: Found, config: DecoderConfig) -> Iterator[tuple[str, Parameter]]:
    """Routers are called gates, and of fused tensors the outputs are the last axis."""
    assert config.experts is not None
    renamed = ((name.replace(".mlp.router.", ".mlp.gate."), p) for name, p in found)
    return split_experts(renamed, _FUSED, config.experts.count, -1)


def _published(weights: Arrays) -> Arrays:
    renamed = {n.replace(".mlp.gate.", ".mlp.router."): w for n, w in weights.items()}
    return fuse_experts(renamed, _FUSED, -1)


GPT_OSS = Family(
    model_type="gpt_oss",
    architecture="GptOssForCausalLM",
    read=_read,
    handled=frozenset(
        """attention_bias experts_per_token layer_types num_experts num_experts_per_tok
        num_local_experts sliding_window swiglu_alpha swiglu_limit""".split()
    ),
    required=("num_key_value_heads", "head_dim", "attention_bias", "rms_norm_eps"),
    ignored=frozenset(  # of training
        "initial_context_length router_aux_loss_coef output_router_logits".split()
    ),
    internal=_internal,
    published=_published,
)
