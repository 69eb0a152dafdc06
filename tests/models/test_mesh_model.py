"""A tiny random Llama on small regions against the dense reference; SmolLM2 has its own file."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from models.tiny_llama import LLAMA3, TINY, random_weights
from wafer_jax import compilation, hardware
from wafer_jax.errors import WaferError
from wafer_jax.models.checkpoints import Checkpoint
from wafer_jax.models.config import RopeConfig, YarnScaling
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_model import MeshModel
from wafer_jax.models.placement import place

PROMPT, TOKENS = 9, 14
IDS = np.random.default_rng(1).integers(0, 97, TOKENS)


def tiny(**changes) -> Checkpoint:
    config = read_config({**TINY, "num_hidden_layers": 2, **changes})
    return Checkpoint(config, random_weights(config), None, "tiny", "here")


def roomy(mesh: tuple[int, int]):
    """A machine whose PEs hold anything."""
    return hardware("wse2", mesh=mesh).replace(sram_bytes=1 << 24)


def narrow(mesh: tuple[int, int]):
    """A machine so narrow that the embedding needs more rows than a layer."""
    return hardware("wse2", mesh=mesh).replace(device_mesh=(64, 4), sram_bytes=45_000)


def reference(checkpoint: Checkpoint) -> tuple[np.ndarray, np.ndarray]:
    """Logits [T, V] and hidden states [L + 1, T, E] of all of IDS."""
    dense = DenseModel.from_weights(checkpoint.config, checkpoint.weights)
    logits, hidden = dense.forward(IDS, hidden_states=True)
    return np.asarray(logits)[0], np.asarray(hidden)[:, 0]


@pytest.fixture(scope="module")
def model():
    return MeshModel(tiny(), roomy((2, 3)))


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("hw", "k", "changes"),
    [
        (narrow((2, 3)), 2, {"rope_scaling": LLAMA3, "vocab_size": 3001}),
        (roomy((4, 4)), 3, {"num_key_value_heads": 6, "attention_bias": True}),
        (roomy((1, 1)), 2, {"num_key_value_heads": 1}),
        (roomy((1, 7)), 2, {"tie_word_embeddings": True}),
        (roomy((3, 1)), 2, {"num_key_value_heads": 3}),
        (roomy((5, 12)), 1, {}),
    ],
    ids=["gqa", "mha", "mqa on one PE", "a row", "a column", "more columns than pairs"],
)
def test_prefill_and_decode_equal_the_dense_reference(hw, k, changes):
    checkpoint = tiny(**changes)
    logits, hidden = reference(checkpoint)
    model = MeshModel(checkpoint, hw, k=k)
    output = model.prefill(IDS[:PROMPT], context=TOKENS)
    assert_close(output.hidden_states, hidden[:, :PROMPT])
    assert_close(output.logits, logits[PROMPT - 1])
    for t in range(PROMPT, TOKENS):
        output = model.decode(int(IDS[t]), output.cache)
        assert_close(output.hidden_states[:, 0], hidden[:, t])
        assert_close(output.logits, logits[t])
    assert int(output.cache.length) == TOKENS


def test_partial_rope_equals_the_dense_reference():
    whole = tiny()
    rope = RopeConfig(500.0, YarnScaling(4.0, 32.0, 1.0, 16, 1.3), rotary_dim=4)
    checkpoint = replace(whole, config=replace(whole.config, rope=rope))
    logits, _ = reference(checkpoint)
    model = MeshModel(checkpoint, roomy((2, 5)))  # three pairs in a column, the third does not turn
    output = model.prefill(IDS[:PROMPT], context=TOKENS)
    assert_close(output.logits, logits[PROMPT - 1])
    assert_close(model.decode(int(IDS[PROMPT]), output.cache).logits, logits[PROMPT])


def test_the_embedding_may_have_more_rows_than_a_layer():
    placement = place(tiny(vocab_size=3001).config, narrow((2, 3)))
    assert placement.embedding.mesh == (4, 4)


def test_the_order_of_additions_is_the_only_difference(model):
    """The same prompt with products made densely: close, and not the same bits."""
    dense = MeshModel(tiny(), roomy((2, 3)), values="dense")
    rounds, other = model.prefill(IDS).logits, dense.prefill(IDS).logits
    assert_close(rounds, other)
    assert not np.array_equal(rounds, other)


def test_generation_equals_the_dense_reference(model):
    checkpoint = tiny()
    dense = DenseModel.from_weights(checkpoint.config, checkpoint.weights)
    seen = []
    generation = model.generate(
        IDS[:PROMPT], max_new_tokens=6, stop_ids=(), keep_logits=True,
        progress=lambda *what: seen.append(what),
    )  # fmt: skip
    expected = dense.generate(IDS[:PROMPT], max_new_tokens=6, stop_ids=())
    assert list(generation.ids) == expected
    assert generation.text is None
    assert generation.logits is not None
    assert generation.logits.shape == (6, 97)
    assert generation.logits.argmax(-1).tolist() == expected
    assert seen == [("prefill", 0, 1), ("prefill", 1, 1), *(("decode", n, 6) for n in range(1, 7))]
    stopped = model.generate(IDS[:PROMPT], max_new_tokens=6, stop_ids=expected[2:3])
    assert list(stopped.ids) == expected[: expected.index(expected[2]) + 1]


def test_generation_reports_cycles_and_rates(model):
    generation = model.generate(IDS[:PROMPT], max_new_tokens=3, stop_ids=())
    prefill, decode = generation.prefill, generation.decode
    assert (prefill.tokens, decode.tokens) == (PROMPT, PROMPT + 2)
    assert prefill.cycles < generation.cycles <= prefill.cycles + 2 * decode.cycles
    assert generation.seconds == generation.cycles / 1.1e9
    assert set(generation.rates["phase"]) == {"prefill", "decode"}
    assert generation.operators["cycles"].gt(0).all()
    assert "tiny" in repr(generation)
    assert "<table" in generation._repr_html_()


def test_decode_compiles_once_and_reuses_the_memory_of_its_cache(model):
    output = model.prefill(IDS[:PROMPT], context=TOKENS)
    cache = model.decode(3, output.cache).cache
    assert output.cache.layers[0].keys.is_deleted()
    known = len(compilation._compiled)
    for token in range(5):
        cache = model.decode(token, cache).cache
    assert len(compilation._compiled) == known


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.prefill([]), "one or more integers"),
        (lambda m: m.prefill([97]), "outside the vocabulary of 97"),
        (lambda m: m.prefill([[1]]), "one or more integers"),
        (lambda m: m.prefill([1, 2], context=1), "context of 1 tokens cannot serve a prompt of 2"),
        (lambda m: m.prefill([1, 2], context=65), "the model's context is 64"),
        (lambda m: m.generate([1], max_new_tokens=0), "ask for at least 1"),
        (lambda m: m.generate("text"), "no tokenizer"),
        (lambda m: m.generate([1], max_new_tokens=64), "context is 64"),
    ],
)
def test_bad_input_is_one_clear_line(model, call, message):
    with pytest.raises(WaferError, match=message) as error:
        call(model)
    assert "\n" not in str(error.value)


def test_a_full_cache_is_refused(model):
    output = model.prefill(IDS[:PROMPT])
    full = replace(output.cache, length=jnp.int32(output.cache.capacity))
    with pytest.raises(WaferError, match="cache is full"):
        model.decode(1, full)


def test_over_budget_and_over_capacity_name_region_bytes_and_remedy():
    checkpoint = tiny()
    small = hardware("toy", mesh=(2, 2)).replace(sram_bytes=30000, reserved_bytes=0)
    with pytest.raises(WaferError, match=r"a layer's region of 1x1 PEs needs .* 2x2"):
        MeshModel(checkpoint, small.replace(mesh=(1, 1)))
    with pytest.raises(WaferError, match='choose "rounds" or "dense"'):
        MeshModel(checkpoint, roomy((2, 2)), values="exact")  # pyright: ignore
