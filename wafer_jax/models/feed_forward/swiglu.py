"""Gated layers, ``down(activation(gate(x), up(x)))``: dense, on the mesh, what they cost there.

Axes as in `mesh_layout`; F its width.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from wafer_jax.collectives import gemm
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.dense_layers import Linear
from wafer_jax.models.mesh_layout import LayerLayout, blocks
from wafer_jax.models.mesh_products import Accumulate, project
from wafer_jax.models.mesh_relay import (
    Values,
    bias_to_columns,
    pad,
    relay_to_columns,
    relay_to_hidden,
    vector_to_hidden,
)
from wafer_jax.models.mesh_tiles import cut, side_by_side
from wafer_jax.models.operator_cost import Meter, OperatorCost
from wafer_jax.models.packed_tiles import matrix_tiles
from wafer_jax.models.quantized.packed import Matrix
from wafer_jax.models.storage import MatrixTile, Span

Weights = dict[str, Any]
"""`Tiles` in decode: "gate_up" [L, e, Y, X * 2 f] and "down" [L, f, X, Y * e], with ``ffn_bias``
also "gate_up_bias" [L, X * 2 f] and "down_bias" [L, Y * e]; in prefill arrays of one layer."""


def parameter_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter by its name below ``mlp.``."""
    E, F = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in {"gate": (F, E), "up": (F, E), "down": (E, F)}.items():
        shapes[f"{name}_proj.weight"] = shape
        if config.ffn_bias:
            shapes[f"{name}_proj.bias"] = shape[:1]
    return shapes


class Dense(nnx.Module):
    """The dense reference; its attributes carry Hugging Face's names."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        E, F, bias = config.hidden_size, config.intermediate_size, config.ffn_bias
        self.gate_proj = Linear(E, F, use_bias=bias, rngs=rngs)
        self.up_proj = Linear(E, F, use_bias=bias, rngs=rngs)
        self.down_proj = Linear(F, E, use_bias=bias, rngs=rngs)
        self.activation = config.activation

    def __call__(self, x: jax.Array) -> jax.Array:
        """Transform ``[B, T, E]``."""
        return self.down_proj(self.activation(self.gate_proj(x), self.up_proj(x)))


def lay_out(read: Callable[..., Matrix], layout: LayerLayout) -> dict[str, Any]:
    """Cut one layer's weights into decode's tiles; ``read`` concatenates parameters by name."""
    config, (height, width) = layout.config, layout.mesh
    size = config.intermediate_size
    hidden, ffn = blocks(config.hidden_size, height), blocks(size, width)
    gate_up = side_by_side((size, ffn), (size, ffn))
    tiles: dict[str, Any] = {
        "gate_up": matrix_tiles(read("gate_proj.weight", "up_proj.weight"), hidden, gate_up),
        "down": matrix_tiles(read("down_proj.weight"), ffn, hidden),
    }
    if config.ffn_bias:
        of_both = np.asarray(read("gate_proj.bias", "up_proj.bias"), np.float32)
        of_down = np.asarray(read("down_proj.bias"), np.float32)
        tiles["gate_up_bias"] = cut(of_both, gate_up).reshape(-1)
        tiles["down_bias"] = cut(of_down, hidden).reshape(-1)
    return tiles


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
    if layout.config.ffn_bias:
        gate_up = gate_up + tiles["gate_up_bias"][layer]
    gate, up = jnp.moveaxis(gate_up.reshape(layout.mesh[1], 2, -1), 1, 0)
    hidden = layout.config.activation(gate, up)
    out = project(hidden, tiles["down"], layer, k, accumulate)
    return out + tiles["down_bias"][layer] if layout.config.ffn_bias else out


def relay(tiles: Weights, layout: LayerLayout) -> dict[str, jax.Array]:
    """One layer's weights from decode's layout to prefill's."""
    relaid = {
        "gate_up": relay_to_columns(tiles["gate_up"], layout),
        "down": relay_to_hidden(tiles["down"], layout),
    }
    if layout.config.ffn_bias:
        relaid["gate_up_bias"] = bias_to_columns(tiles["gate_up_bias"], layout)
        relaid["down_bias"] = vector_to_hidden(tiles["down_bias"], layout)
    return relaid


def prefill(
    tiles: dict[str, jax.Array], x: jax.Array, layout: LayerLayout, values: Values, k: int
) -> jax.Array:
    """A prompt's [l, ex, Y, X], normalised, to [l, ex, Y, X]."""
    hidden = pad(activated(tiles, x, layout, values), 1, layout.contracted(layout.ffn_x))
    out = gemm.apply(hidden, tiles["down"], values=values)
    return out + tiles["down_bias"][None, :, None] if layout.config.ffn_bias else out


def activated(
    tiles: dict[str, jax.Array], x: jax.Array, layout: LayerLayout, values: Values
) -> jax.Array:
    """A prompt's [l, ex, Y, X] up to the down projection, [l, f, Y, X]."""
    gate_up = gemm.apply(x, tiles["gate_up"], values=values)
    if layout.config.ffn_bias:
        gate_up = gate_up + tiles["gate_up_bias"][None, :, None]
    return layout.config.activation(*jnp.split(gate_up, 2, axis=1))


def decode_costs(meter: Meter, layout: LayerLayout) -> Iterator[OperatorCost]:
    """Operators of one token."""
    mesh, hidden, ffn = layout.mesh, layout.hidden_y, layout.ffn_x
    yield meter.matvec("gate, up", mesh, (hidden, 2 * ffn), "y")
    if layout.config.ffn_bias:
        yield meter.compute("gate, up bias", meter.vector(2 * ffn))
    yield meter.compute("SiLU", meter.vector(ffn, layout.config.activation.instructions))
    yield meter.matvec("down", mesh, (ffn, hidden), "x")
    if layout.config.ffn_bias:
        yield meter.compute("down bias", meter.vector(hidden))


def prefill_costs(meter: Meter, layout: LayerLayout, rows: int) -> Iterator[OperatorCost]:
    """Operators of a prompt with so many tokens per row."""
    (height, width), hidden = layout.mesh, layout.hidden_x
    ffn = layout.contracted(layout.ffn_x)
    product = lambda name, k, n: meter.project(
        name, layout.mesh, (rows * height, k * width, n * width)
    )
    instructions = layout.config.activation.instructions
    yield product("gate, up", hidden, 2 * layout.ffn_x)
    if layout.config.ffn_bias:
        yield meter.compute("gate, up bias", rows * meter.vector(2 * layout.ffn_x))
    yield meter.compute("SiLU", meter.vector(rows * layout.ffn_x, instructions))
    yield product("down", ffn, hidden)
    if layout.config.ffn_bias:
        yield meter.compute("down bias", rows * meter.vector(hidden))


def decode_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """What a PE holds in decode's layout."""
    hidden = Span(layout.hidden_y)
    return (
        MatrixTile(hidden, Span(layout.ffn_x, 2)),
        MatrixTile(Span(layout.ffn_x), hidden, turned=True),
        *_biases(layout, layout.hidden_y),
    )


def prefill_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """The same in prefill's layout, whose rows fill up to whole blocks of MeshGEMM."""
    contracted = layout.contracted(layout.ffn_x)
    rows = layout.weight_rows(contracted)
    even = contracted == layout.ffn_x
    return (
        MatrixTile(Span(layout.weight_rows(layout.hidden_x)), Span(layout.ffn_x, 2)),
        MatrixTile(Span(rows, unit=rows if even else 1), Span(layout.hidden_x)),
        *_biases(layout, layout.hidden_x),
    )


def _biases(layout: LayerLayout, hidden: int) -> Iterator[MatrixTile]:
    if layout.config.ffn_bias:
        for size in (2 * layout.ffn_x, hidden):
            yield MatrixTile(Span(1), Span(size), packs=False)


def decode_elements(layout: LayerLayout) -> int:
    """Elements per PE of the most that is alive at once, the residual stream apart."""
    return layout.hidden_y + 2 * layout.ffn_x


def prefill_elements(layout: LayerLayout, tokens: int) -> int:
    """Elements per PE that are kept beside the operands of its products."""
    return 0
