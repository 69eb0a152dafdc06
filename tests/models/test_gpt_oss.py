"""GPT-OSS: its published configurations, MXFP4 experts, sinks, windows and what they take."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from models.golden_families import IDS, PROMPT, golden, tiny
from models.published import published
from models.tiny_families import FAMILIES
from models.tiny_llama import write_folder
from wafer_jax import hardware
from wafer_jax.errors import WaferError
from wafer_jax.models import checkpoints, mesh_decode
from wafer_jax.models.activations import ClampedSwiGLU
from wafer_jax.models.config import Experts
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.families import FAMILIES as READERS
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_cache import MeshCache
from wafer_jax.models.mesh_costs import decode_costs, prefill_costs
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_memory import layer_bytes
from wafer_jax.models.mesh_model import MeshModel
from wafer_jax.models.model_configs import model_config
from wafer_jax.models.packed_tiles import PackedTiles
from wafer_jax.models.placement import place
from wafer_jax.models.precision import at_precision
from wafer_jax.models.quantized import mxfp4

NAME = "gpt-oss"
ATTRIBUTES = FAMILIES[NAME]
HW = hardware("wse2", mesh=(2, 5)).replace(sram_bytes=1 << 20)


@pytest.mark.parametrize(
    ("name", "layers", "experts"), [("gpt-oss-20b", 24, 32), ("gpt-oss-120b", 36, 128)]
)
def test_published_configurations(name, layers, experts):
    config = model_config(name)
    assert (config.num_layers, config.attention, config.window) == (
        layers,
        ("sliding", "full"),
        128,
    )
    assert config.experts == Experts(experts, 4, scoring="softmax_of_chosen", router_bias=True)
    assert config.activation == ClampedSwiGLU(1.702, 7.0)
    assert (config.sinks, config.qkv_bias, config.out_bias, config.ffn_bias) == (True,) * 4
    scaling = config.rope.scaling
    assert scaling is not None
    assert not scaling.whole_places
    assert scaling.magnitude == pytest.approx(1.3466, abs=1e-4)


def test_published_models_are_placed_in_mxfp4():
    small = place(model_config("gpt-oss-20b"), hardware("wse3", mesh=(240, 240)), dtype="mxfp4")
    large = place(model_config("gpt-oss-120b"), hardware("wse3", mesh=(360, 360)), dtype="mxfp4")
    assert len(small.regions) == 26
    assert len(large.regions) == 38
    for placement in (small, large):
        sliding, full = (r.memory.kv_bytes for r in placement.regions[1:3])
        assert sliding <= full
        assert decode_costs(placement, 4096).tokens_per_s > 100


def test_both_spellings_are_one_configuration():
    old = ATTRIBUTES
    new = {k: v for k, v in old.items() if k not in ("layer_types", "rope_scaling", "rope_theta")}
    new["rope_parameters"] = {**old["rope_scaling"], "rope_theta": 150000}
    new |= {"dtype": "bfloat16", "experts_per_token": 3}
    assert read_config(new) == read_config(old)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_types": ["full_attention"] * 3}, "must list 4 layers"),
        ({"layer_types": ["linear_attention"] * 4}, "'linear_attention'; implemented is 'sliding"),
        ({"layer_types": [[]] * 4}, r"layer_types has \[\]"),
        ({"sliding_window": None}, "sliding_window is missing"),
        ({"sliding_window": 0}, "sliding_window=0 is outside"),
        ({"experts_per_token": 4}, "experts_per_token and num_experts_per_tok differ"),
        ({"rope_scaling": None}, "rope_scaling is missing"),
        ({"attention_bias": None}, "attention_bias is missing"),
        ({"swiglu_limit": 0.0}, "swiglu_limit=0.0 must be above 0"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is unsupported"),
        ({"num_local_experts": None}, "num_experts is missing"),
        ({"mlp_bias": True}, "unknown attribute 'mlp_bias'"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(WaferError, match=message):
        read_config({**ATTRIBUTES, **change})


def test_no_window_is_needed_where_all_attention_is_full():
    config = read_config(
        {**ATTRIBUTES, "layer_types": 4 * ["full_attention"], "sliding_window": None}
    )
    assert (config.attention, config.window) == (("full",), None)


def test_a_window_that_all_tokens_fit_is_full_attention():
    """And a smaller one is not: the last logits see it, those of the first tokens do not."""
    name = "gpt-oss, full first"  # a window of 11
    ids, checkpoint = IDS[:, :14], tiny(name)
    all_of_them = replace(checkpoint.config, window=14)
    wide, full = (
        np.asarray(DenseModel.from_weights(config, checkpoint.weights).forward(ids)[0])
        for config in (all_of_them, replace(all_of_them, attention=("full",)))
    )
    narrow = golden()[name][:, :14]
    np.testing.assert_allclose(wide, full, atol=1e-5)
    np.testing.assert_allclose(narrow[:, :11], full[:, :11], atol=1e-5)
    assert np.abs(narrow[:, 11:] - full[:, 11:]).max() > 1e-2


@pytest.mark.parametrize("mesh", [(1, 1), pytest.param((3, 7), marks=pytest.mark.slow)])
def test_other_meshes(mesh):
    """Two key/value heads on one column, and rows and columns that stay idle."""
    model = MeshModel(tiny("gpt-oss, full first"), HW.replace(mesh=mesh))
    ids, logits = IDS[0], golden()["gpt-oss, full first"][0]
    output = model.prefill(ids[:PROMPT], context=len(ids))
    for t in range(PROMPT, len(ids)):
        np.testing.assert_allclose(output.logits, logits[t - 1], atol=1e-5 * np.abs(logits).max())
        output = model.decode(int(ids[t]), output.cache)
    np.testing.assert_allclose(output.logits, logits[-1], atol=1e-5 * np.abs(logits).max())


def test_windows_of_several_lengths_can_be_mapped_over():
    model = MeshModel(tiny(NAME), HW)
    prefilled = [model.prefill(IDS[0][:length], context=12).cache for length in (2, 7)]
    caches = [MeshCache.create(model.layout, prefilled[0].layers[1].slots), *prefilled]
    x = jnp.asarray(np.random.default_rng(0).standard_normal((3, 2, 32)), jnp.float32)
    step = lambda x, cache: mesh_decode.decode_layers(model.weights.layers, x, cache, model.layout)
    stack = lambda trees: jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    together = jax.jit(jax.vmap(step))(x, stack(caches))
    alone = stack([jax.jit(step)(*sequence) for sequence in zip(x, caches, strict=True)])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), together, alone)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """As the hub has it: experts in MXFP4, all else in bfloat16."""
    rng, tensors = np.random.default_rng(11), {}
    for name, values in published(tiny(NAME)).items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[name] = values.astype(ml_dtypes.bfloat16)
            continue
        count, inputs, outputs = values.shape
        shape = (count, outputs, inputs // mxfp4.GROUP)
        tensors[f"{name}_blocks"] = rng.integers(0, 256, (*shape, 16), dtype=np.uint8)
        tensors[f"{name}_scales"] = rng.integers(121, 125, shape, dtype=np.uint8)
    quantization = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"],
    }
    config = {**ATTRIBUTES, "quantization_config": quantization}
    folder = write_folder(tmp_path_factory.mktemp("mxfp4"), tensors, config, shards=2)
    return tensors, folder, checkpoints.load(folder)


def test_experts_of_an_mxfp4_folder(packed):
    """Rows of gate and up in turns, low nibble first, scales with a bias of 127."""
    tensors, _, loaded = packed
    prefix = "model.layers.2.mlp.experts"
    assert loaded.config == tiny(NAME).config
    assert set(loaded.packed) == {n for n in loaded.weights if ".experts." in n and "weight" in n}
    blocks, scales = (tensors[f"{prefix}.gate_up_proj_{what}"] for what in ("blocks", "scales"))
    for row, name in ((0, "gate"), (1, "up")):
        byte, scale = (
            int(blocks[5, 2 * 9 + row, 1, 7]),
            2.0 ** (int(scales[5, 2 * 9 + row, 1]) - 127),
        )
        weight = loaded.weights[f"{prefix}.5.{name}_proj.weight"]
        assert weight[9, 32 + 14] == mxfp4.VALUES[byte % 16] * scale
        assert weight[9, 32 + 15] == mxfp4.VALUES[byte // 16] * scale
    for name, source in loaded.packed.items():
        np.testing.assert_array_equal(source.read().unpack(), loaded.weights[name])


def test_mxfp4_experts_run_packed_beside_attention_in_bfloat16(packed):
    *_, loaded = packed
    ids = IDS[0][: PROMPT + 4]
    dense = DenseModel.from_weights(loaded.config, at_precision(loaded, "mxfp4"))
    logits = np.asarray(dense.forward(ids)[0])[0]
    model = MeshModel(loaded, HW, dtype="mxfp4")
    output = model.prefill(ids[:PROMPT], context=len(ids))
    for t in range(PROMPT, len(ids)):
        np.testing.assert_allclose(output.logits, logits[t - 1], atol=1e-5 * np.abs(logits).max())
        output = model.decode(int(ids[t]), output.cache)
    for layers in model.weights.layers:
        assert layers.attention["qkv"].dtype == jnp.bfloat16
        assert isinstance(layers.feed_forward["gate_up"], PackedTiles)
        assert isinstance(layers.feed_forward["down"], PackedTiles)
        assert layers.feed_forward["router"].dtype == jnp.float32
    np.testing.assert_array_equal(
        at_precision(loaded, "mxfp4")["model.layers.1.mlp.experts.3.up_proj.weight"],
        loaded.weights["model.layers.1.mlp.experts.3.up_proj.weight"],
    )


@pytest.mark.hf
def test_an_mxfp4_folder_as_transformers_reads_it(packed):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    _, folder, loaded = packed
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
        quantization_config=transformers.Mxfp4Config(dequantize=True),
    )
    ids = IDS[:, :12]
    with torch.no_grad():
        expected = model.eval()(torch.tensor(ids)).logits.float().numpy()
    found = np.asarray(DenseModel.from_checkpoint(loaded).forward(ids)[0])
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_a_fused_tensor_of_another_number_of_experts(tmp_path):
    tensors = published(tiny(NAME))
    name = "model.layers.3.mlp.experts.down_proj"
    with pytest.raises(WaferError, match=r"down_proj has shape \[6, 32, 64\], .* asks for 7"):
        checkpoints.load(write_folder(tmp_path, tensors | {name: tensors[name][:6]}, ATTRIBUTES))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model.layers.0.self_attn.sinks": None}, "1 tensor missing: 'model.layers.0.self_attn.s"),
        ({"model.layers.0.mlp.experts.gate_up_proj_bias": None}, "14 tensors missing"),
        (
            {"model.layers.0.mlp.gate.weight": (7, 64)},
            "'model.layers.0.mlp.gate.weight' is given t",
        ),
        ({"model.layers.0.mlp.experts.up_proj": (7, 64, 32)}, "has no place for: .*up_proj"),
        (
            {"model.layers.1.mlp.experts.gate_up_proj": (7, 64, 62)},
            r"\[31, 64\], .* for \[32, 64\]",
        ),
        ({"model.layers.1.mlp.experts.gate_up_proj": (7,)}, r"shape \[7\], .* asks for 7 experts"),
    ],
)
def test_tensors_that_do_not_fit(tmp_path, change, message):
    tensors = published(tiny(NAME))
    for name, shape in change.items():
        tensors.pop(name, None)
        if shape:
            tensors[name] = np.ones(shape, np.float32)
    with pytest.raises(WaferError, match=message):
        checkpoints.load(write_folder(tmp_path, tensors, ATTRIBUTES))


def test_published_names_and_back():
    checkpoint = tiny(NAME)
    found, expected = READERS["gpt_oss"].published(checkpoint.weights), published(checkpoint)
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_bytes_of_experts_in_mxfp4():
    """By hand, on one PE: 17 bytes per 32 weights of experts, two per weight of attention."""
    config = read_config(ATTRIBUTES)
    memory = layer_bytes(LayerLayout(config, (1, 1)), "mxfp4", 8, 1)
    experts = 7 * 3 * 64 * 32 * 17 // 32
    attention = 2 * (64 * (60 + 2 * 20) + 60 * 64)
    biases = (60 + 2 * 20) + 64 + 6 + 7 * (2 * 32 + 64) + 7
    others = 4 * (biases + 7 * 64 + 2 * 64)  # biases and sinks, the router, two norms
    assert memory.weights_bytes == experts + attention + others
    assert memory.kv_bytes == 2 * 2 * 20 * 5  # the window
    assert layer_bytes(LayerLayout(config, (1, 1)), "mxfp4", 8, 1, 1).kv_bytes == 2 * 2 * 20 * 8


def test_mxfp4_is_unpacked_in_products_of_experts_alone():
    config = read_config(ATTRIBUTES)
    packed, plain = (
        place(config, HW, context=32, prompt=16, dtype=d) for d in ("mxfp4", "bfloat16")
    )
    for costs in (decode_costs, prefill_costs):
        before = {o.operator: o.cycles for o in costs(plain, 16).layer}
        slower = {o.operator for o in costs(packed, 16).layer if o.cycles > before[o.operator]}
        assert slower == {"gate, up", "down"}


def test_operators_of_windows_sinks_and_biases():
    config = read_config(ATTRIBUTES)
    with_sinks, without = (
        {o.operator: o.cycles for o in decode_costs(place(c, HW, context=40), 40).layer}
        for c in (config, replace(config, sinks=False))
    )
    assert {n for n in with_sinks if with_sinks[n] > without[n]} == {"softmax", "window softmax"}
    assert with_sinks["window scores"] < with_sinks["scores"]
    assert {"KV ring", "KV shift", "router bias", "gate, up bias", "down bias"} <= set(with_sinks)
