"""FP8 and MXFP4 against transformers' own dequantisation, and folders that are stored so."""

import json

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.tiny_llama import TINY, random_weights, safetensors_bytes, write_folder
from wafer_jax.errors import WaferError
from wafer_jax.models import checkpoints
from wafer_jax.models.families import read_config
from wafer_jax.models.quantized import fp8, mxfp4
from wafer_jax.models.quantized.stored import Quantization, parameters
from wafer_jax.models.safetensors_file import SafetensorsFile

BLOCK = (32, 24)  # cuts off blocks at both edges of TINY's matrices
FP8 = {"quant_method": "fp8", "weight_block_size": list(BLOCK), "activation_scheme": "dynamic"}
UP = "model.layers.0.mlp.up_proj.weight"


def bits(array):
    return np.ascontiguousarray(array).view(np.uint32)


def every_code(shape, seed=0):
    """Random finite e4m3 codes, subnormals and both zeros among them."""
    codes = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    return np.where(codes & 0x7F == 0x7F, 0, codes).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)


def scales_of(shape, seed=1):
    """From the smallest subnormal to what overflows."""
    exponents = np.random.default_rng(seed).uniform(-149, 127, shape)
    return np.exp2(exponents).astype(np.float32)


def as_torch(torch, codes):
    return torch.from_numpy(codes.view(np.uint8).copy()).view(torch.float8_e4m3fn)


@pytest.mark.hf
@pytest.mark.parametrize("shape", [(128, 128), (256, 384), (200, 300), (1, 130), (129, 1)])
def test_fp8_equals_transformers(shape):
    torch = pytest.importorskip("torch")
    reference = pytest.importorskip("transformers.integrations.finegrained_fp8")
    codes, scales = every_code(shape), scales_of(fp8.scale_shape(shape))
    with np.errstate(over="ignore"):
        found = fp8.dequantise(codes, scales)
    packed, scale = as_torch(torch, codes), torch.from_numpy(scales)
    whole = reference._dequantize_fp8_weight(packed, scale, [128, 128], torch.float32)
    assert np.array_equal(bits(found), bits(whole.numpy()))
    if shape[0] % 128 == shape[1] % 128 == 0:  # where the loader accepts it
        loaded = reference.Fp8Dequantize(None)._dequantize_one(packed, scale)
        assert np.array_equal(bits(found), bits(loaded.numpy()))


@pytest.mark.hf
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 2), (2, 7, 4)])
def test_mxfp4_equals_transformers(shape):
    torch = pytest.importorskip("torch")
    reference = pytest.importorskip("transformers.integrations.mxfp4")
    rng = np.random.default_rng(2)
    blocks = rng.integers(0, 256, (*shape, 16), dtype=np.uint8)
    for scales in (
        rng.integers(0, 256, shape, dtype=np.uint8),
        *(np.full(shape, extreme, np.uint8) for extreme in (0, 1, 126, 127, 252, 253, 254, 255)),
    ):
        found = mxfp4.dequantise(blocks, scales).swapaxes(1, 2)
        packed, scale = torch.from_numpy(blocks), torch.from_numpy(scales)
        whole = reference.convert_moe_packed_tensors(packed, scale, dtype=torch.float32).numpy()
        assert np.array_equal(bits(found), bits(whole))
        half = reference.convert_moe_packed_tensors(packed, scale)  # bfloat16, its default
        with np.errstate(invalid="ignore"):
            rounded = found.astype(ml_dtypes.bfloat16)
        assert np.array_equal(rounded.view(np.int16), half.view(torch.int16).numpy())


def test_the_low_nibble_comes_first():
    blocks = np.zeros((1, 16), np.uint8)
    blocks[0, 0] = 0x21
    values = mxfp4.dequantise(blocks, np.array([128], np.uint8))
    assert values[:3].tolist() == [1.0, 2.0, 0.0]  # codes 1 and 2 are 0.5 and 1, times 2


def fp8_tensors(weights, scale_dtype=np.float32):
    """Projections in FP8, the rest as it is."""
    tensors, expected = {}, {}
    for name, values in weights.items():
        tensors[name] = expected[name] = values
        if "proj" in name:
            _, scales = fp8.quantise(values, BLOCK)
            scales = np.exp2(np.ceil(np.log2(scales))).astype(scale_dtype)
            rows = np.arange(values.shape[0])[:, None] // BLOCK[0]
            columns = np.arange(values.shape[1]) // BLOCK[1]
            scale = scales.astype(np.float32)[rows, columns]
            codes = (values / scale).astype(ml_dtypes.float8_e4m3fn)
            tensors[name], tensors[f"{name}_scale_inv"] = codes, scales
            expected[name] = codes.astype(np.float32) * scale
    return tensors, expected


WEIGHTS = random_weights(read_config(TINY))
TENSORS, EXPECTED = fp8_tensors(WEIGHTS)
CONFIG = {**TINY, "quantization_config": FP8}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("scale_dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e8m0fnu])
def test_an_fp8_folder(tmp_path, shards, scale_dtype):
    tensors, expected = fp8_tensors(WEIGHTS, scale_dtype)
    found = checkpoints.load(write_folder(tmp_path, tensors, CONFIG, shards)).weights
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
        np.testing.assert_allclose(values, WEIGHTS[name], rtol=0, atol=0.07 * np.abs(values).max())


@pytest.mark.hf
def test_an_fp8_folder_as_transformers_loads_it(tmp_path):
    """Whole models in blocks that divide every matrix, which that loader wants."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    weights = random_weights(read_config(TINY))
    block, tensors = (4, 2), dict(weights)
    for name in [n for n in weights if "proj" in n]:
        tensors[name], tensors[f"{name}_scale_inv"] = fp8.quantise(weights[name], block)
    quantization = {**FP8, "weight_block_size": list(block)}
    write_folder(tmp_path, tensors, {**TINY, "quantization_config": quantization})
    settings = transformers.FineGrainedFP8Config(weight_block_size=block, dequantize=True)
    model = transformers.LlamaForCausalLM.from_pretrained(
        tmp_path, quantization_config=settings, dtype=torch.float32
    )
    found = checkpoints.load(tmp_path).weights
    for name, values in model.state_dict().items():
        assert np.array_equal(bits(found[name]), bits(values.numpy())), name


def refusal(source):
    with pytest.raises(WaferError) as caught:
        checkpoints.load(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"quant_method": "awq"}, "quant_method 'awq' is not supported, only 'fp8' (block scales)"),
        ({"quant_method": None}, "quant_method None is not supported"),
        ({"quant_method": ["fp8"]}, "quant_method ['fp8'] is not supported"),
        ({"weight_block_size": None}, "weight_block_size=None must be two sizes"),
        ({"weight_block_size": [128]}, "must be two sizes"),
        ({"weight_block_size": [0, 128]}, "outside 1.."),
        ({"weight_block_size": [True, 128]}, "outside 1.."),
        ({"weight_block_size": [1 << 40, 128]}, "outside 1.."),
        ({"activation_scheme": "static"}, "activation_scheme='static' is unsupported"),
        ({"fmt": "e5m2"}, "fmt='e5m2' is unsupported (must be 'e4m3' or 'float8_e4m3fn')"),
        ({"odd": 3}, "unknown attribute 'odd'=3"),
        ({"weight_block_size": [16, 24]}, "in blocks of 16x24 need"),
    ],
)
def test_a_quantization_that_is_not_supported(tmp_path, changes, message):
    config = {**TINY, "quantization_config": {**FP8, **changes}}
    assert message in refusal(write_folder(tmp_path, TENSORS, config))


def without(name):
    return {k: v for k, v in TENSORS.items() if k != name}


NAN = TENSORS[UP].copy()
NAN.view(np.uint8)[2, 3] = 0x7F
SCALE = f"{UP}_scale_inv"
BAD = {
    "no scales": (without(SCALE), f"{SCALE!r} is missing"),
    "no codes": (without(UP), f"tensor {SCALE!r} has no codes"),
    "plain codes": ({**TENSORS, UP: WEIGHTS[UP]}, f"tensor {SCALE!r} has no codes"),
    "integer scales": (
        {**TENSORS, SCALE: TENSORS[SCALE].astype(np.uint8)},
        f"tensor {SCALE} is stored as 'U8'",
    ),
    "infinite scale": (
        {**TENSORS, SCALE: np.full_like(TENSORS[SCALE], np.inf)},
        f"tensor {SCALE} has",
    ),
    "NaN scale": (
        {**TENSORS, SCALE: np.full((3, 2), 255, np.uint8).view(ml_dtypes.float8_e8m0fnu)},
        f"tensor {SCALE} has 6 NaN",
    ),
    "overflow": ({**TENSORS, SCALE: np.full((3, 2), 3e38, np.float32)}, f"tensor {UP} has"),
    "NaN code": ({**TENSORS, UP: NAN}, f"tensor {UP} has 1 NaN or infinite value(s), the first"),
    "a vector": (
        {
            **TENSORS,
            "model.norm.weight": TENSORS[UP][0],
            "model.norm.weight_scale_inv": np.ones((1, 1), np.float32),
        },
        "need None",
    ),
}


@pytest.mark.parametrize(("tensors", "message"), BAD.values(), ids=BAD.keys())
def test_fp8_tensors_that_do_not_belong_together(tmp_path, tensors, message):
    assert message in refusal(write_folder(tmp_path, tensors, CONFIG))


def test_codes_without_a_quantization_config(tmp_path):
    text = refusal(write_folder(tmp_path, {**WEIGHTS, UP: TENSORS[UP]}, TINY))
    assert "is stored as 'F8_E4M3'" in text
    assert "quantization_config" in text
    assert "must be an object" in refusal(
        write_folder(tmp_path, TENSORS, {**TINY, "quantization_config": "fp8"})
    )


EXPERTS = "model.layers.0.mlp.experts.gate_up_proj"


def mxfp4_file(tmp_path, **changes):
    rng = np.random.default_rng(4)
    tensors = {
        f"{EXPERTS}_blocks": rng.integers(0, 256, (3, 10, 2, 16), dtype=np.uint8),
        f"{EXPERTS}_scales": rng.integers(100, 140, (3, 10, 2), dtype=np.uint8),
        "model.norm.weight": np.ones(4, np.float32),
    }
    for name, values in changes.items():
        tensors[f"{EXPERTS}_{name}"] = values
    tensors = {name: values for name, values in tensors.items() if values is not None}
    (tmp_path / "experts.safetensors").write_bytes(safetensors_bytes(tensors))
    file = SafetensorsFile(tmp_path / "experts.safetensors")
    return tensors, dict.fromkeys(file.tensors, file)


def test_mxfp4_experts_of_a_file(tmp_path):
    tensors, homes = mxfp4_file(tmp_path)
    found = parameters(homes, Quantization("mxfp4"))
    assert {name: p.shape for name, p in found.items()} == {
        EXPERTS: (3, 64, 10),
        "model.norm.weight": (4,),
    }
    values = found[EXPERTS].read()
    assert values.shape == (3, 64, 10)
    blocks, scales = tensors[f"{EXPERTS}_blocks"], tensors[f"{EXPERTS}_scales"]
    byte, power = int(blocks[1, 4, 1, 7]), 2.0 ** (int(scales[1, 4, 1]) - 127)
    assert values[1, 32 + 14, 4] == mxfp4.VALUES[byte % 16] * power
    assert values[1, 32 + 15, 4] == mxfp4.VALUES[byte // 16] * power


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scales": None}, "has no"),
        ({"blocks": None}, "has no"),
        ({"scales": np.ones((3, 10, 2), np.float32)}, "is 'F32', MXFP4 is 'U8'"),
        ({"scales": np.ones((3, 10, 3), np.uint8)}, r"needs \[E, out, G, 16\]"),
        ({"blocks": np.ones((3, 10, 2, 8), np.uint8)}, r"needs \[E, out, G, 16\]"),
        ({"scales": np.full((3, 10, 2), 255, np.uint8)}, r"has NaN \(255\)"),
        ({"scales": np.full((3, 10, 2), 254, np.uint8)}, "NaN or infinite"),
    ],
)
def test_mxfp4_tensors_that_do_not_belong_together(tmp_path, changes, message):
    _, homes = mxfp4_file(tmp_path, **changes)
    with pytest.raises(WaferError, match=message):
        parameters(homes, Quantization("mxfp4"))[EXPERTS].read()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("fp8"), TENSORS, CONFIG)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(key=st.sampled_from([*FP8, "fmt", "scale_fmt", None]), value=JSON)
def test_any_value_anywhere_in_the_quantization(folder, key, value):
    """Refused in a line, or the very weights that the file holds."""
    quantization = {**FP8, key: value} if key else value
    config = {**TINY, "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config))
    found, refused = EXPECTED, ""
    try:
        found = checkpoints.load(folder).weights
    except WaferError as error:
        refused = str(error)
    assert "\n" not in refused
    for name, values in EXPECTED.items():
        np.testing.assert_array_equal(found[name], values)


CONTENT = safetensors_bytes(TENSORS)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(position=st.integers(0, len(CONTENT) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_in_an_fp8_file(folder, position, bit):
    """Refused, or wrong only in the element, or the block of the scale, that was damaged."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    content = bytearray(CONTENT)
    content[position] ^= 1 << bit
    (folder / "model.safetensors").write_bytes(content)
    try:
        found = checkpoints.load(folder).weights
    except WaferError:
        return
    assert {k: v.shape for k, v in found.items()} == {k: v.shape for k, v in EXPECTED.items()}
    different = sum(int((found[name] != values).sum()) for name, values in EXPECTED.items())
    assert different <= BLOCK[0] * BLOCK[1]
