"""Malformed configurations: the meaning that they have, or one line that refuses them."""

import copy
import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.tiny_families import FAMILIES
from wafer_jax import hardware
from wafer_jax.errors import WaferError
from wafer_jax.hardware import configs_dir
from wafer_jax.models import model_names
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.config_reader import IGNORED
from wafer_jax.models.families import FAMILIES as KNOWN
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_costs import decode_costs, prefill_costs
from wafer_jax.models.placement import place

PUBLISHED = {
    name: json.loads((configs_dir() / "models" / f"{name}.json").read_text())["config"]
    for name in model_names()
}
CONFIGS = {**PUBLISHED, **FAMILIES}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**400), 10**400),
    st.sampled_from([0, 1, 2, 3, 64, 1 << 20, 1 << 31, 1 << 63, -1]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["full_attention", "yarn", "silu", "llama", "\n", "\0", "x" * 5000]),
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=12,
)
names = st.sampled_from(
    sorted({name for config in CONFIGS.values() for name in config} | {"text_config", "odd", ""})
)
fuzz = settings(deadline=None)

# What an attribute may change in the decoder; any other one may change nothing.
MEANS = {
    "hidden_size": {"hidden_size", "head_dim"},
    "intermediate_size": {"intermediate_size"},
    "moe_intermediate_size": {"intermediate_size"},
    "num_hidden_layers": {"num_layers"},
    "num_attention_heads": {"num_heads", "num_kv_heads", "head_dim"},
    "num_key_value_heads": {"num_kv_heads"},
    "head_dim": {"head_dim", "rope"},
    "vocab_size": {"vocab_size", "bos_token_id", "eos_token_ids"},
    "rms_norm_eps": {"rms_norm_eps"},
    "max_position_embeddings": {"max_position_embeddings"},
    "tie_word_embeddings": {"tie_embeddings"},
    "bos_token_id": {"bos_token_id"},
    "eos_token_id": {"eos_token_ids"},
    "attention_bias": {"qkv_bias", "out_bias"},
    "num_experts": {"experts"},
    "num_local_experts": {"experts"},
    "num_experts_per_tok": {"experts"},
    "norm_topk_prob": {"experts"},
    "rope_theta": {"rope"},
    "rope_scaling": {"rope"},
    "rope_parameters": {"rope"},
    "partial_rotary_factor": {"rope"},
    "rotary_dim": {"rope"},
    "layer_types": {"attention"},
    "sliding_window": {"window"},
    "swiglu_limit": {"activation"},
    "swiglu_alpha": {"activation"},
    "text_config": {field.name for field in dataclasses.fields(DecoderConfig)},
}
PLAIN = {
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
    "rms_norm_eps": "rms_norm_eps",
    "max_position_embeddings": "max_position_embeddings",
    "tie_word_embeddings": "tie_embeddings",
    "moe_intermediate_size": "intermediate_size",
}


def or_one_line(call):
    """What a call returns, or None if one line refuses it."""
    try:
        return call()
    except WaferError as refusal:
        text = str(refusal)
    assert "\n" not in text
    assert len(text) < 10_000
    return None


def read(attributes) -> DecoderConfig | None:
    """The decoder, or None if one line refuses it."""
    return or_one_line(lambda: read_config(attributes))


@fuzz
@given(trees)
def test_any_json(tree):
    assert read(tree) is None


@fuzz
@given(st.sampled_from([*KNOWN]), st.dictionaries(names, trees, max_size=12))
def test_any_attributes_of_a_family(model_type, attributes):
    read({**attributes, "model_type": model_type})


def mutate(data, config):
    """Change one attribute, at the top or deeper; its way from the top and the result."""
    config = copy.deepcopy(config)
    where, way = config, []
    while True:
        name = data.draw(st.sampled_from(sorted(where)))
        way.append(name)
        if not isinstance(where[name], dict) or not where[name] or data.draw(st.booleans()):
            break
        where = where[name]
    kind = data.draw(st.sampled_from(["drop", "null", "replace", "borrow", "rename", "nudge"]))
    if kind == "drop":
        del where[name]
    elif kind == "rename":
        where[data.draw(st.sampled_from([name + "_", name.upper(), " " + name]))] = where.pop(name)
    elif kind == "borrow":
        where[name] = where[data.draw(st.sampled_from(sorted(where)))]
    elif kind == "nudge" and isinstance(where[name], int | float):
        where[name] = where[name] + data.draw(st.sampled_from([1, -1, 2, 0.5, 1 << 40, math.inf]))
    else:
        where[name] = None if kind == "null" else data.draw(trees)
    return way, config


@settings(deadline=None, max_examples=400)
@given(st.sampled_from([*CONFIGS]), st.data())
def test_a_changed_attribute_changes_what_it_means_and_nothing_else(name, data):
    original = read_config(CONFIGS[name])
    way, config = mutate(data, CONFIGS[name])
    found = read(config)
    if found is None:
        return
    different = {
        field.name
        for field in dataclasses.fields(DecoderConfig)
        if getattr(found, field.name) != getattr(original, field.name)
    }
    allowed = set.union(*(MEANS.get(part, set()) for part in way if part != "text_config"), set())
    if way == ["text_config"]:
        allowed = MEANS["text_config"]
    if original.experts is not None and way[-1] == "intermediate_size":
        allowed = {"intermediate_size"} if original.family in ("gpt_oss", "minimax_m2") else set()
    assert different <= allowed
    value = _at(config, way)
    if way[-1] in IGNORED:
        assert found == original
    elif way[-1] in PLAIN and value is not None:
        assert getattr(found, PLAIN[way[-1]]) == value


def _at(config, way):
    for part in way:
        config = config.get(part) if isinstance(config, dict) else None
    return config


def test_many_problems_are_one_line_of_bounded_length():
    config = {**CONFIGS["llama3-8b"], **{f"odd{i}": "x" * 1000 for i in range(5000)}}
    with pytest.raises(
        WaferError, match=r"unknown attribute 'odd0'=.*; and 4,9\d\d more$"
    ) as error:
        read_config(config)
    assert len(str(error.value)) < 10_000


small = st.fixed_dictionaries(
    {
        "model_type": st.sampled_from(["llama", "qwen2", "qwen3", "qwen3_moe"]),
        "vocab_size": st.integers(1, 60),
        "hidden_size": st.integers(1, 40),
        "intermediate_size": st.integers(1, 40),
        "num_hidden_layers": st.integers(1, 5),
        "num_attention_heads": st.integers(1, 6),
        "num_key_value_heads": st.integers(1, 6),
        "head_dim": st.integers(1, 6).map(lambda half: 2 * half),
        "max_position_embeddings": st.integers(1, 100),
        "tie_word_embeddings": st.booleans(),
        "eos_token_id": st.just(0),
        "bos_token_id": st.just(0),
    }
)
EXPERTS = {"moe_intermediate_size": 5, "num_experts": 3, "num_experts_per_tok": 2}


def small_config(attributes) -> DecoderConfig | None:
    heads, kv_heads = attributes["num_attention_heads"], attributes["num_key_value_heads"]
    attributes = {**attributes, "num_attention_heads": heads * kv_heads}
    if attributes["model_type"] == "qwen3_moe":
        attributes = {**attributes, **EXPERTS, "norm_topk_prob": True}
    return read(attributes)


@fuzz
@given(
    small,
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.integers(1, 60),
    st.sampled_from(["float32", "bfloat16", "q4_k", "fp8"]),
    st.integers(1, 4),
)
def test_a_weird_but_valid_model_is_placed_or_refused(attributes, mesh, tokens, dtype, k):
    config = small_config(attributes)
    assert config is not None
    hw = hardware("toy", mesh=mesh)
    placement = or_one_line(lambda: place(config, hw, context=tokens, prompt=tokens, dtype=dtype))
    if placement is None:
        return
    assert placement.frame["free_bytes"].ge(0).all()
    assert decode_costs(placement, tokens, k).cycles > 0
    assert prefill_costs(placement, tokens, k).cycles > 0
