"""The gated delta rule against a NumPy loop over tokens and against transformers' two forms."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from wafer_jax.models.attention.gated_delta import rule

KEY_HEADS, VALUE_HEADS, KEY, VALUE = 2, 6, 5, 7


def inputs(tokens: int, seed: int = 0):
    """q, k [T, Hv, Dk], v [T, Hv, Dv], log decay and beta [T, Hv], state [Hv, Dk, Dv]."""
    rng = np.random.default_rng(seed)
    normal = lambda *shape: rng.standard_normal(shape)
    q, k = normal(2, tokens, KEY_HEADS, KEY)
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    q, k = (np.repeat(x, VALUE_HEADS // KEY_HEADS, axis=1) for x in (q, k))
    v, state = normal(tokens, VALUE_HEADS, VALUE), normal(VALUE_HEADS, KEY, VALUE)
    decay, beta = -rng.exponential(0.7, (tokens, VALUE_HEADS)), rng.random((tokens, VALUE_HEADS))
    return (q * KEY**-0.5, k, v, decay, beta), state


def loop(arrays, state):
    """The rule as the papers write it, one head and one token at a time, in float64."""
    state, outputs = state.copy(), np.zeros(arrays[2].shape)
    for t in range(len(outputs)):
        for h in range(VALUE_HEADS):
            q, k, v, decay, beta = (a[t, h] for a in arrays)
            kept = np.exp(decay) * (np.eye(KEY) - beta * np.outer(k, k)) @ state[h]
            state[h] = kept + beta * np.outer(k, v)
            outputs[t, h] = state[h].T @ q
    return state, outputs


def by_recurrence(arrays, state):
    to32 = lambda a: jnp.asarray(a, jnp.float32)
    return rule.recurrent(to32(state), *map(to32, arrays))


def by_chunks(arrays, state, size):
    """Padded to whole chunks with tokens that leave no trace."""
    tokens = len(arrays[0])
    count = -(-tokens // size)
    pad = lambda a: np.pad(a, [(0, count * size - tokens), *[(0, 0)] * (a.ndim - 1)])
    cut = lambda a: np.moveaxis(pad(a).reshape(count, size, *a.shape[1:]), 1, 2)
    q, k, v, decay, beta = (jnp.asarray(cut(a), jnp.float32) for a in arrays)
    chunks = rule.within_chunk(q, k, v, decay, beta)
    state, out = lax.scan(rule.through_chunk, jnp.asarray(state, jnp.float32), chunks)
    return state, jnp.moveaxis(out, 2, 1).reshape(-1, *out.shape[1:2], VALUE)[:tokens]


def assert_close(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-6 * np.abs(b).max())


@pytest.mark.parametrize("tokens", [1, 2, 7, 16, 37])
@pytest.mark.parametrize("size", [1, 4, 16])
def test_both_forms_are_the_loop(tokens, size):
    arrays, state = inputs(tokens)
    expected = loop(arrays, state)
    assert_close(by_recurrence(arrays, state), expected)
    assert_close(by_chunks(arrays, state, size), expected)


def test_a_chunk_goes_on_where_tokens_left_off():
    arrays, state = inputs(11)
    first, second = ([a[part] for a in arrays] for part in (slice(6), slice(6, None)))
    state_then, out = by_recurrence(first, state)
    state_then, more = by_chunks(second, np.asarray(state_then), 4)
    assert_close((state_then, np.concatenate([out, more])), loop(arrays, state))


def test_strong_decay_neither_overflows_nor_divides():
    (q, k, v, decay, beta), state = inputs(40)
    arrays = (q, k, v, 200 * decay, beta)
    assert_close(by_chunks(arrays, state, 16), loop(arrays, state))


@pytest.mark.hf
@pytest.mark.parametrize("tokens", [1, 70])
def test_against_transformers(tokens):
    torch = pytest.importorskip("torch")
    qwen = pytest.importorskip("transformers.models.qwen3_5.modeling_qwen3_5")
    (q, k, v, decay, beta), state = inputs(tokens, seed=3)
    # It scales queries itself, and lets key heads serve consecutive value heads.
    raw = (q * KEY**0.5, k, v, decay, beta)
    to_torch = lambda a: torch.tensor(a[None], dtype=torch.float32)
    for function in (qwen.torch_recurrent_gated_delta_rule, qwen.torch_chunk_gated_delta_rule):
        out, last = function(
            *map(to_torch, raw), initial_state=to_torch(state), output_final_state=True
        )
        for found in (
            by_recurrence((q, k, v, decay, beta), state),
            by_chunks((q, k, v, decay, beta), state, 16),
        ):
            assert_close(found, (last[0].numpy(), out[0].numpy()))
