"""The dense reference against Hugging Face transformers, eager attention, float32."""

import copy

import numpy as np
import pytest

from models.tiny_llama import LLAMA3, TINY, random_weights
from wafer_jax.models import checkpoints
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.families import read_config

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.hf

CASES = {
    "grouped": {},
    "one head each": {"num_key_value_heads": 6},
    "one for all": {"num_key_value_heads": 1},
    "tied": {"tie_word_embeddings": True},
    "biased": {"attention_bias": True},
    "llama3": {"rope_scaling": LLAMA3},
    "all at once": {
        "num_hidden_layers": 7,
        "tie_word_embeddings": True,
        "attention_bias": True,
        "rope_scaling": {**LLAMA3, "factor": 32.0},
    },
}


def hf_model(attributes, weights):
    """LlamaForCausalLM with exactly these weights."""
    # A copy, since transformers writes into the nested RoPE settings.
    config = transformers.LlamaConfig(**copy.deepcopy(attributes), attn_implementation="eager")
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model = model.to_empty(device="cpu").float()
    state = {k: torch.from_numpy(np.array(v)) for k, v in weights.items()}
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True, assign=True)
    # Buffers made on the meta device hold nothing: compute RoPE's frequencies anew.
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval()


def hf_outputs(model, ids):
    with torch.no_grad():
        out = model(torch.tensor(np.atleast_2d(ids)), output_hidden_states=True)
    return out.logits.numpy(), [h.numpy() for h in out.hidden_states]


def relative(found, expected):
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_tiny_models(changes):
    attributes = {**TINY, **changes}
    config = read_config(attributes)
    weights = random_weights(config, seed=3)
    ids = np.random.default_rng(4).integers(0, 97, (2, 50))
    expected, expected_hidden = hf_outputs(hf_model(attributes, weights), ids)
    logits, hidden = DenseModel.from_weights(config, weights).forward(ids, hidden_states=True)
    assert hidden is not None
    assert relative(logits, expected) <= 1e-5
    # transformers' last entry is after the final norm; the logits cover it.
    for found, wanted in zip(hidden[:-1], expected_hidden[:-1], strict=True):
        assert relative(found, wanted) <= 1e-5


@pytest.mark.parametrize("shard_size", ["1GB", "40KB"])
@pytest.mark.parametrize("case", ["grouped", "all at once"])
def test_folders_written_by_transformers(tmp_path, case, shard_size):
    attributes = {**TINY, **CASES[case]}
    weights = random_weights(read_config(attributes), seed=5)
    model = hf_model(attributes, weights)
    model.save_pretrained(tmp_path, max_shard_size=shard_size)
    assert (len(list(tmp_path.glob("*.safetensors"))) > 1) == (shard_size == "40KB")
    loaded = checkpoints.load(tmp_path)
    assert loaded.config == read_config(attributes)
    assert set(loaded.weights) == set(weights)
    for name, values in weights.items():
        np.testing.assert_array_equal(loaded.weights[name], values)


@pytest.mark.parametrize("shard_size", ["1GB", "40KB"])
def test_bfloat16_folders(tmp_path, shard_size):
    weights = random_weights(read_config(TINY), seed=6)
    hf_model(TINY, weights).bfloat16().save_pretrained(tmp_path, max_shard_size=shard_size)
    for name, values in checkpoints.load(tmp_path).weights.items():
        expected = torch.from_numpy(weights[name]).bfloat16().float().numpy()
        np.testing.assert_array_equal(values, expected)


def test_smollm2(smollm2, smollm2_dense):
    """Real weights, a long enough prompt for RoPE to matter, then ten tokens by decode."""
    c = smollm2.config
    model = hf_model(
        {
            "vocab_size": c.vocab_size,
            "hidden_size": c.hidden_size,
            "intermediate_size": c.intermediate_size,
            "num_hidden_layers": c.num_layers,
            "num_attention_heads": c.num_heads,
            "num_key_value_heads": c.num_kv_heads,
            "rms_norm_eps": c.rms_norm_eps,
            "rope_theta": c.rope.theta,
            "max_position_embeddings": c.max_position_embeddings,
            "tie_word_embeddings": True,
        },
        smollm2.weights,
    )
    text = "A wafer-scale processor is a single chip as large as a whole silicon wafer. " * 3
    ids = smollm2.tokenizer.encode(text)
    expected, expected_hidden = hf_outputs(model, ids)
    logits, hidden = smollm2_dense.forward(ids, hidden_states=True)
    assert hidden is not None
    assert np.abs(np.asarray(logits) - expected).max() <= 1e-3
    for found, wanted in zip(hidden[:-1], expected_hidden[:-1], strict=True):
        assert relative(found, wanted) <= 5e-5  # a few channels reach 2e4
    new = smollm2_dense.generate(ids, max_new_tokens=10)
    whole, _ = hf_outputs(model, [*ids, *new])
    assert whole[0, len(ids) - 1 : -1].argmax(-1).tolist() == new
