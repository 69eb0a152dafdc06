"""MiniMax-M2: experts chosen by sigmoids, RMSNorm over all queries and all keys, partial RoPE.

Source: ``modeling_minimax_m2.py`` and ``configuration_minimax_m2.py`` in transformers. The modules
that predict several tokens at once (MTP) lie behind the last layer of a checkpoint; they draft
tokens and do not change the logits.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.config_reader import (
    MAX_SIZE,
    ConfigReader,
    read_decoder,
    read_rotary_factor,
    show,
)
from wafer_jax.models.families.expert_counts import read_experts
from wafer_jax.models.families.family import Arrays, Family, Found
from wafer_jax.models.parameters import parameter_shapes
from wafer_jax.models.quantized.stored import Parameter

_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_MTP_MODULES = 3
_PROJECTIONS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_EXPERT = re.compile(r"\.experts\.(\d+)\.(w[123])\.")


def _read(read: ConfigReader) -> DecoderConfig:
    decoder = read_decoder(
        read,
        max_positions=196608,
        bos_token_id=200034,
        eos_token_id=200020,
        rotary_factor=_rotary_factor(read),
    )
    _check_attention(read, decoder.num_layers)
    return replace(
        decoder,
        qk_norm="all",
        feed_forward="experts",
        experts=replace(read_experts(read, decoder.num_layers), scoring="sigmoid"),
    )


def _rotary_factor(read: ConfigReader) -> float:
    """``rotary_dim`` of ``head_dim`` as released files have it, beside or instead of the factor."""
    given, head_dim = read.config.get("rotary_dim"), read.config.get("head_dim")
    if given is None or type(head_dim) is not int:
        return read_rotary_factor(read)
    rotary_dim = read.integer("rotary_dim", 2, min(max(head_dim, 2), MAX_SIZE))
    factor = read_rotary_factor(read, default=rotary_dim / head_dim)
    if int(factor * head_dim) != rotary_dim:
        read.problems.append(f"rotary_dim={show(given)} and partial_rotary_factor={factor} differ")
    return factor


def _check_attention(read: ConfigReader, num_layers: int) -> None:
    """RoPE of a given base, and full attention, a one in ``attn_type_list``, in every layer."""
    nested = read.config.get("rope_parameters")
    theta = nested.get("rope_theta") if isinstance(nested, Mapping) else None
    if theta is None and read.config.get("rope_theta") is None:
        read.problems.append("rope_theta is missing")
    kinds = read.config.get("attn_type_list")
    if kinds is not None and kinds != [1] * num_layers:
        read.problems.append(f"attn_type_list={show(kinds)} must be {num_layers} times 1")


def _internal(found: Found, config: DecoderConfig) -> Iterator[tuple[str, Parameter]]:
    """Mixtral's names to those of all families, without the MTP modules."""
    renamed = [(_internal_name(name), parameter) for name, parameter in found]
    skipped = _mtp_modules((name for name, _ in renamed), config)
    for name, parameter in renamed:
        layer = _LAYER.match(name)
        if not (layer and int(layer[1]) in skipped):
            yield name, parameter


def _internal_name(name: str) -> str:
    name = name.replace(".block_sparse_moe.", ".mlp.")
    return _EXPERT.sub(lambda m: f".experts.{m[1]}.{_PROJECTIONS[m[2]]}.", name)


def _mtp_modules(names: Iterable[str], config: DecoderConfig) -> set[int]:
    """Layers behind the last one that hold more than a decoder layer does.

    One that holds no more is a layer that ``num_hidden_layers`` does not count, and must not be
    left out unnoticed.
    """
    of_layer = {name for name in parameter_shapes(config) if name.startswith("model.layers.0.")}
    behind = range(config.num_layers, config.num_layers + _MTP_MODULES)
    layers = ((_LAYER.match(name), name) for name in names)
    return {
        number
        for layer, name in layers
        if layer
        and (number := int(layer[1])) in behind
        and name.replace(layer[0], "model.layers.0.", 1) not in of_layer
    }


def _published(weights: Arrays) -> Arrays:
    found = {}
    for name, values in weights.items():
        for theirs, ours in _PROJECTIONS.items():
            name = name.replace(f".{ours}.", f".{theirs}.")
        found[name.replace(".mlp.", ".block_sparse_moe.")] = values
    return found


MINIMAX_M2 = Family(
    model_type="minimax_m2",
    architecture="MiniMaxM2ForCausalLM",
    read=_read,
    handled=frozenset(
        """attn_type_list num_experts num_experts_per_tok num_local_experts partial_rotary_factor
        rotary_dim""".split()
    ),
    required=("num_key_value_heads", "head_dim"),
    ignored=frozenset(  # code that is never run; MTP; training; the width of what has size zero
        """auto_map mlp_intermediate_size mtp_transformer_layers num_mtp_modules use_mtp
        output_router_logits router_aux_loss_coef router_jitter_noise shared_moe_mode""".split()
    ),
    must_equal={
        "attention_bias": (False,),
        "layernorm_full_attention_beta": (1,),
        "layernorm_linear_attention_beta": (1,),
        "layernorm_mlp_beta": (1,),
        "norm_topk_prob": (True,),
        "qk_norm_type": ("per_layer",),
        "scoring_func": ("sigmoid",),
        "shared_intermediate_size": (0,),
        "sliding_window": (),
        "use_qk_norm": (True,),
        "use_routing_bias": (True,),
    },
    internal=_internal,
    published=_published,
)
