"""SwiGLU, ``down(silu(gate(x)) * up(x))``: dense, on the mesh, and what it costs there.

Axes as in `mesh_layout`; F its width.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from wafer_jax.collectives import gemm
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.dense_layers import Linear
from wafer_jax.models.mesh_layout import LayerLayout, blocks
from wafer_jax.models.mesh_products import Accumulate, project
from wafer_jax.models.mesh_relay import Values, pad, relay_to_columns, relay_to_hidden
from wafer_jax.models.mesh_tiles import side_by_side
from wafer_jax.models.operator_cost import EXP, RECIPROCAL, Meter, OperatorCost
from wafer_jax.models.packed_tiles import Tiles, matrix_tiles
from wafer_jax.models.quantized.packed import Matrix
from wafer_jax.models.storage import MatrixTile, Span

Weights = dict[str, Tiles]
"""In decode "gate_up" [L, e, Y, X * 2 f] and "down" [L, f, X, Y * e], in prefill one layer's."""


def parameter_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter by its name below ``mlp.``."""
    E, F = config.hidden_size, config.intermediate_size
    return {"gate_proj.weight": (F, E), "up_proj.weight": (F, E), "down_proj.weight": (E, F)}


class Dense(nnx.Module):
    """The dense reference; its attributes carry Hugging Face's names."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.gate_proj = Linear(config.hidden_size, config.intermediate_size, rngs=rngs)
        self.up_proj = Linear(config.hidden_size, config.intermediate_size, rngs=rngs)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Transform ``[B, T, E]``."""
        return self.down_proj(jax.nn.silu(self.gate_proj(x)) * self.up_proj(x))


def lay_out(read: Callable[..., Matrix], layout: LayerLayout) -> dict[str, Any]:
    """Cut one layer's weights into decode's tiles; ``read`` concatenates parameters by name."""
    config, (height, width) = layout.config, layout.mesh
    size = config.intermediate_size
    hidden, ffn = blocks(config.hidden_size, height), blocks(size, width)
    gate_up = side_by_side((size, ffn), (size, ffn))
    return {
        "gate_up": matrix_tiles(read("gate_proj.weight", "up_proj.weight"), hidden, gate_up),
        "down": matrix_tiles(read("down_proj.weight"), ffn, hidden),
    }


def decode(
    tiles: Weights,
    x: jax.Array,
    layer: jax.Array,
    layout: LayerLayout,
    k: int,
    accumulate: Accumulate = "float32",
) -> jax.Array:
    """One token's [Y, e], normalised, to [Y * e]."""
    gate_up = project(x, tiles["gate_up"], layer, k, accumulate)
    gate, up = jnp.moveaxis(gate_up.reshape(layout.mesh[1], 2, -1), 1, 0)
    return project(jax.nn.silu(gate) * up, tiles["down"], layer, k, accumulate)


def relay(tiles: Weights, layout: LayerLayout) -> dict[str, jax.Array]:
    """One layer's weights from decode's layout to prefill's."""
    return {
        "gate_up": relay_to_columns(tiles["gate_up"], layout),
        "down": relay_to_hidden(tiles["down"], layout),
    }


def prefill(
    tiles: dict[str, jax.Array], x: jax.Array, layout: LayerLayout, values: Values, k: int
) -> jax.Array:
    """A prompt's [l, ex, Y, X], normalised, to [l, ex, Y, X]."""
    gate, up = jnp.split(gemm.apply(x, tiles["gate_up"], values=values), 2, axis=1)
    hidden = pad(jax.nn.silu(gate) * up, 1, layout.contracted(layout.ffn_x))
    return gemm.apply(hidden, tiles["down"], values=values)


def decode_costs(meter: Meter, layout: LayerLayout) -> Iterator[OperatorCost]:
    """Operators of one token."""
    mesh, hidden, ffn = layout.mesh, layout.hidden_y, layout.ffn_x
    yield meter.matvec("gate, up", mesh, (hidden, 2 * ffn), "y")
    yield meter.compute("SiLU", meter.vector(ffn, EXP + RECIPROCAL + 3))
    yield meter.matvec("down", mesh, (ffn, hidden), "x")


def prefill_costs(meter: Meter, layout: LayerLayout, rows: int) -> Iterator[OperatorCost]:
    """Operators of a prompt with so many tokens per row."""
    (height, width), hidden = layout.mesh, layout.hidden_x
    ffn = layout.contracted(layout.ffn_x)
    product = lambda name, k, n: meter.project(
        name, layout.mesh, (rows * height, k * width, n * width)
    )
    yield product("gate, up", hidden, 2 * layout.ffn_x)
    yield meter.compute("SiLU", meter.vector(rows * layout.ffn_x, EXP + RECIPROCAL + 3))
    yield product("down", ffn, hidden)


def decode_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """What a PE holds in decode's layout."""
    hidden = Span(layout.hidden_y)
    return MatrixTile(hidden, Span(layout.ffn_x, 2)), MatrixTile(Span(layout.ffn_x), hidden)


def prefill_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """The same in prefill's layout, whose rows fill up to whole blocks of MeshGEMM."""
    contracted = layout.contracted(layout.ffn_x)
    rows = layout.weight_rows(contracted)
    even = contracted == layout.ffn_x
    return (
        MatrixTile(Span(layout.weight_rows(layout.hidden_x)), Span(layout.ffn_x, 2)),
        MatrixTile(Span(rows, unit=rows if even else 1), Span(layout.hidden_x)),
    )


def turned_rows(layout: LayerLayout) -> tuple[int, ...]:
    """Rows of the matrices that lie along another axis in prefill than in decode."""
    return (layout.ffn_x * layout.mesh[1],)


def decode_elements(layout: LayerLayout) -> int:
    """Elements per PE of the most that is alive at once, the residual stream apart."""
    return layout.hidden_y + 2 * layout.ffn_x


def prefill_elements(layout: LayerLayout, tokens: int) -> int:
    """Elements per PE that are kept beside the operands of its products."""
    return 0
