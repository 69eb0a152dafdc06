"""What all layers of the dense reference are made of.

Weights keep Hugging Face's ``[out, in]`` layout: ``x @ w.T`` inside a scan is the form of a
matrix-vector product that XLA streams at memory speed on a CPU without copying the slice first.
"""

import jax
import jax.numpy as jnp
from flax import nnx


class Linear(nnx.Module):
    """A projection in Hugging Face's layout: ``weight [out, in]``, ``bias [out]`` or None."""

    def __init__(self, in_size: int, out_size: int, *, use_bias: bool = False, rngs: nnx.Rngs):
        self.weight = nnx.Param(normal(rngs, (out_size, in_size)))
        self.bias = nnx.Param(jnp.zeros((out_size,), jnp.float32)) if use_bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        """Project ``[B, T, in]`` to ``[B, T, out]``."""
        # Two axes: with three, XLA would not recognise the matrix-vector product of decode.
        y = x.reshape(-1, x.shape[-1]) @ self.weight[...].T
        if self.bias is not None:
            y = y + self.bias[...][None, :]
        return y.reshape(*x.shape[:-1], -1)


class RMSNorm(nnx.Module):
    """``x / sqrt(mean(x^2) + eps) * (weight + offset)`` over the last axis."""

    def __init__(self, size: int, eps: float, offset: float = 0.0):
        self.weight = nnx.Param(jnp.full((size,), 1 - offset, jnp.float32))
        self.eps, self.offset = eps, offset

    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalise ``[..., E]``."""
        mean_square = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
        weight = jnp.expand_dims(self.weight[...] + self.offset, tuple(range(x.ndim - 1)))
        return x * jax.lax.rsqrt(mean_square + self.eps) * weight


def normal(rngs: nnx.Rngs, shape: tuple[int, ...]) -> jax.Array:
    """Small random parameters."""
    return jax.random.normal(rngs.params(), shape, jnp.float32) * 0.02
