"""Every family against Hugging Face transformers: dense and on the mesh, from its own folders."""

from functools import cache

import numpy as np
import pytest

from models.tiny_families import FAMILIES
from models.tiny_llama import random_weights, write_folder
from wafer_jax import hardware
from wafer_jax.models import checkpoints
from wafer_jax.models.checkpoints import Checkpoint
from wafer_jax.models.config import parameter_shapes
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.families import FAMILIES as READERS
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_llama import MeshModel

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.hf

PROMPT, STEPS = 7, 16
IDS = np.random.default_rng(2).integers(0, 97, (2, PROMPT + STEPS))
TOLERANCE = 1e-5

each_family = pytest.mark.parametrize("name", FAMILIES)


def tiny(name: str) -> Checkpoint:
    config = read_config(FAMILIES[name])
    return Checkpoint(config, random_weights(config, seed=7), None, name, "memory")


@cache
def hf_model(name: str):
    """Transformers' own model, through its own loader of checkpoints."""
    transformers.logging.disable_progress_bar()
    attributes = {k: v for k, v in FAMILIES[name].items() if k != "torch_dtype"}
    config = transformers.AutoConfig.for_model(**attributes)
    weights = tiny(name).weights
    state = {k: torch.from_numpy(np.array(v)) for k, v in weights.items()}
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model, report = getattr(transformers, attributes["architectures"][0]).from_pretrained(
        None,
        config=config,
        state_dict=state,
        dtype=torch.float32,
        attn_implementation="eager",
        experts_implementation="eager",
        output_loading_info=True,
    )
    assert not any(report.values()), report
    return model.eval()


@cache
def expected(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Logits [B, T, V] and, between layers, the residual stream [L, B, T, E]."""
    with torch.no_grad():
        out = hf_model(name)(torch.tensor(IDS), output_hidden_states=True)
    # The last entry is after the final norm; the logits cover it.
    return out.logits.numpy(), np.stack([h.numpy() for h in out.hidden_states[:-1]])


def assert_close(found, wanted):
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= TOLERANCE * np.abs(wanted).max()


@each_family
def test_dense(name):
    checkpoint = tiny(name)
    model = DenseModel.from_checkpoint(checkpoint)
    logits, hidden = model.forward(IDS, hidden_states=True)
    assert hidden is not None
    wanted, wanted_hidden = expected(name)
    assert_close(logits, wanted)
    assert_close(hidden[:-1], wanted_hidden)


@each_family
def test_prefill_and_decode_on_the_mesh(name):
    hw = hardware("wse2", mesh=(2, 5)).replace(sram_bytes=1 << 20)
    model = MeshModel(tiny(name), hw)
    wanted, wanted_hidden = (np.moveaxis(a, -3, 0) for a in expected(name))
    for ids, logits, hidden in zip(IDS, wanted, wanted_hidden, strict=True):
        output = first = model.prefill(ids[:PROMPT], context=len(ids))
        assert_close(output.logits, logits[PROMPT - 1])
        assert_close(output.hidden_states[:-1], hidden[:, :PROMPT])
        for t in range(PROMPT, len(ids)):
            output = model.decode(int(ids[t]), output.cache)
            assert_close(output.logits, logits[t])
            assert_close(output.hidden_states[:-1, 0], hidden[:, t])
        again = model.prefill(ids[:PROMPT], context=len(ids))
        np.testing.assert_array_equal(again.logits, first.logits)


@each_family
def test_folders_of_transformers_and_of_the_hub(tmp_path, name):
    checkpoint = tiny(name)
    assert {k: v.shape for k, v in checkpoint.weights.items()} == parameter_shapes(
        checkpoint.config
    )
    hf_model(name).save_pretrained(tmp_path / "saved", max_shard_size="40KB")
    write_folder(tmp_path / "hub", checkpoint.weights, FAMILIES[name])
    for folder in ("saved", "hub"):
        loaded = checkpoints.load(tmp_path / folder)
        assert loaded.config == checkpoint.config
        assert set(loaded.weights) == set(checkpoint.weights)
        for tensor, values in checkpoint.weights.items():
            np.testing.assert_array_equal(loaded.weights[tensor], values)


def test_every_family_has_a_tiny_model():
    assert {attributes["model_type"] for attributes in FAMILIES.values()} == set(READERS)
