"""The tiny models in Hugging Face transformers: the committed logits, and the folders it saves."""

import numpy as np
import pytest

from models.golden_families import golden, hf_logits, hf_model, tiny
from models.tiny_families import FAMILIES
from wafer_jax.models import checkpoints

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.hf


@pytest.mark.parametrize("name", FAMILIES)
def test_the_committed_logits_are_those_of_transformers(name):
    expected = golden()[name]
    np.testing.assert_allclose(hf_logits(name), expected, rtol=0, atol=2e-6 * abs(expected).max())


@pytest.mark.parametrize("name", FAMILIES)
def test_saved_folders_load(tmp_path, name):
    checkpoint = tiny(name)
    hf_model(name).save_pretrained(tmp_path, max_shard_size="40KB")
    loaded = checkpoints.load(tmp_path)
    assert loaded.config == checkpoint.config
    assert set(loaded.weights) == set(checkpoint.weights)
    for tensor, values in checkpoint.weights.items():
        np.testing.assert_array_equal(loaded.weights[tensor], values)
