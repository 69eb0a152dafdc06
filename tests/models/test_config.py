"""Configurations: both spellings are read, everything unknown or out of range is refused."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.tiny_llama import LLAMA3, TINY, YARN
from wafer_jax.errors import WaferError
from wafer_jax.models.config import DecoderConfig, Llama3Scaling, RopeConfig, YarnScaling
from wafer_jax.models.config_reader import (
    ConfigReader,
    read_decoder,
    read_rope,
    read_rotary_factor,
)
from wafer_jax.models.families import read_config
from wafer_jax.models.parameters import num_parameters, parameter_shapes


def test_fields_come_from_their_attributes():
    config = read_config({**TINY, "eos_token_id": [3, 4], "bos_token_id": 1})
    assert config == DecoderConfig(
        vocab_size=97,
        hidden_size=48,
        intermediate_size=80,
        num_layers=3,
        num_heads=6,
        num_kv_heads=2,
        head_dim=10,
        rms_norm_eps=1e-5,
        rope=RopeConfig(500.0),
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_ids=(3, 4),
    )
    assert (config.q_size, config.kv_size, config.queries_per_kv) == (60, 20, 3)
    assert hash(config) == hash(dataclasses.replace(config))


def test_defaults_are_those_of_the_architecture():
    names = ("num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta")
    config = read_config({k: v for k, v in TINY.items() if k not in names})
    assert (config.num_kv_heads, config.head_dim) == (6, 8)
    assert (config.rms_norm_eps, config.rope.theta) == (1e-6, 10000.0)
    assert (config.bos_token_id, config.eos_token_ids) == (1, (2,))


def test_both_spellings_of_rope_agree():
    plain = {k: v for k, v in TINY.items() if k != "rope_theta"}
    old = read_config({**TINY, "rope_scaling": LLAMA3})
    new = read_config({**plain, "rope_parameters": {**LLAMA3, "rope_theta": 500.0}})
    assert old == new
    assert old.rope.scaling == Llama3Scaling(8.0, 1.0, 4.0, 32)
    older_key = {**LLAMA3, "type": "llama3"}
    del older_key["rope_type"]
    assert read_config({**TINY, "rope_scaling": older_key}) == old
    assert read_config({**TINY, "rope_scaling": None}).rope.scaling is None


def test_yarn_has_the_magnitude_of_its_paper():
    scaling = read_config({**TINY, "rope_scaling": {**YARN, "factor": 32.0}}).rope.scaling
    assert isinstance(scaling, YarnScaling)
    assert scaling.magnitude == pytest.approx(1.3466, abs=1e-4)
    assert (scaling.beta_fast, scaling.beta_slow, scaling.whole_places) == (32.0, 1.0, True)
    given = {**YARN, "attention_factor": 2.0, "truncate": False, "beta_fast": 8}
    rope = read_config({**TINY, "rope_scaling": given}).rope
    assert (rope.magnitude, rope.scaling) == (2.0, YarnScaling(4.0, 8.0, 1.0, 16, 2.0, False))


def reader_of_partial_rope(**attributes) -> ConfigReader:
    return ConfigReader({k: v for k, v in (TINY | attributes).items() if v is not None})


@pytest.mark.parametrize(
    "attributes",
    [
        {"partial_rotary_factor": 0.4},
        {
            "rope_theta": None,
            "rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.4},
        },
    ],
)
def test_partial_rope_is_read_in_both_spellings(attributes):
    read = reader_of_partial_rope(**attributes)
    decoder = read_decoder(
        read,
        max_positions=9,
        bos_token_id=None,
        eos_token_id=None,
        rotary_factor=read_rotary_factor(read),
    )
    assert not read.problems
    assert decoder.rope == RopeConfig(500.0, rotary_dim=4)
    exponents = [0, 0.5]
    np.testing.assert_allclose(decoder.rope.inverse_frequencies(10), [500.0**-e for e in exponents])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"partial_rotary_factor": 0.3}, "RoPE turns 3 elements of a head, not pairs"),
        ({"partial_rotary_factor": 0.1}, "RoPE turns 1 elements"),
        ({"partial_rotary_factor": 0}, "partial_rotary_factor=0 must be above 0, at most 1"),
        ({"partial_rotary_factor": "x"}, "partial_rotary_factor='x' must be a number"),
        (
            {"partial_rotary_factor": 0.4, "rope_scaling": {"partial_rotary_factor": 0.2}},
            "partial_rotary_factor=0.4 and the nested 0.2 differ",
        ),
    ],
)
def test_bad_partial_rope(attributes, message):
    read = reader_of_partial_rope(**attributes)
    factor = read_rotary_factor(read)
    read_rope(read, 10, factor)
    assert message in "; ".join(read.problems)


def test_a_published_config_is_accepted():
    """SmolLM2-135M's config.json, with its many attributes that change nothing."""
    config = read_config(
        {
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_act": "silu",
            "hidden_size": 576,
            "initializer_range": 0.041666666666666664,
            "intermediate_size": 1536,
            "is_llama_config": True,
            "max_position_embeddings": 8192,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": 9,
            "num_hidden_layers": 30,
            "num_key_value_heads": 3,
            "pad_token_id": 2,
            "pretraining_tp": 1,
            "rms_norm_eps": 1e-05,
            "rope_interleaved": False,
            "rope_scaling": None,
            "rope_theta": 100000,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
            "transformers_version": "4.42.3",
            "use_cache": True,
            "vocab_size": 49152,
        }
    )
    assert num_parameters(config) == 134_515_008
    assert "lm_head.weight" not in parameter_shapes(config)


BAD = [
    ({"vocab_size": None}, "vocab_size is missing"),
    ({"hidden_size": "48"}, "hidden_size='48' must be an integer"),
    ({"hidden_size": 48.0}, "hidden_size=48.0 must be an integer"),
    ({"num_hidden_layers": True}, "num_hidden_layers=True must be an integer"),
    ({"num_hidden_layers": 10**12}, "outside 1..4096"),
    ({"num_hidden_layers": 10**5000}, "a very long integer"),
    ({"intermediate_size": -80}, "intermediate_size=-80 is outside"),
    ({"num_key_value_heads": 4}, "not a multiple of num_key_value_heads=4"),
    ({"head_dim": 9}, "head_dim=9 is odd"),
    ({"head_dim": 0}, "head_dim=0 is outside"),
    ({"rms_norm_eps": math.nan}, "rms_norm_eps=nan"),
    ({"rms_norm_eps": 0}, "rms_norm_eps=0"),
    ({"rms_norm_eps": "1e-5"}, "must be a number"),
    ({"rope_theta": -1.0}, "rope_theta=-1.0"),
    ({"rope_theta": math.inf}, "rope_theta=inf"),
    ({"rope_theta": False}, "rope_theta=False must be a number"),
    ({"rope_scaling": [1]}, "rope_scaling=[1] must be an object"),
    ({"rope_scaling": {"rope_type": "longrope", "factor": 4.0}}, "'longrope' is unsupported"),
    ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "original_max_position_embeddings is"),
    ({"rope_scaling": {**YARN, "mscale": 1.0}}, "unknown attribute 'mscale'=1.0"),
    ({"rope_scaling": {**YARN, "truncate": "no"}}, "truncate='no' must be true or false"),
    ({"rope_scaling": {**YARN, "beta_fast": 1.0}}, "beta_fast must be above beta_slow"),
    ({"rope_scaling": {**YARN, "beta_slow": 1e-300}}, "beta_slow=1e-300 must be above 1e-06"),
    ({"rope_scaling": YARN, "rope_theta": 1}, "yarn needs a rope_theta above 1"),
    ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear' is unsupported"),
    ({"rope_scaling": {"rope_type": "default", "factor": 2.0}}, "unknown attribute 'factor'"),
    ({"rope_scaling": {"rope_type": "llama3"}}, "factor is missing"),
    ({"rope_scaling": {**LLAMA3, "factor": math.nan}}, "factor=nan"),
    ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, "must be above low_freq_factor"),
    ({"rope_scaling": {**LLAMA3, "beta_fast": 32}}, "unknown attribute 'beta_fast'"),
    ({"rope_scaling": LLAMA3, "rope_parameters": {}}, "differ; keep one"),
    ({"rope_parameters": {"rope_theta": 7.0}}, "rope_parameters.rope_theta differ"),
    ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "'partial_rotary_factor'=0.5"),
    ({"tie_word_embeddings": 1}, "tie_word_embeddings=1 must be true or false"),
    ({"attention_bias": "no"}, "attention_bias='no'"),
    ({"eos_token_id": [2, 97]}, "must be ids below vocab_size=97"),
    ({"bos_token_id": -1}, "bos_token_id=-1"),
    ({"bos_token_id": True}, "bos_token_id=True"),
    ({"hidden_act": "gelu"}, "hidden_act='gelu' is unsupported (must be 'silu' or 'swish')"),
    ({"mlp_bias": True}, "mlp_bias=True is unsupported"),
    ({"mlp_bias": 0}, "mlp_bias=0 is unsupported"),
    ({"sliding_window": 128}, "sliding_window=128 is unsupported (must be absent)"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ({"auto_map": {"AutoModel": "x.Y"}}, "auto_map"),
    ({"logit_scale": 0.5}, "unknown attribute 'logit_scale'=0.5"),
    ({"x\ny": "a\nb" * 100}, "unknown attribute 'x\\ny'"),
    ({"model_type": "mistral"}, "model_type 'mistral' is not supported; supported are llama"),
    ({"model_type": None}, "model_type None"),
    ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[m for _, m in BAD])
def test_bad_values_are_named(change, message):
    with pytest.raises(WaferError) as caught:
        read_config({**TINY, **change}, where="x/config.json")
    text = str(caught.value)
    assert text.startswith("x/config.json: ")
    assert message in text
    assert "\n" not in text


def test_every_problem_is_listed_at_once():
    with pytest.raises(WaferError, match=r"odd_one.*hidden_size='x'.*rope_theta=0"):
        read_config({**TINY, "odd_one": 1, "hidden_size": "x", "rope_theta": 0})


@pytest.mark.parametrize("value", [None, [], "llama", 3])
def test_not_an_object(value):
    with pytest.raises(WaferError, match="expected a JSON object"):
        read_config(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*LLAMA3, "rope_theta", "type"]), inner, max_size=4)
        | st.fixed_dictionaries({**dict.fromkeys(YARN, inner), "rope_type": st.just("yarn")})
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from([*TINY, "rope_scaling", "rope_parameters"]), json_values))
def test_hostile_values_never_raise_anything_else(change):
    try:
        config = read_config({**TINY, **change})
    except WaferError:
        return
    json.dumps(dataclasses.asdict(config), allow_nan=False)
    assert config.num_heads % config.num_kv_heads == 0
    assert np.isfinite(config.rope.inverse_frequencies(config.head_dim)).all()
