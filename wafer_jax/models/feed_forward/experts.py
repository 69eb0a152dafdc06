"""Experts, each a gated layer (`swiglu`), of which a router chooses a few per token (`routing`).

On the mesh all experts of a layer lie in the layer's own region: every PE holds a tile of every
expert, or of those of its own part of the region (`expert_regions`), and of the router some
columns. In decode the router's scores are spread along the rows, all PEs choose alike, and only the
chosen experts are computed: their parts of ``gate`` and ``up`` are added up together, and their
parts of ``down`` on the PE before they are. In prefill every token of a row chooses for itself, so
the static schedule computes every expert for the whole prompt, and the weight of what was not
chosen is zero.

Axes: N experts, n of them per column, F their width; else as in `mesh_layout`. Source:
``modeling_qwen3_moe.py``, ``modeling_gpt_oss.py`` and ``modeling_minimax_m2.py`` in transformers.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from wafer_jax.collectives import gemm
from wafer_jax.collectives.tiles import tile_size
from wafer_jax.models.config import DecoderConfig, Experts
from wafer_jax.models.dense_layers import Linear
from wafer_jax.models.feed_forward import expert_regions, swiglu
from wafer_jax.models.feed_forward.routing import RULES, weights_of_all
from wafer_jax.models.mesh_layout import LayerLayout, blocks
from wafer_jax.models.mesh_products import Accumulate, matvec, multiply, sum_along
from wafer_jax.models.mesh_relay import Values, bias_to_columns, pad, relay_to_columns
from wafer_jax.models.mesh_tiles import cut
from wafer_jax.models.operator_cost import Meter, OperatorCost, expected, in_sequence
from wafer_jax.models.packed_tiles import matrix_tiles
from wafer_jax.models.quantized.packed import Matrix
from wafer_jax.models.storage import MatrixTile, Span

Weights = dict[str, Any]
"""`Tiles` in decode: "router" [L, e, Y, X * n], with ``router_bias`` "router_bias" [L, X * n], with
a correction "router_correction" [L, N], the same on every PE, and of every expert what `swiglu`
has on the expert's region, [L, N, ...]; in prefill arrays of one layer."""


def parameter_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter by its name below ``mlp.``."""
    one, count = swiglu.parameter_shapes(config), _of(config).count
    every = {f"experts.{j}.{name}": shape for j in range(count) for name, shape in one.items()}
    router: dict[str, tuple[int, ...]] = {"gate.weight": (count, config.hidden_size)}
    if _of(config).router_bias:
        router["gate.bias"] = (count,)
    if _of(config).corrected:
        router["e_score_correction_bias"] = (count,)
    return router | every


class Dense(nnx.Module):
    """The dense reference: every expert for every token, weighted."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.chosen = _of(config)
        count, bias = self.chosen.count, self.chosen.router_bias
        self.gate = Linear(config.hidden_size, count, use_bias=bias, rngs=rngs)
        correction = nnx.Param(jnp.zeros((count,), jnp.float32))
        self.e_score_correction_bias = correction if self.chosen.corrected else None
        make = lambda keys: swiglu.Dense(config, rngs=keys)
        self.experts = nnx.vmap(make)(rngs.split(count))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Transform ``[B, T, E]``."""
        correction = self.e_score_correction_bias
        correction = None if correction is None else correction[...]
        weights = weights_of_all(self.gate(x), self.chosen, correction)
        weights = jnp.moveaxis(weights, -1, 0)  # [N, B, T]
        graph, parameters = nnx.split(self.experts)

        def body(acc: jax.Array, expert: tuple):
            parameters, weight = expert
            return acc + weight[..., None] * nnx.merge(graph, parameters)(x), None

        return lax.scan(body, jnp.zeros_like(x), (parameters, weights))[0]


def lay_out(read: Callable[..., Matrix], layout: LayerLayout) -> dict[str, Any]:
    """Cut one layer's weights into decode's tiles; ``read`` concatenates parameters by name."""
    config, (height, width) = layout.config, layout.mesh
    count, region = _of(config).count, layout.expert_region
    hidden, columns = blocks(config.hidden_size, height), blocks(count, width)
    each = [
        swiglu.lay_out(lambda *names, j=j: read(*(f"experts.{j}.{n}" for n in names)), region)
        for j in range(count)
    ]
    tiles: dict[str, Any] = {"router": matrix_tiles(read("gate.weight"), hidden, columns)}
    if _of(config).router_bias:
        bias = np.asarray(read("gate.bias"), np.float32)
        tiles["router_bias"] = cut(bias, columns).reshape(-1)
    if _of(config).corrected:
        tiles["router_correction"] = np.asarray(read("e_score_correction_bias"), np.float32)
    return tiles | jax.tree.map(lambda *tiles: np.stack(tiles), *each)


def decode(
    tiles: Weights,
    x: jax.Array,
    layer: jax.Array,
    layout: LayerLayout,
    k: int,
    accumulate: Accumulate = "float32",
) -> jax.Array:
    """One token's [Y, e], normalised, to [Y * e]; the router always sums in float32."""
    config, experts, region = layout.config, _of(layout.config), layout.expert_region
    scores = matvec(x, tiles["router"], layer, k)
    if experts.router_bias:
        scores = scores + tiles["router_bias"][layer]
    correction = tiles["router_correction"][layer] if experts.corrected else None
    numbers, weights = RULES[experts.scoring].choose(scores[: experts.count], experts, correction)
    places = layer * experts.count + numbers  # in the stack of all layers' experts
    stack = lambda array: array.reshape(-1, *array.shape[2:])
    of = jax.tree.map(stack, _each(tiles))
    x = expert_regions.dispatch(x, layout).astype(accumulate)
    parts = lax.map(lambda place: multiply(x, of["gate_up"], place), places)
    sums = sum_along(jnp.moveaxis(parts, 1, 0), k).astype(jnp.float32)  # [chosen, X * 2 f]
    if config.ffn_bias:
        sums = sums + of["gate_up_bias"][places]
    gate, up = jnp.moveaxis(sums.reshape(experts.chosen, region.mesh[1], 2, -1), 2, 0)
    hidden = config.activation(gate, up) * weights[:, None, None]

    def add(acc: jax.Array, expert: tuple[jax.Array, jax.Array, jax.Array]):
        hidden, place, home = expert
        part = multiply(hidden.astype(accumulate), of["down"], place, acc[home])
        return acc.at[home].set(part), None

    start = jnp.zeros((layout.expert_regions, *of["down"].shape[2:]), accumulate)
    homes = expert_regions.home_of(numbers, layout)
    parts = lax.scan(add, start, (hidden, places, homes))[0]
    out = expert_regions.combine(parts, layout, k).astype(jnp.float32)
    if not config.ffn_bias:
        return out
    return out + expert_regions.cut_bias_anew(weights @ of["down_bias"][places], layout)


def relay(tiles: Weights, layout: LayerLayout) -> dict[str, jax.Array]:
    """One layer's weights from decode's layout to prefill's."""
    router = {"router": relay_to_columns(tiles["router"], layout)}
    if _of(layout.config).router_bias:
        router["router_bias"] = bias_to_columns(tiles["router_bias"], layout)
    if _of(layout.config).corrected:
        router["router_correction"] = tiles["router_correction"]
    return router | jax.vmap(lambda one: swiglu.relay(one, layout.expert_region))(_each(tiles))


def prefill(
    tiles: dict[str, jax.Array], x: jax.Array, layout: LayerLayout, values: Values, k: int
) -> jax.Array:
    """A prompt's [l, ex, Y, X], normalised, to [l, ex, Y, X]."""
    experts = _of(layout.config)
    scores = gemm.apply(x, tiles["router"], values=values)  # [l, n, Y, X]
    if experts.router_bias:
        scores = scores + tiles["router_bias"][None, :, None]
    by_token = scores.transpose(0, 2, 3, 1).reshape(*scores.shape[::2], -1)[..., : experts.count]
    weights = weights_of_all(by_token, experts, tiles.get("router_correction"))
    weights = expert_regions.dispatch_weights(jnp.moveaxis(weights, -1, 0), layout)  # [N, l', h]
    region, tokens = layout.expert_region, x.shape[0]
    x = expert_regions.dispatch_prompt(x, layout)  # [l', ex', h, w]

    def body(acc: jax.Array, expert: tuple[dict[str, jax.Array], jax.Array, jax.Array]):
        one, weight, home = expert
        weight = weight[:, None, :, None]
        hidden = swiglu.activated(one, x, region, values) * weight
        hidden = pad(hidden, 1, region.contracted(region.ffn_x))
        part = acc[home] + gemm.apply(hidden, one["down"], values=values)
        if "down_bias" in one:
            part = part + weight * one["down_bias"][None, :, None]
        return acc.at[home].set(part), None

    homes = expert_regions.home_of(jnp.arange(experts.count, dtype=jnp.int32), layout)
    start = jnp.zeros((layout.expert_regions, *x.shape), x.dtype)
    parts = lax.scan(body, start, (_each(tiles), weights, homes))[0]
    return expert_regions.combine_prompt(parts, layout, tokens)


def decode_costs(meter: Meter, layout: LayerLayout) -> Iterator[OperatorCost]:
    """Operators of one token; the scores are spread by a sum to which the others add zeros."""
    experts, mesh, vector = _of(layout.config), layout.mesh, meter.vector
    yield meter.plain.matvec("router", mesh, (layout.hidden_y, _columns(layout)), "y")
    if experts.router_bias:
        yield meter.compute("router bias", vector(_columns(layout)))
    yield meter.allreduce("spread the scores", mesh, experts.count, "x")
    yield meter.compute("choose experts", RULES[experts.scoring].cycles(meter, experts))
    yield from expert_regions.dispatch_costs(meter, layout)
    loads = expert_regions.loads(experts, layout)
    each = zip(*(_chosen_costs(meter, layout, chosen) for chosen in loads), strict=True)
    for operators in each:
        yield expected(zip(loads.values(), operators, strict=True))
    yield from expert_regions.combine_costs(meter, layout)


def _chosen_costs(meter: Meter, layout: LayerLayout, load: int) -> Iterator[OperatorCost]:
    """The chosen experts, so many of each sequence's in the fullest region.

    Of several sequences that is a bound: their fullest regions need not be the same.
    """
    region, vector, config = layout.expert_region, meter.vector, layout.config
    hidden, ffn = region.hidden_y, region.ffn_x
    copies, instructions = _of(config).chosen // load, config.activation.instructions
    different = min(layout.experts_per_region, meter.batch * load)
    products = lambda tile: load * meter.gemv(*tile) + different * meter.unpacking(*tile)
    sums, cycles = load * 2 * ffn, products((hidden, 2 * ffn))
    yield meter.allreduce("gate, up", region.mesh, sums, "y", copies=copies, compute=cycles)
    if config.ffn_bias:
        yield meter.compute("gate, up bias", vector(sums))
    yield meter.compute("SiLU", vector(load * ffn, instructions + 1))  # and weigh
    yield meter.allreduce("down", layout.mesh, hidden, "x", compute=products((ffn, hidden)))
    if config.ffn_bias:
        yield meter.compute("down bias", load * vector(hidden, 2))


def prefill_costs(meter: Meter, layout: LayerLayout, rows: int) -> Iterator[OperatorCost]:
    """Operators of a prompt with so many tokens per row, every expert for all of them."""
    experts, mesh, region = _of(layout.config), layout.mesh, layout.expert_region
    sizes = (rows * mesh[0], layout.hidden_x * mesh[1], _columns(layout) * mesh[1])
    yield meter.matmul("router", mesh, sizes)
    if experts.router_bias:
        yield meter.compute("router bias", rows * meter.vector(_columns(layout)))
    yield meter.allreduce("spread the scores", mesh, rows * experts.count, "x")
    choice = RULES[experts.scoring].cycles(meter, experts)
    yield meter.compute("choose experts", rows * choice)
    yield from expert_regions.dispatch_prompt_costs(meter, layout, rows)
    tokens = tile_size(rows * mesh[0], region.mesh[0])
    weighing = {"SiLU": meter.vector(tokens * region.ffn_x)}
    weighing["down bias"] = tokens * meter.vector(region.hidden_x)
    for operator in swiglu.prefill_costs(meter, region, tokens):
        weigh = meter.compute("", weighing.get(operator.operator, 0))
        busiest = in_sequence(operator.operator, *(operator, weigh) * layout.experts_per_region)
        yield replace(busiest, moved_bytes=operator.moved_bytes * experts.count)
    yield from expert_regions.combine_prompt_costs(meter, layout, rows)


def decode_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """What a PE holds in decode's layout; the router is never packed."""
    of_each = _of_each(layout, swiglu.decode_tiles(layout.expert_region))
    return *_router(layout, layout.hidden_y), *of_each


def prefill_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """The same in prefill's layout."""
    router = _router(layout, layout.weight_rows(layout.hidden_x))
    return *router, *_of_each(layout, swiglu.prefill_tiles(layout.expert_region))


def decode_elements(layout: LayerLayout) -> int:
    """Elements per PE of the most that is alive at once, the residual stream apart."""
    experts, region = _of(layout.config), layout.expert_region
    most = min(experts.chosen, layout.experts_per_region)
    products = region.hidden_y + most * 2 * region.ffn_x
    scores = experts.count * (1 + experts.corrected)
    return max(layout.hidden_y + scores + _columns(layout), products + 2 * experts.chosen)


def prefill_elements(layout: LayerLayout, tokens: int) -> int:
    """Elements per PE that are kept beside the operands of its products."""
    region = layout.expert_region
    there = tile_size(tokens * layout.mesh[0], region.mesh[0])
    return max(  # the input and the weights, in the layer's region and in an expert's
        tokens * (layout.hidden_x + _of(layout.config).count),
        there * (region.hidden_x + layout.experts_per_region),
    )


def _of(config: DecoderConfig) -> Experts:
    assert config.experts is not None
    return config.experts


def _columns(layout: LayerLayout) -> int:
    """Columns of the router per PE."""
    return tile_size(_of(layout.config).count, layout.mesh[1])


def _router(layout: LayerLayout, rows: int) -> Iterator[MatrixTile]:
    columns = Span(_columns(layout))
    yield MatrixTile(Span(rows), columns, packs=False)
    if _of(layout.config).router_bias:
        yield MatrixTile(Span(1), columns, packs=False)
    if _of(layout.config).corrected:
        yield MatrixTile(Span(1), Span(_of(layout.config).count), packs=False)


def _each(tiles: dict[str, Any]) -> dict[str, Any]:
    """What every expert has, with the leading axis N."""
    return {name: tiles[name] for name in tiles if not name.startswith("router")}


def _of_each(layout: LayerLayout, tiles: tuple[MatrixTile, ...]) -> Iterator[MatrixTile]:
    """The same tiles of every expert of a region."""
    of = {"count": layout.experts_per_region, "mesh": layout.expert_region.mesh}
    return (replace(tile, **of) for tile in tiles)
