"""Every family, dense and on the mesh, against logits that Hugging Face transformers gave."""

import numpy as np
import pytest

from models.golden_families import IDS, PROMPT, golden, tiny
from models.published import published
from models.tiny_families import FAMILIES
from models.tiny_llama import write_folder
from wafer_jax import hardware
from wafer_jax.models import checkpoints
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.families import FAMILIES as READERS
from wafer_jax.models.mesh_model import MeshModel
from wafer_jax.models.parameters import parameter_shapes

TOLERANCE = 1e-5
_ON_THE_MESH = (
    "llama 3",
    "qwen2",
    "qwen3",
    "qwen3 moe",
    "gpt-oss",
    "gpt-oss, full first",
    "minimax m2",
    "qwen3.5",
    "qwen3.5 moe",
)


def assert_close(found, wanted):
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= TOLERANCE * np.abs(wanted).max()


def test_every_family_has_a_tiny_model_and_its_logits():
    assert {attributes["model_type"] for attributes in FAMILIES.values()} == set(READERS)
    assert set(golden()) == set(FAMILIES)


@pytest.mark.parametrize("name", FAMILIES)
def test_dense(name):
    logits, _ = DenseModel.from_checkpoint(tiny(name)).forward(IDS)
    assert_close(logits, golden()[name])


@pytest.mark.parametrize("name", _ON_THE_MESH)
def test_prefill_and_decode_on_the_mesh(name):
    hw = hardware("wse2", mesh=(2, 5)).replace(sram_bytes=1 << 20)
    model = MeshModel(tiny(name), hw)
    for ids, logits in zip(IDS, golden()[name], strict=True):
        output = first = model.prefill(ids[:PROMPT], context=len(ids))
        assert_close(output.logits, logits[PROMPT - 1])
        for t in range(PROMPT, len(ids)):
            output = model.decode(int(ids[t]), output.cache)
            assert_close(output.logits, logits[t])
        again = model.prefill(ids[:PROMPT], context=len(ids))
        np.testing.assert_array_equal(again.logits, first.logits)


@pytest.mark.parametrize("name", FAMILIES)
def test_folders_of_the_hub(tmp_path, name):
    """The published attributes, every tensor under its published name."""
    checkpoint = tiny(name)
    shapes = parameter_shapes(checkpoint.config)
    assert {k: v.shape for k, v in checkpoint.weights.items()} == shapes
    loaded = checkpoints.load(
        write_folder(tmp_path, published(checkpoint), FAMILIES[name], shards=3)
    )
    assert loaded.config == checkpoint.config
    assert set(loaded.weights) == set(shapes)
    for tensor, values in checkpoint.weights.items():
        np.testing.assert_array_equal(loaded.weights[tensor], values)
