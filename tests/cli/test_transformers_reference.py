import numpy as np
import pytest
from models.golden_families import IDS, golden, tiny
from models.tiny_families import FAMILIES
from models.tiny_llama import LLAMA3, TINY, random_weights

from wafer_jax.cli import transformers_reference
from wafer_jax.models.checkpoints import Checkpoint
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.families import read_config

pytestmark = [
    pytest.mark.hf,
    pytest.mark.skipif(not transformers_reference.is_installed(), reason="needs transformers"),
]


@pytest.mark.parametrize(
    "attributes",
    [
        {**TINY, "rope_scaling": LLAMA3},
        {**TINY, "attention_bias": True, "tie_word_embeddings": True},
        FAMILIES["qwen2"],
        FAMILIES["qwen3"],
        FAMILIES["qwen3 moe"],
        FAMILIES["minimax m2"],
        FAMILIES["gpt-oss, full first"],
    ],
    ids=["scaled", "biased", "qwen2", "qwen3", "qwen3 moe", "minimax m2", "gpt-oss"],
)
def test_it_agrees_with_the_dense_reference(attributes):
    config = read_config(attributes)
    weights = random_weights(config)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, 40).tolist()
    checkpoint = Checkpoint(config, weights, None, "tiny", "memory")
    logits, hidden = transformers_reference.forward(checkpoint, ids)
    expected, between = DenseModel.from_weights(config, weights).forward(ids, hidden_states=True)
    assert between is not None
    np.testing.assert_allclose(logits, expected[0], atol=2e-5)
    np.testing.assert_allclose(hidden, between[:-1, 0], atol=2e-5)


@pytest.mark.parametrize("name", ["qwen3.5", "qwen3.5 moe"])
def test_it_gives_the_logits_of_the_tiny_model(name):
    """Of weights whose small outputs of DeltaNet are not small enough to be all rounding."""
    logits, hidden = transformers_reference.forward(tiny(name), IDS[0].tolist())
    wanted = golden()[name][0]
    np.testing.assert_allclose(logits, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
    assert hidden.shape == (4, len(IDS[0]), 48)
