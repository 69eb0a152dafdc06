"""The dense reference against golden values and against itself; transformers has its own file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from models.tiny_llama import LLAMA3, TINY, random_weights
from wafer_jax.errors import WaferError
from wafer_jax.models.decoder import Decoder
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.families import read_config
from wafer_jax.models.parameters import num_parameters, parameter_shapes

PROMPT = [504, 3575, 282, 4649, 314]  # "The capital of France is"


def tiny(**changes) -> DenseModel:
    config = read_config({**TINY, **changes})
    return DenseModel.from_weights(config, random_weights(config))


@pytest.fixture(scope="module")
def model():
    return tiny(rope_scaling=LLAMA3)


def some_ids(batch: int, tokens: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 97, (batch, tokens))


def test_golden_generation(smollm2, smollm2_dense):
    new = smollm2_dense.generate(PROMPT, max_new_tokens=8)
    assert new == [7042, 30, 198, 198, 504, 2988, 314, 42]
    assert smollm2.tokenizer.decode(new) == " Paris.\n\nThe answer is:"


def test_golden_logits(smollm2_dense):
    logits, hidden = smollm2_dense.forward(PROMPT, hidden_states=True)
    assert logits.shape == (1, 5, 49152)
    assert int(logits[0, -1].argmax()) == 7042
    assert float(logits[0, -1].max()) == pytest.approx(17.3713, abs=5e-4)
    assert hidden is not None
    assert hidden.shape == (31, 1, 5, 576)


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_prefill_and_decode_equal_the_whole_sequence(kv_heads):
    model = tiny(num_key_value_heads=kv_heads, rope_scaling=LLAMA3)
    ids = some_ids(2, 12)
    whole, _ = model.forward(ids)
    logits, cache = model.prefill(ids[:, :7], capacity=13)  # one position stays unused
    for t in range(7, 12):
        np.testing.assert_allclose(logits, whole[:, t - 1], atol=2e-6, rtol=1e-5)
        logits, cache = model.decode(ids[:, t], cache)
    np.testing.assert_allclose(logits, whole[:, -1], atol=2e-6, rtol=1e-5)
    assert int(cache.length) == 12


def test_no_token_sees_a_later_one(model):
    ids = some_ids(1, 9)
    other = ids.copy()
    other[0, 6:] = (other[0, 6:] + 1) % 97
    before, after = model.forward(ids)[0], model.forward(other)[0]
    np.testing.assert_array_equal(before[:, :6], after[:, :6])
    assert not np.allclose(before[:, 6:], after[:, 6:])


def test_sequences_of_a_batch_are_independent(model):
    ids = some_ids(3, 8)
    together, _ = model.forward(ids)
    for row, logits in zip(ids, together, strict=True):
        np.testing.assert_allclose(model.forward(row)[0][0], logits, atol=2e-6, rtol=1e-5)


def test_hidden_states_lead_to_the_logits():
    config = read_config(TINY)
    weights = random_weights(config)
    model = DenseModel.from_weights(config, weights)
    logits, hidden = model.forward(some_ids(2, 5), hidden_states=True)
    assert hidden is not None
    assert hidden.shape == (4, 2, 5, 48)
    np.testing.assert_array_equal(hidden[0], weights["model.embed_tokens.weight"][some_ids(2, 5)])
    last = np.asarray(hidden[-1], np.float64)
    normed = last / np.sqrt((last**2).mean(-1, keepdims=True) + config.rms_norm_eps)
    normed *= weights["model.norm.weight"]
    np.testing.assert_allclose(logits, normed @ weights["lm_head.weight"].T, atol=1e-5)
    assert model.forward(some_ids(2, 5))[1] is None


def test_generation_follows_the_most_likely_token(model):
    new = model.generate([5, 6, 7], max_new_tokens=6, stop_ids=())
    whole, _ = model.forward([5, 6, 7, *new])
    assert whole[0, 2:-1].argmax(axis=-1).tolist() == new
    stop = new[2]
    stopped = model.generate([5, 6, 7], max_new_tokens=6, stop_ids=[stop])
    assert stopped == new[: new.index(stop) + 1]


def test_decode_is_compiled_once(model):
    _, cache = model.prefill([1, 2, 3], capacity=20)
    _, cache = model.decode(4, cache)
    compiled = model._extend._cache_size()
    for token in range(5, 15):
        _, cache = model.decode(token, cache)
    assert model._extend._cache_size() == compiled
    assert int(cache.length) == 14


def test_decode_reuses_the_memory_of_its_cache(model):
    _, old = model.prefill([1, 2, 3])
    _, new = model.decode(4, old)
    assert old.layers[0].keys.is_deleted()
    assert new.capacity == min(3 + 64, 64)


def test_a_fresh_model_has_the_parameters_of_its_configuration():
    config = read_config({**TINY, "attention_bias": True})
    model = Decoder(config, rngs=nnx.Rngs(0))
    leaves = jax.tree.leaves(nnx.state(model))
    assert sum(leaf.size for leaf in leaves) == num_parameters(config)
    assert all(leaf.dtype == jnp.float32 for leaf in leaves)
    queries = model.layers[0].self_attn.q_proj.weight[...]
    assert not np.array_equal(queries[0], queries[1])  # layers differ
    assert np.isfinite(DenseModel(model).forward([1, 2])[0]).all()


def test_every_weight_is_used_exactly_once():
    config = read_config(TINY)
    weights = random_weights(config)
    with pytest.raises(WaferError, match=r"no parameter takes: \['odd'\]"):
        Decoder.from_weights(config, {**weights, "odd": np.zeros(3, np.float32)})
    for name in parameter_shapes(config):
        rest = {k: v for k, v in weights.items() if k != name}
        with pytest.raises(WaferError, match=f"no weights for the parameter {name}"):
            Decoder.from_weights(config, rest)
        if weights[name].ndim == 2:
            with pytest.raises(WaferError, match=f"{name} has shape"):
                Decoder.from_weights(config, {**rest, name: weights[name].T})


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "one or more integers"),
        ([1.5], "one or more integers"),
        ([[[1]]], "one or more integers"),
        ([3, 97], "outside the vocabulary of 97"),
        ([-1], "outside the vocabulary of 97"),
        ([1] * 65, "65 tokens exceed the model's context of 64"),
    ],
)
def test_bad_ids(model, ids, message):
    for call in (model.forward, model.prefill):
        with pytest.raises(WaferError, match=message):
            call(ids)


def test_a_full_or_too_small_cache_is_refused(model):
    with pytest.raises(WaferError, match="cache of 3 tokens cannot serve a prompt of 4"):
        model.prefill([1, 2, 3, 4], capacity=3)
    with pytest.raises(WaferError, match="context is 64"):
        model.prefill([1, 2, 3, 4], capacity=65)
    _, cache = model.prefill([1, 2, 3], capacity=3)
    with pytest.raises(WaferError, match=r"KV cache is full \(3 tokens\)"):
        model.decode(1, cache)
    with pytest.raises(WaferError, match="2 tokens for a cache of 1"):
        model.decode([1, 2], cache)
    for count in (0, 62):
        with pytest.raises(WaferError, match="ask for 1 to 61"):
            model.generate([1, 2, 3], max_new_tokens=count)
