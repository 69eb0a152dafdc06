"""How a gated layer joins its two projections, and the vector instructions that it takes."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from wafer_jax.models.operator_cost import EXP, RECIPROCAL


@dataclass(frozen=True)
class SwiGLU:
    """``silu(gate) * up`` (arXiv 2002.05202)."""

    instructions = EXP + RECIPROCAL + 3

    def __call__(self, gate: jax.Array, up: jax.Array) -> jax.Array:
        """Elementwise, any shape."""
        return jax.nn.silu(gate) * up


@dataclass(frozen=True)
class ClampedSwiGLU:
    """``gate * sigmoid(alpha * gate) * (up + 1)`` of clamped operands.

    Source: ``GptOssExperts`` in transformers' ``modeling_gpt_oss.py``.

    Attributes:
        alpha: gain of the sigmoid.
        limit: largest ``gate``, and largest absolute ``up``.
    """

    alpha: float
    limit: float

    instructions = EXP + RECIPROCAL + 8

    def __call__(self, gate: jax.Array, up: jax.Array) -> jax.Array:
        """Elementwise, any shape."""
        gate = jnp.minimum(gate, self.limit)
        up = jnp.clip(up, -self.limit, self.limit)
        return gate * jax.nn.sigmoid(self.alpha * gate) * (up + 1)
