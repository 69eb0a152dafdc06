"""Causal attention to all tokens so far, key/value heads shared by groups of query heads.

In decode the keys and values lie over the rows as a policy of `caches` has it; in prefill they lie
with their tokens (WaferLLM, arXiv 2502.04563, sections 4.1 to 4.3).

Axes as in `mesh_layout`; P layers of a stack, l tokens per row in prefill.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from wafer_jax.collectives import gemm
from wafer_jax.collectives.tiles import tile_size
from wafer_jax.models.attention import (
    decode_heads,
    dense_heads,
    head_costs,
    prefill_heads,
    projected_heads,
)
from wafer_jax.models.attention.dense_heads import KVCache
from wafer_jax.models.caches import policy_of
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.dense_layers import Linear, RMSNorm
from wafer_jax.models.mesh_heads import head_norm, norm_of_all_heads
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
from wafer_jax.models.mesh_tiles import cut
from wafer_jax.models.operator_cost import Meter, OperatorCost
from wafer_jax.models.packed_tiles import matrix_tiles
from wafer_jax.models.quantized.packed import Matrix
from wafer_jax.models.storage import MatrixTile, Span

NAME = "self_attn"

_NORMS = {"head": head_norm, "all": norm_of_all_heads}

Weights = dict[str, Any]
"""In decode "qkv" [P, e, Y, X * n], queries, keys, values and, where heads have them, gates of a
column side by side, and "out" [P, q, X, Y * e]; where the model has them, "qkv_bias" [P, X * n],
"out_bias" [P, Y * e], "q_norm" and "k_norm": [P, 2, p, X] for one head, or [P, m, G, 2, p, X] for
all of them, with both halves of every RoPE pair, and "sinks" [P, m, G, g]. In prefill one layer's,
[k, n, Y, X], biases [n, X]."""


class Step(NamedTuple):
    """Of one token: its position, the angles of RoPE [p, X], and which slots [S, Y] it sees."""

    length: jax.Array
    cos: jax.Array
    sin: jax.Array
    seen: jax.Array


def parameter_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter by its name below ``self_attn.``."""
    E = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {}
    projections = {
        "q": (config.q_size * (1 + config.attention_gate), E),
        "k": (config.kv_size, E),
        "v": (config.kv_size, E),
        "o": (E, config.q_size),
    }
    for name, shape in projections.items():
        shapes[f"{name}_proj.weight"] = shape
        if config.out_bias if name == "o" else config.qkv_bias:
            shapes[f"{name}_proj.bias"] = shape[:1]
    if config.qk_norm:
        of_all = config.qk_norm == "all"
        shapes["q_norm.weight"] = (config.q_size if of_all else config.head_dim,)
        shapes["k_norm.weight"] = (config.kv_size if of_all else config.head_dim,)
    if config.sinks:
        shapes["sinks"] = (config.num_heads,)
    return shapes


class Dense(nnx.Module):
    """The dense reference; its attributes carry Hugging Face's names."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        c, bias = config, config.qkv_bias
        queries = c.q_size * (1 + c.attention_gate)
        self.q_proj = Linear(c.hidden_size, queries, use_bias=bias, rngs=rngs)
        self.k_proj = Linear(c.hidden_size, c.kv_size, use_bias=bias, rngs=rngs)
        self.v_proj = Linear(c.hidden_size, c.kv_size, use_bias=bias, rngs=rngs)
        self.o_proj = Linear(c.q_size, c.hidden_size, use_bias=c.out_bias, rngs=rngs)
        sizes = (c.q_size, c.kv_size) if c.qk_norm == "all" else (c.head_dim, c.head_dim)
        norms = (RMSNorm(size, c.rms_norm_eps, c.norm_offset) for size in sizes)
        self.q_norm, self.k_norm = norms if c.qk_norm else (None, None)
        self.sinks = nnx.Param(jnp.zeros((c.num_heads,), jnp.float32)) if c.sinks else None
        self.head_dim, self.gated, self.window = c.head_dim, c.attention_gate, None

    def __call__(
        self, x: jax.Array, cache: KVCache, layer: jax.Array, step: dense_heads.Step
    ) -> tuple[jax.Array, KVCache]:
        """Attend to the cache and to the new tokens themselves.

        Args:
            x: ``[B, T, E]``, normalised.
            cache: of the stack of layers.
            layer: ``[] int32``, number in the stack.
            step: of the new tokens.

        Returns:
            ``[B, T, E]``, and the cache with the new tokens.
        """
        batch, tokens, _ = x.shape
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        gate = None
        if self.gated:  # of every head, after its query
            q, gate = jnp.split(q.reshape(batch, tokens, -1, 2 * self.head_dim), 2, axis=-1)
        if self.q_norm is not None and self.k_norm is not None:
            normed = lambda t, norm: norm(t.reshape(batch, tokens, -1, *norm.weight.shape))
            q, k = normed(q, self.q_norm), normed(k, self.k_norm)
        by_head = lambda t: t.reshape(batch, tokens, -1, self.head_dim).swapaxes(1, 2)
        q, k, v = by_head(q), by_head(k), by_head(v)  # [B, heads, T, D]
        q, k = (dense_heads.rotate(t, step.cos, step.sin) for t in (q, k))
        cache = cache.put(k, v, layer, step.length)
        seen = dense_heads.causal(step.length, tokens, cache.capacity, self.window)
        sinks = None if self.sinks is None else self.sinks[...]
        mixed = dense_heads.attend(q, cache.keys[layer], cache.values[layer], seen, sinks)
        if gate is not None:
            mixed = mixed * jax.nn.sigmoid(by_head(gate))
        return self.o_proj(mixed.swapaxes(1, 2).reshape(batch, tokens, -1)), cache


dense_cache = KVCache.create
dense_step = dense_heads.step_of


def lay_out(read: Callable[..., Matrix], layout: LayerLayout) -> dict[str, Any]:
    """Cut one layer's weights into decode's tiles; ``read`` concatenates parameters by name."""
    config = layout.config
    hidden = blocks(config.hidden_size, layout.mesh[0])
    qkv, queries = projected_heads.columns(layout), layout.q_columns

    def vector(*names: str) -> np.ndarray:
        return np.asarray(read(*names), np.float32)

    def of_qkv(what: str) -> list[str]:
        return [f"{name}_proj.{what}" for name in "qkv"]

    tiles: dict[str, Any] = {
        "qkv": matrix_tiles(read(*of_qkv("weight")), hidden, qkv),
        "out": matrix_tiles(read("o_proj.weight"), queries, hidden),
    }
    if config.qkv_bias:
        tiles["qkv_bias"] = cut(vector(*of_qkv("bias")), qkv).reshape(-1)
    if config.out_bias:
        tiles["out_bias"] = cut(vector("o_proj.bias"), hidden).reshape(-1)
    if config.qk_norm:
        of_all = config.qk_norm == "all"
        queries = layout.q_index if of_all else layout.head_index
        keys = layout.kv_index[:, None] if of_all else layout.head_index
        tiles["q_norm"] = cut(vector("q_norm.weight") + config.norm_offset, queries)
        tiles["k_norm"] = cut(vector("k_norm.weight") + config.norm_offset, keys)
    if config.sinks:
        tiles["sinks"] = cut(vector("sinks"), layout.query_index)
    return tiles


def create_cache(layout: LayerLayout, slots: int) -> Any:
    """An empty cache of the layout's policy."""
    return policy_of(layout).create(layout, slots)


def cache_from_prefill(
    kept: tuple[jax.Array, jax.Array], length: jax.Array, slots: int, layout: LayerLayout
) -> Any:
    """The cache of a prompt's ``length`` tokens, keys and values [P, l, m, d, Y, X] kept."""
    return policy_of(layout).from_prefill(*kept, length, slots)


def decode_step(cache: Any, length: jax.Array, layout: LayerLayout) -> tuple[Any, Step]:
    """Make room for token ``length``; it sees itself and all before."""
    seen = cache.held(length + 1)
    return cache.make_room(length), Step(length, *decode_heads.angles(layout, length), seen)


def decode(
    tiles: Weights,
    x: jax.Array,
    cache: Any,
    layer: jax.Array,
    step: Step,
    layout: LayerLayout,
    k: int,
    accumulate: Accumulate = "float32",
) -> tuple[jax.Array, Any]:
    """One token's [Y, e], normalised, to [Y * e], and the cache with it."""
    width, heads, pairs = layout.mesh[1], layout.heads, layout.pairs
    qkv = project(x, tiles["qkv"], layer, k, accumulate)
    if "qkv_bias" in tiles:
        qkv = qkv + tiles["qkv_bias"][layer]
    qkv = qkv.reshape(width, -1).T  # [q + 2 kv, X]
    q, key, value, gate = projected_heads.split(qkv, layout, 0)
    q, key = (t.reshape(heads, -1, 2, pairs, 1, width) for t in (q, key))
    if layout.config.qk_norm:
        norm = _NORMS[layout.config.qk_norm]
        q = norm(q, tiles["q_norm"][layer], layout, k)
        key = norm(key, tiles["k_norm"][layer], layout, k)
    q, key = (decode_heads.rotate(t[..., 0, :], step.cos, step.sin) for t in (q, key))
    cache = cache.put(key[:, 0], value.reshape(heads, -1, width), layer, step.length)
    keys = lax.dynamic_index_in_dim(cache.keys, layer, keepdims=False)  # [S, m, d, Y, X]
    values = lax.dynamic_index_in_dim(cache.values, layer, keepdims=False)
    scores = decode_heads.scores_of(q, keys, layout, k, accumulate)
    sinks = tiles["sinks"][layer] if "sinks" in tiles else None
    share = decode_heads.softmax(scores, step.seen, sinks, k)
    mixed = decode_heads.mix(share, values, layout, k, accumulate)
    mixed = projected_heads.scale(mixed, gate)
    out = project(mixed.T, tiles["out"], layer, k, accumulate)
    if "out_bias" in tiles:
        out = out + tiles["out_bias"][layer]
    return out, cache


def relay(tiles: Weights, layout: LayerLayout) -> Weights:
    """One layer's weights from decode's layout to prefill's; norms stay as they are."""
    relaid = {
        "qkv": relay_to_columns(tiles["qkv"], layout),
        "out": relay_to_hidden(tiles["out"], layout),
    }
    if "qkv_bias" in tiles:
        relaid["qkv_bias"] = bias_to_columns(tiles["qkv_bias"], layout)
    if "out_bias" in tiles:
        relaid["out_bias"] = vector_to_hidden(tiles["out_bias"], layout)
    return relaid | {name: tiles[name] for name in ("q_norm", "k_norm", "sinks") if name in tiles}


def prefill(
    tiles: Weights, x: jax.Array, length: jax.Array, layout: LayerLayout, values: Values, k: int
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """A prompt's [l, ex, Y, X], normalised, to [l, ex, Y, X]; keys and values [l, m, d, Y, X]."""
    return prefill_within(None, tiles, x, layout, values, k)


def prefill_within(
    window: int | None,
    tiles: Weights,
    x: jax.Array,
    layout: LayerLayout,
    values: Values,
    k: int,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """`prefill` with a window of tokens that each one sees, itself included; None: all.

    What fills the rows up comes after all real tokens, which never see it.
    """
    tokens, _, *mesh = x.shape
    heads, pairs = layout.heads, layout.pairs
    qkv = gemm.apply(x, tiles["qkv"], values=values)
    if "qkv_bias" in tiles:
        qkv = qkv + tiles["qkv_bias"][None, :, None]
    q, keys, v, gate = projected_heads.split(qkv, layout, 1)
    angles = prefill_heads.angles(layout, tokens)
    q, keys = (t.reshape(tokens, heads, -1, 2, pairs, *mesh) for t in (q, keys))
    if layout.config.qk_norm:
        norm = _NORMS[layout.config.qk_norm]
        q, keys = norm(q, tiles["q_norm"], layout, k), norm(keys, tiles["k_norm"], layout, k)
    q, keys = prefill_heads.rotate(q, *angles), prefill_heads.rotate(keys, *angles)[:, :, 0]
    v = v.reshape(tokens, heads, -1, *mesh)
    sinks = tiles.get("sinks")
    mixed = prefill_heads.attend(q, keys, v, layout, values, k, window=window, sinks=sinks)
    mixed = projected_heads.scale(mixed, gate)
    mixed = pad(mixed, 1, layout.contracted(layout.q_x))
    out = gemm.apply(mixed, tiles["out"], values=values)
    if "out_bias" in tiles:
        out = out + tiles["out_bias"][None, :, None]
    return out, (keys, v)


def decode_costs(meter: Meter, layout: LayerLayout, context: int) -> Iterator[OperatorCost]:
    """Operators of one token that sees so many tokens, itself included."""
    heads = head_costs.decode(meter, layout, _slots(layout, context))
    put = policy_of(layout).put_costs(meter, layout)
    yield from costs_around(meter, layout, [put, *heads])


def costs_around(
    meter: Meter, layout: LayerLayout, cached: Iterable[OperatorCost]
) -> Iterator[OperatorCost]:
    """Operators of one token, those that have to do with the cache given."""
    mesh, hidden = layout.mesh, layout.hidden_y
    yield meter.matvec("q, k, v", mesh, (hidden, layout.qkv_x), "y")
    if layout.config.qkv_bias:
        yield meter.compute("q, k, v bias", meter.vector(layout.qkv_x))
    if layout.config.qk_norm:
        yield head_costs.norms(meter, layout, 1)
    yield head_costs.rope(meter, layout, 1)
    yield from cached
    if layout.gate_x:
        yield projected_heads.gate_costs(meter, layout, 1)
    yield meter.matvec("o", mesh, (layout.q_x, hidden), "x")
    if layout.config.out_bias:
        yield meter.compute("o bias", meter.vector(hidden))


def prefill_costs(meter: Meter, layout: LayerLayout, tokens: int) -> Iterator[OperatorCost]:
    """Operators of a prompt."""
    (height, width), hidden = layout.mesh, layout.hidden_x
    rows, q = tile_size(tokens, height), layout.contracted(layout.q_x)
    product = lambda name, k, n: meter.project(
        name, layout.mesh, (rows * height, k * width, n * width)
    )
    yield product("q, k, v", hidden, layout.qkv_x)
    if layout.config.qkv_bias:
        yield meter.compute("q, k, v bias", rows * meter.vector(layout.qkv_x))
    if layout.config.qk_norm:
        yield head_costs.norms(meter, layout, rows)
    yield head_costs.rope(meter, layout, rows)
    yield from head_costs.prefill(meter, layout, rows)
    if layout.gate_x:
        yield projected_heads.gate_costs(meter, layout, rows)
    yield product("o", q, hidden)
    if layout.config.out_bias:
        yield meter.compute("o bias", rows * meter.vector(hidden))


def balance_costs(meter: Meter, layout: LayerLayout, tokens: int) -> OperatorCost:
    """One layer's cache of a prompt from prefill's layout to decode's."""
    return policy_of(layout).balance_costs(meter, layout, tokens)


def turned_rows(layout: LayerLayout) -> tuple[int, ...]:
    """Rows of the matrices that lie along another axis in prefill than in decode."""
    return (layout.q_x * layout.mesh[1],)


def decode_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """What a PE holds in decode's layout: of q, k, v; of o."""
    hidden = Span(layout.hidden_y)
    return (
        MatrixTile(hidden, head_costs.span(layout, layout.qkv_x)),
        MatrixTile(head_costs.span(layout, layout.q_x), hidden),
    )


def prefill_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """The same in prefill's layout, whose rows fill up to whole blocks of MeshGEMM."""
    q, hidden = layout.weight_rows(layout.contracted(layout.q_x)), layout.hidden_x
    return (
        MatrixTile(Span(layout.weight_rows(hidden)), head_costs.span(layout, layout.qkv_x)),
        MatrixTile(head_costs.span(layout, q), Span(hidden)),
    )


def vector_elements(layout: LayerLayout) -> int:
    """Elements per PE of biases and norms, in the larger one of the two layouts."""
    config = layout.config
    biases = layout.qkv_x * config.qkv_bias
    biases += max(layout.hidden_x, layout.hidden_y) * config.out_bias
    norms = {None: 0, "head": 4 * layout.pairs, "all": layout.q_x + layout.kv_x}
    sinks = layout.heads * config.queries_per_kv * config.sinks
    return biases + norms[config.qk_norm] + sinks


def cache_bytes(layout: LayerLayout, context: int, size: int) -> int:
    """Bytes per PE of the keys and values of so many tokens, ``size`` bytes an element."""
    return head_costs.cache_bytes(layout, _slots(layout, context), size)


def decode_elements(layout: LayerLayout, context: int) -> int:
    """Elements per PE of the most that is alive at once, the residual stream apart."""
    return head_costs.decode_elements(layout, _slots(layout, context))


step_bytes = head_costs.angle_bytes
prefill_bytes = head_costs.prefill_bytes


def _slots(layout: LayerLayout, context: int) -> int:
    """Tokens in the fullest row."""
    return tile_size(context, policy_of(layout).rows(layout))
