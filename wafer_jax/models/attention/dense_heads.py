"""Query heads that share key/value heads, in the dense reference; for kinds that keep both.

Axis letters: B sequences, T new tokens, S cache positions, P layers of a stack, H query heads,
K key/value heads, G = H / K, D head width, R of it that RoPE turns.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from wafer_jax.models.config import DecoderConfig


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class KVCache:
    """Keys and values of the tokens seen so far; their number is held outside.

    Attributes:
        keys: ``[P, B, K, S, D] float32``, after RoPE.
        values: ``[P, B, K, S, D] float32``.
    """

    keys: jax.Array
    values: jax.Array

    @classmethod
    def create(cls, config: DecoderConfig, batch: int, capacity: int) -> "KVCache":
        """Make an empty cache for so many sequences and positions: zeros."""
        shape = (config.periods, batch, config.num_kv_heads, capacity, config.head_dim)
        return cls(keys=jnp.zeros(shape, jnp.float32), values=jnp.zeros(shape, jnp.float32))

    @property
    def capacity(self) -> int:
        """Positions S."""
        return self.keys.shape[3]

    def put(self, k: jax.Array, v: jax.Array, layer: jax.Array, length: jax.Array) -> "KVCache":
        """Write ``[B, K, T, D]`` at positions ``length`` on of one layer; in place under jit."""
        zero = jnp.zeros((), jnp.int32)
        at = (layer, zero, zero, length, zero)
        return KVCache(
            keys=jax.lax.dynamic_update_slice(self.keys, k[None], at),
            values=jax.lax.dynamic_update_slice(self.values, v[None], at),
        )


class Step(NamedTuple):
    """What all layers share: positions ``length`` on, with cosine and sine ``[T, R]`` of each."""

    length: jax.Array
    cos: jax.Array
    sin: jax.Array


def step_of(config: DecoderConfig, length: jax.Array, tokens: int) -> Step:
    """The step of so many new tokens after ``length`` others; both halves of R turn alike."""
    position = length + jnp.arange(tokens, dtype=jnp.int32)
    inverse = jnp.asarray(config.rope.inverse_frequencies(config.head_dim), jnp.float32)
    angle = position.astype(jnp.float32)[:, None] * inverse[None, :]
    angle = jnp.concatenate([angle, angle], axis=-1)
    magnitude = config.rope.magnitude
    return Step(length, jnp.cos(angle) * magnitude, jnp.sin(angle) * magnitude)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Apply rotary position embedding: element t turns with ``t + R / 2``, from R on none does.

    Args:
        x: ``[B, heads, T, D]``.
        cos: ``[T, R]``.
        sin: ``[T, R]``.

    Returns:
        ``[B, heads, T, D]``.
    """
    x, passing = jnp.split(x, [cos.shape[-1]], axis=-1)
    first, second = jnp.split(x, 2, axis=-1)
    turned = jnp.concatenate([-second, first], axis=-1)
    x = x * cos[None, None] + turned * sin[None, None]
    return jnp.concatenate([x, passing], axis=-1)


def causal(length: jax.Array, tokens: int, positions: int, window: int | None = None) -> jax.Array:
    """``[T, S] bool``: the positions that each of the new tokens sees, in a window or all."""
    position = length + jnp.arange(tokens, dtype=jnp.int32)[:, None]
    key = jnp.arange(positions, dtype=jnp.int32)[None, :]
    seen = key <= position
    return seen if window is None else seen & (key > position - window)


def attend(
    q: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    seen: jax.Array,
    sinks: jax.Array | None = None,
) -> jax.Array:
    """Softmax attention.

    Args:
        q: ``[B, H, T, D]``; head h uses key/value head h // G: consecutive heads form a group.
        keys: ``[B, K, S, D]``.
        values: ``[B, K, S, D]``.
        seen: ``[T, S] bool``.
        sinks: ``[H] float32``, one more logit per head, to which no value belongs; or None.

    Returns:
        ``[B, H, T, D]``.
    """
    tokens, head_dim = q.shape[-2:]
    batch, kv_heads, positions, _ = keys.shape
    q = q.reshape(batch, kv_heads, -1, head_dim)  # [B, K, G * T, D]
    scores = (q @ keys.swapaxes(-1, -2)) * head_dim**-0.5
    scores = scores.reshape(batch, kv_heads, -1, tokens, positions)
    scores = jnp.where(seen[None, None, None], scores, -jnp.inf)
    if sinks is not None:
        logit = sinks.reshape(1, kv_heads, -1, 1, 1)
        scores = jnp.concatenate([scores, jnp.broadcast_to(logit, (*scores.shape[:-1], 1))], -1)
    weights = jax.nn.softmax(scores, axis=-1)[..., :positions]
    weights = weights.reshape(batch, kv_heads, -1, positions)
    return (weights @ values).reshape(batch, -1, tokens, head_dim)
