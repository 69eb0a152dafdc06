"""Every family with weights in every kind of format: on the mesh, in files, in the SRAM."""

import ml_dtypes
import numpy as np
import pytest

from models.golden_families import IDS, tiny
from models.tiny_families import FAMILIES
from models.tiny_llama import write_folder
from wafer_jax import hardware
from wafer_jax.models import checkpoints
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_costs import decode_costs, prefill_costs
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_memory import layer_bytes
from wafer_jax.models.mesh_model import MeshModel
from wafer_jax.models.packed_tiles import PackedTiles
from wafer_jax.models.placement import place
from wafer_jax.models.precision import at_precision
from wafer_jax.models.quantized.packed import pack

HW = hardware("wse2", mesh=(2, 5)).replace(sram_bytes=1 << 20)
MOE = read_config(FAMILIES["qwen3 moe"])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("qwen2", "q4_1"),
        ("qwen3", "fp8"),
        ("qwen3 moe", "q8_0"),
        ("qwen3 moe", "bfloat16"),
        ("qwen3.5 moe", "fp8"),
    ],
)
def test_a_family_equals_the_dense_reference_at_its_precision(name, dtype):
    checkpoint, ids = tiny(name), IDS[0][:10]
    dense = DenseModel.from_weights(checkpoint.config, at_precision(checkpoint, dtype))
    logits = np.asarray(dense.forward(ids)[0])[0]
    model = MeshModel(checkpoint, HW, dtype=dtype)
    output = model.prefill(ids[:7], context=len(ids))
    for t in range(7, len(ids)):
        assert_close(output.logits, logits[t - 1])
        output = model.decode(int(ids[t]), output.cache)
    assert_close(output.logits, logits[-1])
    full = np.asarray(DenseModel.from_checkpoint(checkpoint).forward(ids)[0])[0]
    assert np.abs(full - logits).max() > 1e-4 * np.abs(full).max()  # it is another model


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


def test_experts_are_packed_and_their_router_is_not():
    (layers,) = MeshModel(tiny("qwen3 moe"), HW, dtype="q4_0").weights.layers
    assert isinstance(layers.feed_forward["gate_up"], PackedTiles)
    assert isinstance(layers.feed_forward["down"], PackedTiles)
    router = layers.feed_forward["router"]
    assert not isinstance(router, PackedTiles)
    assert router.dtype == np.float32


def test_experts_summed_in_float16_are_another_model_but_a_close_one():
    model = MeshModel(tiny("qwen3 moe"), HW, dtype="float16")
    short = model.accumulating("float16")
    wide, narrow = (
        m.decode(3, m.prefill(IDS[0][:7], context=8).cache).logits for m in (model, short)
    )
    assert 0 < np.abs(wide - narrow).max() < 2e-2 * np.abs(wide).max()


def test_an_fp8_folder_of_experts_keeps_its_codes(tmp_path):
    """As Qwen3-30B-A3B-FP8: codes and block scales of every projection, a plain router."""
    checkpoint = tiny("qwen3 moe")
    tensors = dict(checkpoint.weights)
    for name in [n for n in tensors if n.endswith("_proj.weight")]:
        scale = np.full((1, 1), 0.37 * np.abs(tensors[name]).max(), np.float32)
        tensors[name] = (tensors[name] / scale).astype(ml_dtypes.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = scale
    quantization = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"],
    }
    config = {**FAMILIES["qwen3 moe"], "quantization_config": quantization}
    loaded = checkpoints.load(write_folder(tmp_path, tensors, config, shards=2))
    assert loaded.config == checkpoint.config
    assert set(loaded.packed) == {n for n in loaded.weights if n.endswith("_proj.weight")}
    found = at_precision(loaded, "fp8")
    for name in loaded.packed:
        np.testing.assert_array_equal(found[name], loaded.weights[name])
    down = "model.layers.0.mlp.experts.6.down_proj.weight"
    assert not np.array_equal(found[down], pack(loaded.weights[down], "fp8").unpack())


def test_bytes_of_packed_experts():
    """Counted by hand on one PE, where no block is cut between PEs."""
    expert = [pack(np.zeros(shape, np.float32), "q4_0") for shape in 2 * [(32, 48)] + [(48, 32)]]
    factors = sum(2 * matrix.scales.size for matrix in expert)
    codes = sum(matrix.codes.size // 2 for matrix in expert)
    moe = read_config({**FAMILIES["qwen3 moe"], "moe_intermediate_size": 32})
    dense = read_config({**FAMILIES["qwen3"], "intermediate_size": 32})
    with_experts, without = (
        layer_bytes(LayerLayout(config, (1, 1)), "q4_0", 1, 1).weights_bytes
        for config in (moe, dense)
    )
    assert with_experts - without == 6 * (codes + factors) + 4 * 7 * 48


def test_packed_experts_cost_unpacking_and_their_router_none():
    packed, plain = (place(MOE, HW, context=32, prompt=16, dtype=d) for d in ("q4_1", "float16"))
    for costs in (decode_costs, prefill_costs):
        before = {o.operator: o.cycles for o in costs(plain, 16).layer}
        slower = {o.operator for o in costs(packed, 16).layer if o.cycles > before[o.operator]}
        assert slower == {"q, k, v", "o", "gate, up", "down"}
