"""Operations on packed FIFO words (`FifoFormat`), element by element over planes."""

import jax
import jax.numpy as jnp

from wafer_jax.step_spec import FifoFormat


def tick(fifo: FifoFormat, q: jax.Array) -> jax.Array:
    """Advance the delay line by a cycle; its lowest bit becomes a ready word."""
    low = q & ((1 << fifo.line_shift) - 1)
    return low + (q >> fifo.line_shift & 1) + (q >> (fifo.line_shift + 1) << fifo.line_shift)


def skip(fifo: FifoFormat, q: jax.Array, cycles: jax.Array) -> jax.Array:
    """Advance the delay line by ``cycles`` in which no word becomes ready."""
    low = q & ((1 << fifo.line_shift) - 1)
    by = jnp.minimum(cycles, fifo.bits - 1).astype(fifo.dtype)
    return low | (q >> fifo.line_shift >> by << fifo.line_shift)


def line(fifo: FifoFormat, q: jax.Array) -> jax.Array:
    """The delay line."""
    return q >> fifo.line_shift


def ready(fifo: FifoFormat, q: jax.Array) -> jax.Array:
    """Words that may leave."""
    return q & ((1 << fifo.count_bits) - 1)


def total(fifo: FifoFormat, q: jax.Array) -> jax.Array:
    """Words in all, the latency pipeline included."""
    return q >> fifo.count_bits & ((1 << fifo.count_bits) - 1)


def push(fifo: FifoFormat, q: jax.Array, words: jax.Array, latency_cycles: int) -> jax.Array:
    """Add ``words`` (0 or 1), ready in ``latency_cycles`` cycles."""
    one = (1 << fifo.count_bits) + (1 << (fifo.line_shift + latency_cycles - 1))
    return q + words * jnp.asarray(one, fifo.dtype)


def push_behind(fifo: FifoFormat, q: jax.Array, words: jax.Array, latency_cycles: int) -> jax.Array:
    """Like `push`, but ready one cycle after the word ahead of it at the earliest.

    Needed where the latency of the input can change: else two words could be due in one cycle.
    """
    line = q >> fifo.line_shift
    for step in (1, 2, 4, 8):
        line |= line >> step
    due = jnp.maximum(line + 1, 1 << (latency_cycles - 1)).astype(fifo.dtype)
    return q + words * ((1 << fifo.count_bits) + (due << fifo.line_shift))


def pop(fifo: FifoFormat, q: jax.Array, words: jax.Array) -> jax.Array:
    """Remove ``words`` (0 or 1) ready words."""
    return q - words * (1 + (1 << fifo.count_bits))
