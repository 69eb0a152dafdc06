"""Published configurations of every family, and what is refused of them."""

import pytest

from models.tiny_families import FAMILIES
from models.tiny_llama import LLAMA3
from wafer_jax import hardware
from wafer_jax.collectives import allreduce_ktree
from wafer_jax.errors import WaferError
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_costs import decode_costs, prefill_costs
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_memory import layer_bytes
from wafer_jax.models.parameters import num_parameters
from wafer_jax.models.placement import place

_QWEN = {
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-06,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3_06B = {
    **_QWEN,
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
}
QWEN3_30B = {
    **_QWEN,
    "architectures": ["Qwen3MoeForCausalLM"],
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "max_window_layers": 48,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "output_router_logits": False,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.001,
    "sliding_window": None,
    "tie_word_embeddings": False,
}
PUBLISHED = {
    "CodeLlama-7b-hf": (
        {
            "architectures": ["LlamaForCausalLM"],
            "bos_token_id": 1,
            "eos_token_id": 2,
            "hidden_act": "silu",
            "hidden_size": 4096,
            "initializer_range": 0.02,
            "intermediate_size": 11008,
            "max_position_embeddings": 16384,
            "model_type": "llama",
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 32,
            "pretraining_tp": 1,
            "rms_norm_eps": 1e-05,
            "rope_scaling": None,
            "rope_theta": 1000000,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "transformers_version": "4.33.0.dev0",
            "use_cache": True,
            "vocab_size": 32016,
        },
        6_738_546_688,
    ),
    "Qwen2.5-0.5B": (
        {
            **_QWEN,
            "architectures": ["Qwen2ForCausalLM"],
            "hidden_size": 896,
            "intermediate_size": 4864,
            "max_position_embeddings": 32768,
            "max_window_layers": 24,
            "model_type": "qwen2",
            "num_attention_heads": 14,
            "num_hidden_layers": 24,
            "num_key_value_heads": 2,
            "rope_theta": 1000000.0,
            "sliding_window": 32768,
            "tie_word_embeddings": True,
            "use_mrope": False,
        },
        494_032_768,
    ),
    "Qwen3-0.6B": (QWEN3_06B, 596_049_920),
    "Qwen3-30B-A3B": (QWEN3_30B, 30_532_122_624),
}


@pytest.mark.parametrize(("attributes", "parameters"), PUBLISHED.values(), ids=PUBLISHED)
def test_published_sizes(attributes, parameters):
    config = read_config(attributes)
    assert num_parameters(config) == parameters
    assert (config.family, config.rope.theta) == (attributes["model_type"], 1e6)


def test_what_a_family_says_of_its_layers():
    facts = {
        name: (c.qkv_bias, c.out_bias, c.qk_norm)
        for name, c in ((name, read_config(a)) for name, a in FAMILIES.items())
    }
    assert facts["llama 3"] == facts["code llama"] == (False, False, None)
    assert facts["qwen2"] == facts["qwen2.5, untied"] == (True, False, None)
    assert facts["qwen3"] == facts["qwen3 moe"] == (False, False, "head")
    assert facts["minimax m2"] == (False, False, "all")
    biased = read_config({**FAMILIES["qwen3"], "attention_bias": True})
    assert (biased.qkv_bias, biased.out_bias) == (True, True)


@pytest.mark.parametrize("name", [n for n, a in FAMILIES.items() if "qwen" in a["model_type"]])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_sliding_window": True}, "use_sliding_window=True is unsupported (must be False)"),
        ({"num_key_value_heads": None}, "num_key_value_heads is missing"),
        (
            {"rope_scaling": {"rope_type": "longrope"}, "rope_parameters": None},
            "rope_type='longrope' is unsupported",
        ),
        ({"mlp_bias": True}, "unknown attribute 'mlp_bias'=True"),
        ({"logit_scale": 2.0}, "unknown attribute 'logit_scale'=2.0"),
        ({"architectures": ["LlamaForCausalLM"]}, "['LlamaForCausalLM'] is not supported; only"),
    ],
)
def test_refusals_of_the_qwen_families(name, change, message):
    with pytest.raises(WaferError) as caught:
        read_config({**FAMILIES[name], **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("qwen2", {"attention_bias": True}, "unknown attribute 'attention_bias'=True"),
        ("qwen2", {"use_mrope": True}, "use_mrope=True is unsupported"),
        ("qwen2", {"layer_types": ["full_attention"]}, "must list 2 layers"),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, "'sliding_attention'"),
        ("qwen3", {"layer_types": "full_attention"}, "must list 2 layers"),
        ("qwen3", {"head_dim": None}, "head_dim is missing"),
        ("qwen3 moe", {"mlp_only_layers": [1]}, r"mlp_only_layers=\[1\] is unsupported"),
        ("qwen3 moe", {"decoder_sparse_step": 2}, "decoder_sparse_step=2 is unsupported"),
        ("qwen3 moe", {"num_experts_per_tok": 8}, "num_experts_per_tok=8 is outside 1..7"),
        ("qwen3 moe", {"num_experts": 1 << 20}, "num_experts=1048576 is outside"),
        ("qwen3 moe", {"num_experts": None}, "num_experts is missing"),
        ("qwen3 moe", {"num_experts": 1024, "num_hidden_layers": 4096}, "are too many"),
        ("qwen3 moe", {"num_local_experts": 6}, "num_local_experts=6 and num_experts=7 differ"),
        ("qwen3 moe", {"norm_topk_prob": None}, "norm_topk_prob is missing"),
        ("qwen3 moe", {"norm_topk_prob": 1}, "norm_topk_prob=1 must be true or false"),
        ("qwen3 moe", {"shared_expert_intermediate_size": 20}, "unknown attribute 'shared_exp"),
        ("code llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear' is unsupp"),
        ("code llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic' is unsu"),
    ],
)
def test_refusals(name, change, message):
    with pytest.raises(WaferError, match=message):
        read_config({**FAMILIES[name], **change})


def test_every_unknown_attribute_is_listed():
    with pytest.raises(
        WaferError, match=r"sliding_window=True.*'one'=1; unknown attribute 'two'=2"
    ):
        read_config({**FAMILIES["qwen3"], "one": 1, "two": 2, "use_sliding_window": True})


def test_both_spellings_are_one_configuration():
    old = {k: v for k, v in FAMILIES["qwen3"].items() if k not in ("rope_theta", "torch_dtype")}
    del old["rope_scaling"]
    new = {
        **old,
        "dtype": "bfloat16",
        "layer_types": ["full_attention"] * 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    }
    assert read_config(new) == read_config(FAMILIES["qwen3"])
    stretched = {**FAMILIES["qwen3"], "rope_scaling": LLAMA3}
    assert read_config(stretched).rope.scaling is not None


def test_norms_of_queries_and_keys_are_an_operator_of_their_own():
    """Qwen3-0.6B on 48x48 PEs: eight groups of six columns, one word per head and token."""
    hw = hardware("wse2", mesh=(48, 48))
    placement = place(read_config(QWEN3_06B), hw, context=96, prompt=96)
    group = hw.replace(mesh=(48, 6))
    for costs, words in ((decode_costs(placement, 96), 3), (prefill_costs(placement, 96), 6)):
        (norms,) = [o for o in costs.layer if o.operator == "query and key norms"]
        assert norms.cycles - norms.compute_cycles == allreduce_ktree.cost(group, words, 2, "x")
        assert norms.moved_bytes == 8 * 48 * 6 * words * 4
        assert not [o for o in costs.layer if "bias" in o.operator]


def test_biases_and_norms_take_their_memory():
    config = read_config({**FAMILIES["qwen3"], "attention_bias": True})
    plain = read_config({**FAMILIES["llama 3"]})
    hidden, head = 48 // 2, 10 // 5
    more = {"qkv": 60 // 10 * 1 + 2 * 20 // 10, "out": hidden, "norms": 2 * head}
    sizes = [layer_bytes(LayerLayout(c, (2, 10)), "float32", 2, 1) for c in (config, plain)]
    assert sizes[0].weights_bytes - sizes[1].weights_bytes == 4 * sum(more.values())
