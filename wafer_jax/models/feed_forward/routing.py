"""Rules by which a router's scores choose experts, with the cycles of one choice.

Axes: N experts.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.models.config import Experts
from wafer_jax.models.operator_cost import EXP, RECIPROCAL, Meter

Choice = tuple[jax.Array, jax.Array]
"""Numbers and weights [..., chosen]."""


@dataclass(frozen=True)
class Rule:
    """One way to choose.

    Attributes:
        choose: from scores [..., N], the experts, and the correction [N] of those that have one.
        cycles: of one token's choice, on every PE alike.
    """

    choose: Callable[..., Choice]
    cycles: Callable[[Meter, Experts], int]


def _softmax(scores: jax.Array, experts: Experts, _: None = None) -> Choice:
    weights, numbers = lax.top_k(jax.nn.softmax(scores, axis=-1), experts.chosen)
    if experts.renormalise:
        weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
    return numbers, weights


def _softmax_cycles(meter: Meter, experts: Experts) -> int:
    softmax = meter.vector(experts.count, 3 + EXP) + meter.vector(1, RECIPROCAL)
    normalise = meter.vector(experts.chosen, 2) + meter.vector(1, RECIPROCAL)
    return softmax + _top_cycles(meter, experts) + normalise


def _softmax_of_chosen(scores: jax.Array, experts: Experts, _: None = None) -> Choice:
    best, numbers = lax.top_k(scores, experts.chosen)
    return numbers, jax.nn.softmax(best, axis=-1)


def _softmax_of_chosen_cycles(meter: Meter, experts: Experts) -> int:
    softmax = meter.vector(experts.chosen, 3 + EXP) + meter.vector(1, RECIPROCAL)
    return _top_cycles(meter, experts) + softmax


def _sigmoid(scores: jax.Array, experts: Experts, correction: jax.Array) -> Choice:
    shares = jax.nn.sigmoid(scores)
    correction = jnp.expand_dims(correction, tuple(range(scores.ndim - 1)))
    _, numbers = lax.top_k(shares + correction, experts.chosen)
    weights = jnp.take_along_axis(shares, numbers, axis=-1)
    return numbers, weights / jnp.sum(weights, axis=-1, keepdims=True)


def _sigmoid_cycles(meter: Meter, experts: Experts) -> int:
    sigmoid = meter.vector(experts.count, EXP + RECIPROCAL + 2)
    normalise = meter.vector(experts.chosen, 2) + meter.vector(1, RECIPROCAL)
    return sigmoid + meter.vector(experts.count) + _top_cycles(meter, experts) + normalise


def _top_cycles(meter: Meter, experts: Experts) -> int:
    """A maximum and its place for every choice."""
    return experts.chosen * meter.vector(experts.count, 2)


RULES = {
    "softmax": Rule(_softmax, _softmax_cycles),
    "softmax_of_chosen": Rule(_softmax_of_chosen, _softmax_of_chosen_cycles),
    "sigmoid": Rule(_sigmoid, _sigmoid_cycles),
}
"""By ``Experts.scoring``: softmax over all experts, then the best ones, or the other way round;
sigmoids of which a correction helps to choose the best, made to add up to 1."""


def weights_of_all(
    scores: jax.Array, experts: Experts, correction: jax.Array | None = None
) -> jax.Array:
    """Weight of every expert [..., N], zero where it was not chosen."""
    numbers, weights = RULES[experts.scoring].choose(scores, experts, correction)
    return jnp.sum(jax.nn.one_hot(numbers, experts.count) * weights[..., None], axis=-2)
