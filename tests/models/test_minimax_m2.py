"""What MiniMax-M2 has beyond other families: its router, its norms, its names, what is refused."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from models.golden_families import IDS, tiny
from models.published import published
from models.tiny_families import FAMILIES
from models.tiny_llama import write_folder
from wafer_jax import hardware
from wafer_jax.collectives import allreduce_ktree
from wafer_jax.errors import WaferError
from wafer_jax.models import checkpoints
from wafer_jax.models.config import Experts, RopeConfig
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.families import read_config
from wafer_jax.models.feed_forward.routing import RULES, weights_of_all
from wafer_jax.models.mesh_costs import decode_costs, prefill_costs
from wafer_jax.models.mesh_heads import norm_of_all_heads
from wafer_jax.models.mesh_layout import PAD, LayerLayout
from wafer_jax.models.mesh_memory import layer_bytes
from wafer_jax.models.mesh_tiles import cut
from wafer_jax.models.model_configs import model_config
from wafer_jax.models.parameters import num_parameters
from wafer_jax.models.placement import place

ATTRIBUTES = FAMILIES["minimax m2"]


def test_the_published_configuration():
    """Parameters counted by hand; the model card says 230 billion."""
    config = model_config("minimax-m2")
    attention = 2 * 48 * 128 * 3072 + 2 * 8 * 128 * 3072 + 48 * 128 + 8 * 128
    experts = 256 * (3 * 3072 * 1536 + 3072 + 1)
    layer = attention + experts + 2 * 3072
    assert num_parameters(config) == 62 * layer + 2 * 200064 * 3072 + 3072
    assert round(num_parameters(config) / 1e9) == 229
    assert config.rope == RopeConfig(5e6, rotary_dim=64)
    assert config.experts == Experts(256, 8, scoring="sigmoid")
    assert (config.bos_token_id, config.eos_token_ids) == (200034, (200020,))


def test_transformers_5_spells_it_otherwise():
    new = {k: v for k, v in ATTRIBUTES.items() if k not in ("rope_theta", "torch_dtype")}
    rope = {"rope_theta": 5e6, "rope_type": "default", "partial_rotary_factor": 0.4}
    assert read_config({**new, "rope_parameters": rope}) == read_config(ATTRIBUTES)
    without = {**new, "rotary_dim": None, "rope_parameters": rope}
    assert read_config(without) == read_config(ATTRIBUTES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scoring_func": "softmax"}, "scoring_func='softmax' is unsupported (must be 'sigmoid')"),
        ({"qk_norm_type": "per_head"}, "qk_norm_type='per_head' is unsupported"),
        ({"use_routing_bias": False}, "use_routing_bias=False is unsupported"),
        ({"shared_intermediate_size": 20}, "shared_intermediate_size=20 is unsupported"),
        ({"attn_type_list": [1, 0]}, "attn_type_list=[1, 0] must be 2 times 1"),
        ({"attn_type_list": [1]}, "attn_type_list=[1] must be 2 times 1"),
        ({"rotary_dim": 12}, "rotary_dim=12 is outside 2..10"),
        ({"rotary_dim": "4"}, "rotary_dim='4' must be an integer"),
        ({"rotary_dim": 3}, "RoPE turns 3 elements"),
        ({"partial_rotary_factor": 0.6}, "rotary_dim=4 and partial_rotary_factor=0.6 differ"),
        ({"head_dim": None}, "head_dim is missing"),
        ({"rope_theta": None}, "rope_theta is missing"),
        ({"num_local_experts": None}, "num_experts is missing"),
        ({"use_sliding_window": False}, "unknown attribute 'use_sliding_window'=False"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(WaferError) as caught:
        read_config({**ATTRIBUTES, **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_correction_chooses_and_does_not_weigh():
    rng = np.random.default_rng(0)
    experts = Experts(count=9, chosen=3, scoring="sigmoid")
    scores, correction = rng.standard_normal((5, 9)), rng.standard_normal(9)
    share = 1 / (1 + np.exp(-scores))
    best = np.argsort(-(share + correction), axis=-1)[:, :3]
    assert (np.sort(best) != np.sort(np.argsort(-share, axis=-1)[:, :3])).any()
    wanted = np.take_along_axis(share, best, axis=-1)
    wanted = wanted / wanted.sum(axis=-1, keepdims=True)
    arrays = (jnp.asarray(a, jnp.float32) for a in (scores, correction))
    scores32, correction32 = arrays
    numbers, weights = RULES["sigmoid"].choose(scores32, experts, correction32)
    np.testing.assert_array_equal(numbers, best)
    np.testing.assert_allclose(weights, wanted, rtol=1e-6)
    spread = np.zeros((5, 9))
    np.put_along_axis(spread, best, wanted, axis=-1)
    np.testing.assert_allclose(weights_of_all(scores32, experts, correction32), spread, rtol=1e-6)


@pytest.mark.parametrize("kv_heads", [1, 3])
@pytest.mark.parametrize("mesh", [(1, 1), (2, 7), (3, 40)])
def test_all_heads_are_normalised_together(mesh, kv_heads):
    """Several heads in a column, padded pairs, idle columns; every row has tokens of its own."""
    config = read_config({**ATTRIBUTES, "num_key_value_heads": kv_heads})
    layout = LayerLayout(config, mesh)
    rng = np.random.default_rng(0)
    for index, size in ((layout.q_index, 60), (layout.kv_index[:, None], 10 * kv_heads)):
        rows, weight = rng.standard_normal((mesh[0], size)), rng.standard_normal(size)
        mean_square = (rows**2).mean(axis=-1, keepdims=True)
        expected = rows / np.sqrt(mean_square + config.rms_norm_eps) * weight
        tile = lambda v, index=index: np.stack(
            [cut(row.astype(np.float32), index) for row in v], axis=-2
        )
        norm = jnp.asarray(cut(weight.astype(np.float32), index))
        found = np.asarray(norm_of_all_heads(jnp.asarray(tile(rows)), norm, layout, 2))
        np.testing.assert_allclose(found, tile(expected), rtol=1e-5, atol=1e-6)
        assert not found[np.broadcast_to((index == PAD)[..., None, :], found.shape)].any()


def test_norms_of_all_heads_cost_one_allreduce_of_two_words_per_token():
    hw = hardware("wse2", mesh=(48, 48)).replace(sram_bytes=1 << 23)
    placement = place(model_config("minimax-m2"), hw, context=96, prompt=96)
    for costs, words in ((decode_costs(placement, 96), 2), (prefill_costs(placement, 96), 4)):
        (norms,) = [o for o in costs.layer if o.operator == "query and key norms"]
        assert norms.cycles - norms.compute_cycles == allreduce_ktree.cost(hw, words, 2, "x")
        assert norms.moved_bytes == 48 * 48 * words * 4


def test_the_correction_and_the_norms_take_their_memory():
    config = read_config({**ATTRIBUTES, "rotary_dim": None})
    plain = read_config({**FAMILIES["qwen3 moe"], "rms_norm_eps": 1e-5})
    sizes = [layer_bytes(LayerLayout(c, (2, 5)), "float32", 2, 1) for c in (config, plain)]
    pairs = 3  # of five in each of two columns, of three queries and a key
    norms = (3 + 1) * 2 * pairs - 2 * 2 * pairs
    assert sizes[0].weights_bytes - sizes[1].weights_bytes == 4 * (7 + norms)


def test_a_published_folder_in_fp8(tmp_path):
    """Block scales, plain routers and corrections, and a module for MTP behind the last layer."""
    checkpoint = tiny("minimax m2")
    tensors = dict(published(checkpoint))
    behind = {k: v for k, v in tensors.items() if k.startswith("model.layers.1.")}
    tensors |= {k.replace("layers.1.", "layers.2."): v for k, v in behind.items()}
    tensors["model.layers.2.eh_proj.weight"] = np.ones((48, 96), np.float32)
    projections = [
        n for n in tensors if n.endswith(("proj.weight", "w1.weight", "w2.weight", "w3.weight"))
    ]
    for name in projections:
        scale = np.full((1, 1), 0.37 * np.abs(tensors[name]).max(), np.float32)
        tensors[name] = (tensors[name] / scale).astype(ml_dtypes.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = scale
    quantization = {
        "activation_scheme": "dynamic",
        "fmt": "float8_e4m3fn",
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
    }
    config = {**ATTRIBUTES, "quantization_config": quantization}
    loaded = checkpoints.load(write_folder(tmp_path, tensors, config, shards=2))
    assert loaded.config == checkpoint.config
    assert set(loaded.weights) == set(checkpoint.weights)
    assert set(loaded.packed) == {n for n in loaded.weights if n.endswith("_proj.weight")}
    for name, values in checkpoint.weights.items():
        tolerance = 0.0625 * np.abs(values).max() if name in loaded.packed else 0
        np.testing.assert_allclose(loaded.weights[name], values, rtol=0, atol=tolerance)
    ids = IDS[:, :6]
    full, short = (DenseModel.from_checkpoint(c).forward(ids)[0] for c in (checkpoint, loaded))
    assert 0 < np.abs(full - short).max() < 0.5 * np.abs(full).max()


def test_only_the_modules_of_mtp_are_skipped(tmp_path):
    checkpoint = tiny("minimax m2")
    tensors = published(checkpoint)
    tensors["model.layers.5.input_layernorm.weight"] = np.ones(48, np.float32)
    with pytest.raises(WaferError, match=r"no place for: 'model.layers.5.input_layernorm.weight'"):
        checkpoints.load(write_folder(tmp_path, tensors, ATTRIBUTES))


def test_a_layer_that_the_configuration_does_not_count_is_no_module_of_mtp(tmp_path):
    attributes = {**ATTRIBUTES, "num_hidden_layers": 1, "attn_type_list": [1]}
    with pytest.raises(WaferError, match=r"no place for: 'model.layers.1.input_layernorm.weight'"):
        checkpoints.load(write_folder(tmp_path, published(tiny("minimax m2")), attributes))
