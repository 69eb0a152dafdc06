"""Qwen3.5 as its folders are: a wrapper, names of its own, other parts left out, fused experts."""

import numpy as np
import pytest

from models.golden_families import IDS, golden, tiny
from models.tiny_families import FAMILIES
from models.tiny_llama import write_folder
from wafer_jax import hardware
from wafer_jax.errors import WaferError
from wafer_jax.models import checkpoints, model_configs
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_model import MeshModel
from wafer_jax.models.parameters import num_parameters

DENSE, MOE = FAMILIES["qwen3.5"], FAMILIES["qwen3.5 moe"]


def wrapped(attributes: dict) -> dict:
    """With the attributes of the published wrappers."""
    text = {k: v for k, v in attributes.items() if k not in ("architectures", "torch_dtype")}
    name = attributes["architectures"][0]
    return {
        "architectures": [name.replace("ForCausalLM", "ForConditionalGeneration")],
        "image_token_id": 248056,
        "model_type": attributes["model_type"].removesuffix("_text"),
        "text_config": {**text, "dtype": "bfloat16"},
        "tie_word_embeddings": False,
        "transformers_version": "4.57.0.dev0",
        "video_token_id": 248057,
        "vision_config": {"depth": 27, "model_type": "qwen3_5", "patch_size": 16},
        "vision_end_token_id": 248054,
        "vision_start_token_id": 248053,
    }


def published(name: str) -> dict[str, np.ndarray]:
    """Tensors as the hub has them, with parts of what is left out."""
    weights = {
        tensor.replace("model.", "model.language_model.", 1): values
        for tensor, values in tiny(name).weights.items()
    }
    other = np.ones((2, 3), np.float32)
    return weights | {
        "model.visual.blocks.0.attn.qkv.weight": other,
        "model.visual.merger.norm.weight": other,
        "mtp.fc.weight": other,
        "mtp.layers.0.mlp.experts.gate_up_proj": np.ones((7, 2, 3), np.float32),
    }


def fused(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All experts of a layer in two tensors."""
    kept = {name: values for name, values in tensors.items() if ".mlp.experts." not in name}
    for i in range(4):
        one = f"model.language_model.layers.{i}.mlp.experts."
        of = lambda j, what, one=one: tensors[f"{one}{j}.{what}_proj.weight"]
        both = [np.concatenate([of(j, "gate"), of(j, "up")]) for j in range(7)]
        kept[f"{one}gate_up_proj"] = np.stack(both)
        kept[f"{one}down_proj"] = np.stack([of(j, "down") for j in range(7)])
    return {**kept, **{n: v for n, v in tensors.items() if n.startswith("mtp.")}}


def assert_same(loaded, checkpoint):
    assert loaded.config == checkpoint.config
    assert set(loaded.weights) == set(checkpoint.weights)
    for tensor, values in checkpoint.weights.items():
        np.testing.assert_array_equal(loaded.weights[tensor], values)


@pytest.mark.parametrize("name", ["qwen3.5", "qwen3.5 moe"])
def test_wrapped_folders(tmp_path, name):
    folder = write_folder(tmp_path, published(name), wrapped(FAMILIES[name]), shards=3)
    assert_same(checkpoints.load(folder), tiny(name))


def test_fused_experts(tmp_path):
    tensors = fused(published("qwen3.5 moe"))
    assert len([name for name in tensors if ".experts." in name]) == 2 * 4 + 1
    assert_same(
        checkpoints.load(write_folder(tmp_path, tensors, wrapped(MOE))), tiny("qwen3.5 moe")
    )


@pytest.mark.parametrize("said", [False, True])
def test_a_stored_head_is_taken_whatever_the_attributes_say(tmp_path, said):
    tensors = published("qwen3.5") | {"lm_head.weight": np.full((97, 48), 0.5, np.float32)}
    attributes = wrapped({**DENSE, "tie_word_embeddings": said})
    untied = checkpoints.load(write_folder(tmp_path, tensors, attributes))
    assert not untied.config.tie_embeddings
    assert (untied.weights["lm_head.weight"] == 0.5).all()


@pytest.mark.parametrize(
    ("inner", "outer"), [(True, False), (False, True), (True, None), (None, True)]
)
def test_without_a_stored_head_either_configuration_may_say_that_it_is_tied(tmp_path, inner, outer):
    attributes = wrapped({**DENSE, "tie_word_embeddings": inner})
    attributes["tie_word_embeddings"] = outer
    tied = checkpoints.load(write_folder(tmp_path, published("qwen3.5"), attributes))
    assert tied.config.tie_embeddings
    assert "lm_head.weight" not in tied.weights


@pytest.mark.parametrize(("inner", "outer"), [(False, False), (None, None)])
def test_a_head_that_is_neither_stored_nor_tied_is_missing(tmp_path, inner, outer):
    attributes = wrapped({**DENSE, "tie_word_embeddings": inner})
    attributes["tie_word_embeddings"] = outer
    folder = write_folder(tmp_path, published("qwen3.5"), attributes)
    with pytest.raises(WaferError, match=r"1 tensor missing: 'lm_head.weight' \(if the head is"):
        checkpoints.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.language_model.layers.0.unrecognized.weight": (1,)}, "no place for"),
        ({"model.layers.0.input_layernorm.weight": (48,)}, "is given twice"),
        ({"visual.patch_embed.weight": (1,)}, "no place for: 'visual.patch_embed.weight'"),
        ({"model.language_model.layers.0.mlp.experts.down_proj": (7, 48, 24)}, "is given twice"),
        ({"model.language_model.layers.0.mlp.experts.gate_up_proj": (6, 48, 48)}, "7 experts"),
    ],
)
def test_other_tensors_are_refused(tmp_path, change, message):
    more = {name: np.zeros(shape, np.float32) for name, shape in change.items()}
    folder = write_folder(tmp_path, published("qwen3.5 moe") | more, wrapped(MOE))
    with pytest.raises(WaferError, match=message):
        checkpoints.load(folder)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({**wrapped(DENSE), "text_config": None}, "text_config must be one of model_type"),
        ({**wrapped(DENSE), "text_config": MOE}, "model_type 'qwen3_5_text'"),
        ({**wrapped(DENSE), "audio_config": {}}, r"unknown attribute 'audio_config'"),
        ({**wrapped(DENSE), "architectures": ["Qwen3_5ForCausalLM"]}, "is not supported; only"),
        (wrapped({**DENSE, "hidden_size": 0}), "text_config: hidden_size=0 is outside"),
        ({**DENSE, "attn_output_gate": False}, "attn_output_gate=False is unsupported"),
        ({**DENSE, "output_gate_type": "gelu"}, "output_gate_type='gelu' is unsupported"),
        ({**DENSE, "linear_num_value_heads": 5}, "is not a multiple of linear_num_key_heads=2"),
        ({**DENSE, "linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim=1 is outside"),
        ({**DENSE, "layer_types": ["linear_attention"]}, "must list 4 layers"),
        ({**DENSE, "layer_types": 4 * ["sliding_attention"]}, "'sliding_attention'"),
        ({**DENSE, "num_experts": 7}, "unknown attribute 'num_experts'"),
        ({**MOE, "mlp_only_layers": [0]}, r"mlp_only_layers=\[0\] is unsupported"),
        ({**MOE, "norm_topk_prob": False}, "norm_topk_prob=False is unsupported"),
        ({**MOE, "shared_expert_intermediate_size": None}, "shared_expert_intermediate_size is m"),
        ({**MOE, "moe_intermediate_size": None}, "moe_intermediate_size is missing"),
    ],
)
def test_refusals(attributes, message):
    with pytest.raises(WaferError, match=message) as caught:
        read_config(attributes)
    assert "\n" not in str(caught.value)


def test_what_is_left_out_of_a_file_has_a_default():
    short = {k: v for k, v in DENSE.items() if k not in ("layer_types", "full_attention_interval")}
    assert read_config(short) == read_config(DENSE)
    two = read_config({**short, "full_attention_interval": 2})
    assert two.attention == ("gated_delta", "full")
    for nested in ({}, {"partial_rotary_factor": 0.25}):
        rope = {"rope_type": "default", "rope_theta": 1000.0, **nested}
        assert read_config({**DENSE, "rope_parameters": rope}) == read_config(DENSE)
    old = {k: v for k, v in DENSE.items() if k != "rope_parameters"}
    old |= {"rope_theta": 1000.0, "rope_scaling": None, "partial_rotary_factor": 0.25}
    assert read_config(old) == read_config(DENSE)


@pytest.mark.parametrize(
    ("name", "parameters", "untied"),
    [
        ("qwen3.5-9b", 8_953_803_264, True),
        ("qwen3.5-27b", 26_895_998_464, True),
        ("qwen3.5-35b-a3b", 34_660_610_688, True),
    ],
)
def test_published_sizes(name, parameters, untied):
    config = model_configs.model_config(name)
    assert num_parameters(config) == parameters
    assert config.attention == ("gated_delta", "gated_delta", "gated_delta", "full")
    assert (config.rope.theta, config.rope.rotary_dim, config.head_dim) == (1e7, 64, 256)
    assert config.tie_embeddings is not untied


def test_experts_on_regions_of_their_own_beside_the_shared_one():
    hw = hardware("wse2", mesh=(2, 5)).replace(sram_bytes=1 << 20)
    model = MeshModel(tiny("qwen3.5 moe"), hw, expert_grid=(1, 2))
    logits = golden()["qwen3.5 moe"][0]
    output = model.prefill(IDS[0][:7], context=9)
    for t in (7, 8):
        np.testing.assert_allclose(
            output.logits, logits[t - 1], rtol=0, atol=1e-5 * np.abs(logits[t - 1]).max()
        )
        output = model.decode(int(IDS[0][t]), output.cache)
