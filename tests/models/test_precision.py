"""Weights in every format on the mesh: the same numbers as a dense reference at that precision."""

import gguf
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from models.test_quantized import FP8, bits
from models.tiny_llama import TINY, random_weights, write_folder, write_gguf
from wafer_jax import hardware
from wafer_jax.collectives import allreduce_ktree
from wafer_jax.errors import WaferError
from wafer_jax.models import checkpoints
from wafer_jax.models.checkpoints import Checkpoint
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_layout import blocks
from wafer_jax.models.mesh_model import MeshModel
from wafer_jax.models.mesh_products import matvec
from wafer_jax.models.mesh_tiles import cut_matrix
from wafer_jax.models.packed_tiles import column_numbers, numbers, pack_tiles
from wafer_jax.models.perplexity import perplexity
from wafer_jax.models.precision import at_precision, stored_weights
from wafer_jax.models.quantized import fp8
from wafer_jax.models.quantized.packed import FORMATS, PackedMatrix, from_blocks, pack

Kind = gguf.GGMLQuantizationType
GGML = {"q4_0": Kind.Q4_0, "q4_1": Kind.Q4_1, "q8_0": Kind.Q8_0, "mxfp4": Kind.MXFP4}
HW = hardware("wse2", mesh=(2, 3)).replace(sram_bytes=1 << 24)
IDS = np.random.default_rng(1).integers(0, 97, 12)
CONFIG = read_config(
    {**TINY, "hidden_size": 96, "intermediate_size": 64, "head_dim": 32, "num_hidden_layers": 1}
)


def tiny(config=CONFIG) -> Checkpoint:
    return Checkpoint(config, random_weights(config), None, "tiny", "here")


@pytest.mark.parametrize("name", GGML)
def test_packed_matrices_are_those_of_gguf(name):
    weight = np.random.default_rng(0).standard_normal((7, 96), dtype=np.float32)
    weight[3] *= 1e-3
    weight[4] *= 2000
    raw = gguf.quants.quantize(weight, GGML[name])
    expected = gguf.quants.dequantize(raw, GGML[name])
    assert np.array_equal(bits(pack(weight, name).unpack()), bits(expected))
    assert np.array_equal(bits(from_blocks(raw, name, 96).unpack()), bits(expected))


def test_packed_fp8_is_what_the_scales_say():
    weight = np.random.default_rng(0).standard_normal((150, 200), dtype=np.float32)
    codes, scales = fp8.quantise(weight)
    assert np.array_equal(bits(pack(weight, "fp8").unpack()), bits(fp8.dequantise(codes, scales)))
    assert np.abs(codes.astype(np.float32)).max() == 448
    np.testing.assert_allclose(pack(weight, "fp8").unpack(), weight, rtol=0, atol=0.15)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("parts", [1, 3, 7])
def test_tiles_have_the_numbers_of_the_matrix(name, parts):
    """Blocks are cut between PEs, rows come in any order, padding is zero."""
    weight = np.random.default_rng(0).standard_normal((10, 70), dtype=np.float32)
    matrix = pack(weight, name)
    rows, columns = blocks(70, parts), blocks(10, 4)
    rows = np.random.default_rng(1).permutation(rows.reshape(-1)).reshape(rows.shape)
    tiles = jax.tree.map(jnp.asarray, pack_tiles(matrix, rows, columns))
    expected = cut_matrix(matrix.unpack(), rows, columns)
    assert np.array_equal(bits(numbers(tiles)), bits(expected))
    some = jnp.array([3, 0, 9])
    assert np.array_equal(bits(column_numbers(tiles, some)), bits(expected[..., [3, 0, 9]]))
    held = tiles.scales.nbytes + tiles.codes.nbytes
    assert held < 4 * expected.size or parts == 7  # less than numbers, unless blocks are all cut


@pytest.mark.parametrize("name", ["q4_1", "q8_0"])
def test_a_gguf_file_keeps_its_codes(tmp_path, name):
    """Codes that no quantiser would choose again."""
    path = write_gguf(tmp_path / "t.gguf", CONFIG, random_weights(CONFIG), quantise=GGML[name])
    loaded = checkpoints.load(path)
    assert set(loaded.packed) == {n for n, w in loaded.weights.items() if w.ndim == 2}
    for weight, source in ((loaded.weights[n], s) for n, s in loaded.packed.items()):
        assert source.format == name
        assert np.array_equal(bits(source.read().unpack()), bits(weight))
    stored = stored_weights(loaded, name)
    up, norm = "model.layers.0.mlp.up_proj.weight", "model.norm.weight"
    assert isinstance(stored[up], PackedMatrix)
    assert isinstance(stored[norm], np.ndarray)
    assert np.array_equal(at_precision(loaded, name)[up], loaded.weights[up])


def test_an_fp8_folder_keeps_its_codes(tmp_path):
    """Blocks whose largest code is not 448: choosing scales anew would change every weight."""
    config = {**TINY, "quantization_config": {**FP8, "weight_block_size": [128, 128]}}
    weights = random_weights(read_config(TINY))
    tensors = dict(weights)
    for name in [n for n in weights if "proj" in n]:
        scale = np.full((1, 1), 0.37 * np.abs(weights[name]).max(), np.float32)
        tensors[name] = (weights[name] / scale).astype(ml_dtypes.float8_e4m3fn)
        tensors[f"{name}_scale_inv"] = scale
    loaded = checkpoints.load(write_folder(tmp_path, tensors, config))
    found = at_precision(loaded, "fp8")
    for name in loaded.packed:
        assert np.array_equal(bits(found[name]), bits(loaded.weights[name]))
        assert not np.array_equal(found[name], pack(loaded.weights[name], "fp8").unpack())
    assert len(loaded.packed) == 7 * 3


@pytest.mark.parametrize("dtype", ["float16", "q4_1"])
def test_a_model_equals_the_dense_reference_at_its_precision(dtype):
    checkpoint = tiny()
    dense = DenseModel.from_weights(CONFIG, at_precision(checkpoint, dtype))
    logits = np.asarray(dense.forward(IDS)[0])[0]
    model = MeshModel(checkpoint, HW, dtype=dtype)
    assert model.place().dtype == dtype
    output = model.prefill(IDS[:9], context=12)
    for t in range(9, 12):
        assert_close(output.logits, logits[t - 1])
        output = model.decode(int(IDS[t]), output.cache)
    assert_close(output.logits, logits[-1])
    full = np.asarray(DenseModel.from_checkpoint(checkpoint).forward(IDS)[0])[0]
    assert np.abs(full - logits).max() > 1e-4 * np.abs(full).max()  # it is another model
    assert perplexity(model, IDS, 9) == pytest.approx(perplexity(dense, IDS, 9), rel=1e-5)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


def test_sums_in_float16_round_after_every_addition():
    """Against a sum that is written out, in tiles and along the tree."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((5, 7)).astype(np.float16)
    w = rng.standard_normal((1, 7, 5, 6)).astype(np.float16)
    found = matvec(jnp.asarray(x), jnp.asarray(w), jnp.int32(0))
    assert found.dtype == jnp.float16
    acc = np.zeros((5, 6), np.float16)
    for i in range(7):
        products = x[:, i, None].astype(np.float32) * w[0, i].astype(np.float32)
        acc = (acc.astype(np.float32) + products).astype(np.float16)
    expected = np.asarray(allreduce_ktree.apply(jnp.asarray(acc), 2, "y", broadcast=False))[0]
    assert np.array_equal(np.asarray(found).view(np.int16), expected.view(np.int16))
    exact = np.einsum("rk,krn->n", x.astype(np.float64), w[0].astype(np.float64))
    assert 1e-4 < np.abs(np.asarray(found) - exact).max() < 3e-2


def test_sums_in_float16_change_decode_a_little_and_prefill_not_at_all():
    model = MeshModel(tiny(), HW, dtype="float16")
    short = model.accumulating("float16")
    assert (model.accumulate, short.accumulate) == ("float32", "float16")
    first, other = (m.prefill(IDS[:9], context=12) for m in (model, short))
    np.testing.assert_array_equal(first.hidden_states, other.hidden_states)
    wide = model.decode(3, first.cache).logits
    narrow = short.decode(3, other.cache).logits
    assert 0 < np.abs(wide - narrow).max() < 2e-2 * np.abs(wide).max()


def test_what_cannot_be_stored_is_one_clear_line():
    with pytest.raises(WaferError, match="cannot be run in q4_k, only placed: to run one choose"):
        MeshModel(tiny(), HW, dtype="q4_k")
    with pytest.raises(WaferError, match='choose "float32" or "float16"'):
        MeshModel(tiny(), HW, accumulate="float64")
    with pytest.raises(WaferError, match="dtype 'int8': choose one of"):
        MeshModel(tiny(), HW, dtype="int8")
    large = tiny()
    large.weights["model.norm.weight"][3] = 1e5
    with pytest.raises(WaferError, match=r"tiny in float16: tensor model\.norm\.weight has 1 NaN"):
        MeshModel(large, HW, dtype="float16")
    with pytest.raises(WaferError, match="give at least one id more"):
        perplexity(DenseModel.from_checkpoint(tiny()), [1])


TEXT = (
    "The lighthouse stood at the end of a narrow road, and in winter the road was often closed by "
    "snow. The keeper did not mind. He had books, a stove, and a radio that could reach ships far "
    "out at sea. Every evening he climbed the stairs, cleaned the lamp and lit it before the sun "
    "went down. One night a small boat came out of the fog, its engine silent, and drifted towards "
    "the rocks."
)
"""Written for this test, so that nothing has been trained on it."""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "q4_1"])
def test_perplexity_of_smollm2_is_that_of_the_dense_reference(smollm2, dtype):
    ids = smollm2.tokenizer.encode(TEXT)
    dense = DenseModel.from_weights(smollm2.config, at_precision(smollm2, dtype))
    expected = perplexity(dense, ids, 16)
    model = MeshModel(smollm2, hardware("wse2", mesh=(24, 24)), dtype=dtype)
    found = perplexity(model, ids, 16)
    short = perplexity(model.accumulating("float16"), ids, 16)
    print(f"{dtype}: {len(ids) - 16} tokens, perplexity {found:.5f} on the mesh, {expected:.5f} "
          f"dense ({found / expected - 1:+.1e}), {short:.5f} with float16 sums "
          f"({short / expected - 1:+.1e})")  # fmt: skip
    assert found == pytest.approx(expected, rel=1e-3)
    assert short == pytest.approx(expected, rel=0.02)
