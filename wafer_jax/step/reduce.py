"""Reductions over all lanes."""

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.step_spec import StepSpec


def or_lanes(spec: StepSpec, flags: jax.Array) -> jax.Array:
    """Bitwise or of a plane [n] over its lanes.

    Rows first: XLA vectorises a reduction over the major axis, not one to a scalar.
    """
    zero = jnp.zeros((), flags.dtype)
    rows = lax.reduce(flags.reshape(-1, spec.row), zero, lax.bitwise_or, (0,))
    return lax.reduce(rows, zero, lax.bitwise_or, (0,))


def any_lane(spec: StepSpec, plane: jax.Array) -> jax.Array:
    """Whether a boolean plane [n] holds anywhere."""
    return or_lanes(spec, plane.astype(jnp.uint8)) != 0
