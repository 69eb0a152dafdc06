"""Experts beside one more that every token uses, weighted by a gate of its own.

The shared expert is a gated layer (`swiglu`) of another width than the chosen ones (`experts`). Its
gate is one column of weights: a PE has its part, as of a norm, and one word per token is added up.

Axes as in `mesh_layout`. Source: ``Qwen3_5MoeSparseMoeBlock`` in transformers'
``modeling_qwen3_5_moe.py``.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from wafer_jax.collectives import allreduce_ktree
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.dense_layers import Linear
from wafer_jax.models.feed_forward import experts, swiglu
from wafer_jax.models.mesh_layout import LayerLayout, blocks
from wafer_jax.models.mesh_products import Accumulate, sum_along
from wafer_jax.models.mesh_relay import Values, hidden_columns
from wafer_jax.models.mesh_tiles import cut
from wafer_jax.models.operator_cost import EXP, RECIPROCAL, Meter, OperatorCost, in_sequence
from wafer_jax.models.quantized.packed import Matrix
from wafer_jax.models.storage import MatrixTile, Span

Weights = dict[str, Any]
""""chosen" as in `experts`, "shared" as in `swiglu`, and "gate" [L, Y, e] in decode, [ex, X] of one
layer in prefill."""


def parameter_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter by its name below ``mlp.``."""
    shared = swiglu.parameter_shapes(_shared_config(config))
    return {
        **experts.parameter_shapes(config),
        **{f"shared_expert.{name}": shape for name, shape in shared.items()},
        "shared_expert_gate.weight": (1, config.hidden_size),
    }


class Dense(experts.Dense):
    """The dense reference; its attributes carry Hugging Face's names."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        super().__init__(config, rngs=rngs)
        self.shared_expert = swiglu.Dense(_shared_config(config), rngs=rngs)
        self.shared_expert_gate = Linear(config.hidden_size, 1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Transform ``[B, T, E]``."""
        shared = jax.nn.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return super().__call__(x) + shared


def lay_out(read: Callable[..., Matrix], layout: LayerLayout) -> dict[str, Any]:
    """Cut one layer's weights into decode's tiles; ``read`` concatenates parameters by name."""
    gate = np.asarray(read("shared_expert_gate.weight"), np.float32)[0]
    shared = lambda *names: read(*(f"shared_expert.{name}" for name in names))
    return {
        "chosen": experts.lay_out(read, layout),
        "shared": swiglu.lay_out(shared, _shared(layout)),
        "gate": cut(gate, blocks(layout.config.hidden_size, layout.mesh[0])),
    }


def decode(
    tiles: Weights,
    x: jax.Array,
    layer: jax.Array,
    layout: LayerLayout,
    k: int,
    accumulate: Accumulate = "float32",
) -> jax.Array:
    """One token's [Y, e], normalised, to [Y * e]; the gate always sums in float32."""
    score = sum_along(jnp.sum(x * tiles["gate"][layer], axis=1), k)
    shared = swiglu.decode(tiles["shared"], x, layer, _shared(layout), k, accumulate)
    chosen = experts.decode(tiles["chosen"], x, layer, layout, k, accumulate)
    return chosen + jax.nn.sigmoid(score) * shared


def relay(tiles: Weights, layout: LayerLayout) -> Weights:
    """One layer's weights from decode's layout to prefill's."""
    gate = hidden_columns(tiles["gate"].reshape(1, -1), layout)
    return {
        "chosen": experts.relay(tiles["chosen"], layout),
        "shared": swiglu.relay(tiles["shared"], _shared(layout)),
        "gate": gate.reshape(layout.mesh[1], -1).T,
    }


def prefill(tiles: Weights, x: jax.Array, layout: LayerLayout, values: Values, k: int) -> jax.Array:
    """A prompt's [l, ex, Y, X], normalised, to [l, ex, Y, X]."""
    score = jnp.sum(x * tiles["gate"][None, :, None], axis=1)
    score = allreduce_ktree.apply(score, k, "x", broadcast=False)[:, None]  # [l, 1, Y, 1]
    shared = swiglu.prefill(tiles["shared"], x, _shared(layout), values, k)
    return experts.prefill(tiles["chosen"], x, layout, values, k) + jax.nn.sigmoid(score) * shared


def decode_costs(meter: Meter, layout: LayerLayout) -> Iterator[OperatorCost]:
    """Operators of one token."""
    yield from experts.decode_costs(meter, layout)
    local = meter.vector(layout.hidden_y)
    score = meter.allreduce("", layout.mesh, 1, "y", compute=local)
    weigh = meter.compute("", meter.vector(1, EXP + RECIPROCAL + 1) + 2 * local)  # and add
    yield in_sequence("shared expert's gate", score, weigh)
    yield from _named(swiglu.decode_costs(meter, _shared(layout)))


def prefill_costs(meter: Meter, layout: LayerLayout, rows: int) -> Iterator[OperatorCost]:
    """Operators of a prompt with so many tokens per row."""
    yield from experts.prefill_costs(meter, layout, rows)
    local = rows * meter.vector(layout.hidden_x)
    score = meter.allreduce("", layout.mesh, rows, "x", compute=local)
    weigh = meter.compute("", meter.vector(rows, EXP + RECIPROCAL + 1) + 2 * local)
    yield in_sequence("shared expert's gate", score, weigh)
    yield from _named(swiglu.prefill_costs(meter, _shared(layout), rows))


def decode_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """What a PE holds in decode's layout; no format packs the gate."""
    gate = MatrixTile(Span(layout.hidden_y), Span(1), packs=False)
    return *experts.decode_tiles(layout), *swiglu.decode_tiles(_shared(layout)), gate


def prefill_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """The same in prefill's layout."""
    gate = MatrixTile(Span(layout.hidden_x), Span(1), packs=False)
    return *experts.prefill_tiles(layout), *swiglu.prefill_tiles(_shared(layout)), gate


def decode_elements(layout: LayerLayout) -> int:
    """Elements per PE of the most that is alive at once, the residual stream apart."""
    shared = swiglu.decode_elements(_shared(layout)) + layout.hidden_y  # and the chosen ones' sum
    return max(experts.decode_elements(layout), shared)


def prefill_elements(layout: LayerLayout, tokens: int) -> int:
    """Elements per PE that are kept beside the operands of its products."""
    return experts.prefill_elements(layout, tokens)


def _shared_config(config: DecoderConfig) -> DecoderConfig:
    assert config.experts is not None
    return replace(config, intermediate_size=config.experts.shared_size)


def _shared(layout: LayerLayout) -> LayerLayout:
    """Layout of the shared expert."""
    return replace(layout, config=_shared_config(layout.config))


def _named(operators: Iterator[OperatorCost]) -> Iterator[OperatorCost]:
    return (replace(o, operator=f"shared expert's {o.operator}") for o in operators)
