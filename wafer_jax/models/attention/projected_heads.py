"""What one projection makes for attention: queries, keys, values, and gates where heads have them.

Axes as in `mesh_layout`, n elements per PE of all of them together.
"""

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.models.mesh_layout import PAD, LayerLayout
from wafer_jax.models.mesh_tiles import side_by_side
from wafer_jax.models.operator_cost import EXP, RECIPROCAL, Meter, OperatorCost


def columns(layout: LayerLayout) -> np.ndarray:
    """[X, n] int: rows of the q, k and v projections, one below the other, that a column holds."""
    config, queries, keys = layout.config, layout.q_columns, layout.kv_columns
    of_keys = [(config.kv_size, keys)] * 2
    if not config.attention_gate:
        return side_by_side((config.q_size, queries), *of_keys)
    # The rows of every head's query are followed by those of its gate.
    head, inside = np.divmod(queries, config.head_dim)
    rows = np.where(queries != PAD, 2 * head * config.head_dim + inside, PAD)
    gates = np.where(queries != PAD, rows + config.head_dim, PAD)
    return np.concatenate([side_by_side((2 * config.q_size, rows), *of_keys), gates], axis=1)


def split(projected: jax.Array, layout: LayerLayout, axis: int) -> list[jax.Array]:
    """Queries, keys, values and gates, of which there may be none, along an axis of n."""
    q, kv = layout.q_x, layout.kv_x
    return jnp.split(projected, (q, q + kv, q + 2 * kv), axis=axis)


def scale(mixed: jax.Array, gate: jax.Array) -> jax.Array:
    """Scale what attention mixed by the sigmoid of its gates, if there are any."""
    return mixed * jax.nn.sigmoid(gate) if gate.size else mixed


def gate_costs(meter: Meter, layout: LayerLayout, tokens: int) -> OperatorCost:
    """Sigmoids of the gates of so many tokens of a row, and scaling by them."""
    scaling = tokens * meter.vector(layout.gate_x, EXP + RECIPROCAL + 2)
    return meter.compute("gates of heads", scaling)
