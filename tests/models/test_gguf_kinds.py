"""Every quantised kind of GGUF that is promised, from a file, against what the blocks mean."""

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.tiny_llama import TINY, random_weights, write_gguf
from wafer_jax.errors import WaferError
from wafer_jax.models import checkpoints
from wafer_jax.models.families import read_config
from wafer_jax.models.gguf_file import GGUFFile

Kind = gguf.GGMLQuantizationType
# Rows that fill blocks of 32, and such that fill super-blocks of 256.
CONFIG = read_config(
    {**TINY, "hidden_size": 96, "intermediate_size": 64, "head_dim": 32, "num_hidden_layers": 1}
)
WIDE = read_config(
    {
        **TINY,
        "hidden_size": 256,
        "intermediate_size": 512,
        "head_dim": 128,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 1,
    }
)


def halves(raw, *places):
    """Two bytes at each place of a block as a float16."""
    return [float(raw[place : place + 2].view(np.float16)[0]) for place in places]


def q4_0(raw):
    (d,) = halves(raw, 0)
    nibbles = [b & 15 for b in raw[2:18]] + [b >> 4 for b in raw[2:18]]
    return [d * (int(n) - 8) for n in nibbles]


def q4_1(raw):
    d, m = halves(raw, 0, 2)
    nibbles = [b & 15 for b in raw[4:20]] + [b >> 4 for b in raw[4:20]]
    return [d * int(n) + m for n in nibbles]


def q8_0(raw):
    (d,) = halves(raw, 0)
    return [d * int(q) for q in raw[2:34].view(np.int8)]


def scale_and_min_k4(j, packed):
    """``get_scale_min_k4`` of ggml-quants.c: 6 bits each, eight of each in twelve bytes."""
    q = [int(b) for b in packed]
    if j < 4:
        return q[j] & 63, q[j + 4] & 63
    return (q[j + 4] & 15) | (q[j - 4] >> 6) << 4, (q[j + 4] >> 4) | (q[j] >> 6) << 4


def q4_k(raw):
    d, least = halves(raw, 0, 2)
    values = []
    for j in range(8):
        scale, minimum = scale_and_min_k4(j, raw[4:16])
        part = raw[16 + 32 * (j // 2) :][:32]
        nibbles = [int(b) >> 4 if j % 2 else int(b) & 15 for b in part]
        values += [d * scale * n - least * minimum for n in nibbles]
    return values


def q5_k(raw):
    d, least = halves(raw, 0, 2)
    values = []
    for j in range(8):
        scale, minimum = scale_and_min_k4(j, raw[4:16])
        for i in range(32):
            low = int(raw[48 + 32 * (j // 2) + i])
            low = low >> 4 if j % 2 else low & 15
            code = low + 16 * (int(raw[16 + i]) >> j & 1)
            values.append(d * scale * code - least * minimum)
    return values


def q6_k(raw):
    """Values in order: 16 groups of 16, low nibbles in 128 bytes, high pairs in 64."""
    (d,) = halves(raw, 208)
    scales = raw[192:208].view(np.int8)
    values = []
    for place in range(256):
        half, inside = divmod(place, 128)
        quarter, i = divmod(inside, 32)
        low = int(raw[64 * half + i + 32 * (quarter % 2)])
        low = low >> 4 if quarter > 1 else low & 15
        high = int(raw[128 + 32 * half + i]) >> 2 * quarter & 3
        values.append(d * int(scales[place // 16]) * ((low | high << 4) - 32))
    return values


def q2_k(raw):
    d, least = halves(raw, 80, 82)
    values = []
    for place in range(256):
        half, inside = divmod(place, 128)
        shift, i = divmod(inside, 32)
        code = int(raw[16 + 32 * half + i]) >> 2 * shift & 3
        scale = int(raw[place // 16])
        values.append(d * (scale & 15) * code - least * (scale >> 4))
    return values


def q3_k(raw):
    """6-bit scales: low nibbles in eight bytes, high pairs in four; one bit per code in 32."""
    (d,) = halves(raw, 108)
    packed, values = [int(b) for b in raw[96:108]], []
    for place in range(256):
        half, inside = divmod(place, 128)
        shift, i = divmod(inside, 32)
        code = int(raw[32 + 32 * half + i]) >> 2 * shift & 3
        code -= 0 if int(raw[i]) >> (4 * half + shift) & 1 else 4
        group = place // 16
        low = packed[group % 8] >> (4 if group >= 8 else 0) & 15
        high = packed[8 + group % 4] >> 2 * (group // 4) & 3
        values.append(d * ((low | high << 4) - 32) * code)
    return values


MEANING = {
    Kind.Q4_0: q4_0, Kind.Q4_1: q4_1, Kind.Q8_0: q8_0, Kind.Q2_K: q2_k, Kind.Q3_K: q3_k,
    Kind.Q4_K: q4_k, Kind.Q5_K: q5_k, Kind.Q6_K: q6_k,
}  # fmt: skip
HALVES = {
    Kind.Q4_0: (0,), Kind.Q4_1: (0, 2), Kind.Q8_0: (0,), Kind.Q2_K: (80, 82), Kind.Q3_K: (108,),
    Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2), Kind.Q6_K: (208,),
}  # fmt: skip
"""Where a block has its float16 factors."""


def random_blocks(kind, shape, seed):
    """Any bytes, with factors that are numbers."""
    items, size = gguf.GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (shape[0], shape[1] // items, size), dtype=np.uint8)
    for place in HALVES[kind]:
        factors = rng.uniform(-0.1, 0.1, raw.shape[:2]).astype(np.float16)
        raw[..., place : place + 2] = factors[..., None].view(np.uint8)
    return raw.reshape(shape[0], -1)


@pytest.mark.parametrize("kind", MEANING, ids=lambda k: k.name)
def test_blocks_mean_what_ggml_says(tmp_path, kind):
    weights = random_weights(WIDE)
    name = "blk.0.ffn_down.weight"
    raw = random_blocks(kind, (3, 512), kind.value)
    writer = gguf.GGUFWriter(tmp_path / "one.gguf", "llama")
    writer.add_tensor("first", weights["model.norm.weight"])
    writer.add_tensor(name, raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = GGUFFile(tmp_path / "one.gguf").read(name)
    blocks = raw.reshape(-1, gguf.GGML_QUANT_SIZES[kind][1])
    expected = np.concatenate([MEANING[kind](block) for block in blocks]).reshape(3, 512)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [Kind.Q4_0, Kind.Q4_1, Kind.Q8_0], ids=lambda k: k.name)
def test_a_model_through_the_quantiser(tmp_path, kind):
    weights = random_weights(CONFIG)
    path = write_gguf(tmp_path / "t.gguf", CONFIG, weights, quantise=kind)
    for name, values in checkpoints.load(path).weights.items():
        expected = weights[name]
        if expected.ndim == 2:
            expected = gguf.quants.dequantize(gguf.quants.quantize(expected, kind), kind)
        np.testing.assert_array_equal(values, expected, err_msg=name)
        steps = 127 if kind is Kind.Q8_0 else 7
        spread = np.abs(weights[name]).max()
        assert np.abs(values - weights[name]).max() <= spread / steps, name


@pytest.mark.parametrize("kind", [Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K])
def test_a_model_of_super_blocks(tmp_path, kind, monkeypatch):
    """Rows of q and k are put in order while they are whole blocks."""
    weights = random_weights(WIDE)
    stored = {}

    def quantise(values, kind):
        return stored.setdefault(values.tobytes(), random_blocks(kind, values.shape, len(stored)))

    monkeypatch.setattr(gguf.quants, "quantize", quantise)
    path = write_gguf(tmp_path / "t.gguf", WIDE, weights, quantise=kind)
    found = checkpoints.load(path).weights
    file = GGUFFile(path)
    assert {file.tensors[n].kind for n in file.tensors if "norm" not in n} == {kind}
    up, q = "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.weight"
    np.testing.assert_array_equal(found[up], file.read("blk.0.ffn_up.weight"))
    interleaved = file.read("blk.0.attn_q.weight")
    for head in range(2):
        rows = interleaved[128 * head : 128 * head + 128]
        np.testing.assert_array_equal(found[q][128 * head : 128 * head + 64], rows[::2])
        np.testing.assert_array_equal(found[q][128 * head + 64 : 128 * head + 128], rows[1::2])


def test_rows_that_do_not_fill_blocks_and_factors_that_are_no_numbers(tmp_path):
    config = read_config({**TINY, "hidden_size": 32, "num_hidden_layers": 1})
    weights = random_weights(config)
    quantise = Kind.Q4_0
    with pytest.raises(gguf.quants.QuantError):  # so no such file is ever written
        write_gguf(tmp_path / "t.gguf", config, weights, quantise=quantise)
    good = write_gguf(tmp_path / "t.gguf", CONFIG, random_weights(CONFIG), quantise=quantise)
    file = GGUFFile(good)
    info = file.tensors["blk.0.ffn_up.weight"]
    data = bytearray(good.read_bytes())
    data[info.offset : info.offset + 2] = np.float16(np.nan).tobytes()
    good.write_bytes(data)
    with pytest.raises(WaferError, match=r"blk\.0\.ffn_up\.weight has 32 NaN"):
        checkpoints.load(good)
    header = good.read_bytes()
    place = header.index(b"blk.0.ffn_up.weight") + len("blk.0.ffn_up.weight") + 4
    assert header[place : place + 8] == (96).to_bytes(8, "little")
    for width, message in ((95, "do not fill blocks of 32"), (1 << 60, "truncated or damaged")):
        good.write_bytes(header[:place] + width.to_bytes(8, "little") + header[place + 8 :])
        with pytest.raises(WaferError, match=message):
            checkpoints.load(good)


def test_a_kind_that_is_not_what_was_written(tmp_path):
    """One bit makes Q4_0 of Q4_1, whose blocks are shorter: every weight would be wrong."""
    good = write_gguf(tmp_path / "t.gguf", CONFIG, random_weights(CONFIG), quantise=Kind.Q4_1)
    content = good.read_bytes()
    last = max(GGUFFile(good).tensors.values(), key=lambda t: t.offset).name
    for name, message in (
        ("blk.0.attn_v.weight", "does not start where"),
        (last, "bytes follow the last"),
    ):
        info = GGUFFile(good).tensors[name]
        text = len(name).to_bytes(8, "little") + name.encode()
        place = content.index(text) + len(text) + 4 + 8 * len(info.shape)
        damaged = bytearray(content)
        damaged[place] = Kind.Q4_0
        (tmp_path / "bad.gguf").write_bytes(damaged)
        with pytest.raises(WaferError, match=message):
            GGUFFile(tmp_path / "bad.gguf")


@pytest.fixture(scope="module")
def quantised(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quantised")
    path = write_gguf(folder / "t.gguf", CONFIG, random_weights(CONFIG), quantise=Kind.Q4_1)
    return path, path.read_bytes(), checkpoints.load(path)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.integers(0, 1 << 20), bit=st.integers(0, 7), in_header=st.booleans())
def test_a_flipped_bit_in_a_quantised_file(quantised, place, bit, in_header):
    """Refused; or one block differs at most, packed and unpacked alike."""
    path, good, whole = quantised
    start = min(info.offset for info in GGUFFile(path).tensors.values())
    place = place % start if in_header else start + place % (len(good) - start)
    content = bytearray(good)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    try:
        found = checkpoints.load(path)
    except WaferError:
        return
    finally:
        path.write_bytes(good)
    assert {k: v.shape for k, v in found.weights.items()} == {
        k: v.shape for k, v in whole.weights.items()
    }
    different = sum(int((found.weights[n] != w).sum()) for n, w in whole.weights.items())
    assert different <= (0 if in_header else 32)
