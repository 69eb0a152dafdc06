"""The gated delta rule: attention with a state [Dk, Dv] per head in the place of a growing cache.

Per token, with a decay ``a = exp(log_decay)`` and a rate ``b``, both between 0 and 1::

    S = a S;  d = b (v - S^T k);  S = S + k d^T;  o = S^T q

`recurrent` does just that. The WY form makes C tokens at a time: with the sum G of the log decays
up to each token, ``d = U - W S``, where S is the state before the chunk and (I + L) [U | W] =
[b v | b exp(G) k], L_ij = b_i exp(G_i - G_j) k_i . k_j below the diagonal. All but the products
with S is made `within_chunk`, before the state is there; `through_chunk` adds these.

Axes: T tokens, C tokens of a chunk, Dk and Dv widths of a key and of a value; "..." whatever else,
which must be broadcastable (queries and keys of several value heads, say). Sources: arXiv
2412.06464, sections 3.1 and 3.3; ``torch_chunk_gated_delta_rule`` in transformers'
``modeling_qwen3_5.py``.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Dot = Callable[[jax.Array, jax.Array], jax.Array]
"""A product [..., C, Dk] x [..., Dk, N] of the state or of keys: how it is summed over Dk."""

_NORM_EPS = 1e-6


def normalised(x: jax.Array, squares: jax.Array) -> jax.Array:
    """Queries or keys of length 1, given the sums of their squares."""
    return x * lax.rsqrt(squares + _NORM_EPS)


def log_decay(a: jax.Array, rate_log: jax.Array, bias: jax.Array) -> jax.Array:
    """Logarithm of the decay, from its projection and the parameters ``A_log`` and ``dt_bias``."""
    return -jnp.exp(rate_log) * jax.nn.softplus(a + bias)


def recurrent(
    state: jax.Array,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Token by token.

    Args:
      state: [..., Dk, Dv] float32, zeros before the first token.
      q: [T, ..., Dk], scaled.
      k: [T, ..., Dk], of length 1.
      v: [T, ..., Dv].
      log_decay: [T, ...].
      beta: [T, ...].

    Returns:
      The state after the tokens, and their outputs [T, ..., Dv].
    """

    def body(state: jax.Array, token: tuple[jax.Array, ...]):
        q, k, v, log_decay, beta = token
        state = jnp.exp(log_decay)[..., None, None] * state
        delta = beta[..., None] * (v - jnp.sum(state * k[..., None], axis=-2))
        state = state + k[..., None] * delta[..., None, :]
        return state, jnp.sum(state * q[..., None], axis=-2)

    return lax.scan(body, state, (q, k, v, log_decay, beta))


class Chunk(NamedTuple):
    """What a chunk's tokens make among themselves.

    Attributes:
      own: [..., C, Dv], U: what each token would write if the state were empty.
      reads: [..., C, Dk], W: what of the state it takes back.
      queries: [..., C, Dk], decayed since the chunk's start.
      mix: [..., C, C], the share of what token j writes in the output of token i.
      keys: [..., C, Dk], decayed up to the chunk's end.
      decay: [...], of the whole chunk.
    """

    own: jax.Array
    reads: jax.Array
    queries: jax.Array
    mix: jax.Array
    keys: jax.Array
    decay: jax.Array


def within_chunk(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    log_decay: jax.Array,
    beta: jax.Array,
    dot: Dot = jnp.matmul,
) -> Chunk:
    """The part of chunks that needs no state; tokens with beta 0 and decay 1 leave no trace.

    Args:
      q: [..., C, Dk], scaled.
      k: [..., C, Dk], of length 1.
      v: [..., C, Dv].
      log_decay: [..., C].
      beta: [..., C].
      dot: How products are summed over Dk.
    """
    total = jnp.cumsum(log_decay, axis=-1)
    since_start = jnp.exp(total)[..., None]
    until_end = jnp.exp(total[..., -1:] - total)[..., None]
    causal = jnp.tril(jnp.ones((total.shape[-1],) * 2, bool))
    causal = causal.reshape(*(1,) * (total.ndim - 1), *causal.shape)
    between = total[..., :, None] - total[..., None, :]
    between = jnp.exp(jnp.where(causal, between, -jnp.inf))
    turned = jnp.swapaxes(k, -1, -2)
    beta = beta[..., None]
    system = beta * between * dot(k, turned)
    wanted = jnp.concatenate([beta * v, beta * since_start * k], axis=-1)
    solved = lax.linalg.triangular_solve(
        system, wanted, left_side=True, lower=True, unit_diagonal=True
    )
    own, reads = jnp.split(solved, (v.shape[-1],), axis=-1)
    return Chunk(
        own=own,
        reads=reads,
        queries=since_start * q,
        mix=between * dot(q, turned),
        keys=until_end * k,
        decay=since_start[..., -1, 0],
    )


def through_chunk(
    state: jax.Array, chunk: Chunk, dot: Dot = jnp.matmul
) -> tuple[jax.Array, jax.Array]:
    """The state [..., Dk, Dv] after a chunk, and the outputs [..., C, Dv] of its tokens."""
    delta = chunk.own - dot(chunk.reads, state)
    out = dot(chunk.queries, state) + chunk.mix @ delta
    state = chunk.decay[..., None, None] * state + jnp.swapaxes(chunk.keys, -1, -2) @ delta
    return state, out
