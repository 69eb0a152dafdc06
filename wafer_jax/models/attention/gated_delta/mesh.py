"""Gated DeltaNet on the mesh: one token, and a prompt (bulk level).

In decode one allreduce along the rows of PEs reads the state, for the key and the query at once,
and spreads the value, which the projection left over the columns; updating the state is local; one
allreduce along the columns brings the output back over the columns, together with the statistics of
its norm.

In prefill the tokens of a row are a chunk of the WY form (`rule`), or several. What a chunk makes
by itself is made by all rows at once; then the state walks down the rows. What of it belongs to
different elements of a value never meets, so it walks in slices, one behind the other, and many
rows work at a time (`costs`); a slice is scattered over the rows when it has left the last one.

Sums over the elements of a key are K-tree allreduces along the rows of PEs. A sum to which only one
PE adds anything but zeros, which spreads a value or turns it from one axis to the other, is exact,
so it is made as a mere permutation.

Axes as in `layout`; P layers of a stack, l tokens per row in prefill, n chunks of C tokens each, w
tokens of the convolution's tail, ch channels of q, k and v per PE.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.collectives import allreduce_ktree, gemm
from wafer_jax.models.attention.gated_delta import rule
from wafer_jax.models.attention.gated_delta.costs import chunks_of
from wafer_jax.models.attention.gated_delta.dense import DeltaCache
from wafer_jax.models.attention.gated_delta.layout import DeltaLayout
from wafer_jax.models.mesh_heads import over_columns, sum_in_groups
from wafer_jax.models.mesh_layout import LayerLayout, blocks
from wafer_jax.models.mesh_products import (
    Accumulate,
    loop,
    matvec,
    multiply_add,
    project,
    sum_along,
)
from wafer_jax.models.mesh_relay import Values, pad, relay_to_columns, relay_to_hidden
from wafer_jax.models.mesh_tiles import cut, side_by_side
from wafer_jax.models.packed_tiles import matrix_tiles
from wafer_jax.models.quantized.packed import Matrix

Weights = dict[str, Any]
"""In decode "qkvz" [P, e, Y, X * n], "gates" [P, e, Y, X * 2 m r] (rates, then decays) and "out"
[P, m r dvx, X, Y * e]; "conv" [P, w + 1, ch, X], "rate_log" and "bias" [P, m, r, X], "norm"
[P, dvx, X]. In prefill one layer's, matrices [k, n, Y, X]."""

_VECTORS = ("conv", "rate_log", "bias", "norm")


def lay_out(read: Callable[..., Matrix], layout: LayerLayout) -> dict[str, Any]:
    """Cut one layer's weights into decode's tiles; ``read`` concatenates parameters by name."""
    delta = DeltaLayout.of(layout)
    heads, hidden = delta.delta, blocks(layout.config.hidden_size, layout.mesh[0])
    keys, values = delta.key_columns, delta.value_columns
    qkv = (heads.keys_size, keys), (heads.keys_size, keys), (heads.values_size, values)
    gates = side_by_side(*[(heads.values, delta.head_columns)] * 2)
    vector = lambda name: np.asarray(read(name), np.float32)
    of_heads = lambda name: cut(vector(name), delta.head_columns.T).reshape(
        delta.heads, heads.per_key, -1
    )
    taps = cut(vector("conv1d.weight")[:, 0], side_by_side(*qkv))  # [X, ch, w + 1]
    return {
        "qkvz": matrix_tiles(
            read("in_proj_qkv.weight", "in_proj_z.weight"),
            hidden,
            side_by_side(*qkv, (heads.values_size, values)),
        ),
        "gates": matrix_tiles(read("in_proj_b.weight", "in_proj_a.weight"), hidden, gates),
        "out": matrix_tiles(read("out_proj.weight"), values, hidden),
        "conv": taps.T.copy(),
        "rate_log": of_heads("A_log"),
        "bias": of_heads("dt_bias"),
        "norm": cut(vector("norm.weight"), delta.value_elements),
    }


def create_cache(layout: LayerLayout, slots: int) -> DeltaCache:
    """No tokens: a state and a tail of zeros, whatever the number of tokens to come."""
    delta, periods = DeltaLayout.of(layout), layout.config.periods
    sizes = (delta.heads, delta.delta.per_key, delta.key_x, delta.value_y)
    tail = (periods, delta.delta.kernel - 1, delta.channels_x, layout.mesh[1])
    return DeltaCache(
        state=jnp.zeros((periods, *sizes, *layout.mesh), jnp.float32),
        tail=jnp.zeros(tail, jnp.float32),
    )


def cache_from_prefill(
    kept: tuple[jax.Array, jax.Array], length: jax.Array, slots: int, layout: LayerLayout
) -> DeltaCache:
    """State and tail after a prompt, stacked along P."""
    state, tail = kept
    return DeltaCache(state=state, tail=tail)


def decode_step(
    cache: DeltaCache, length: jax.Array, layout: LayerLayout
) -> tuple[DeltaCache, None]:
    """No room is to be made, and nothing of the position is needed."""
    return cache, None


def decode(
    tiles: Weights,
    x: jax.Array,
    cache: DeltaCache,
    layer: jax.Array,
    step: None,
    layout: LayerLayout,
    k: int,
    accumulate: Accumulate = "float32",
) -> tuple[jax.Array, DeltaCache]:
    """One token's [Y, e], normalised, to [Y * e], and the cache with it.

    All between the projections is in float32, whatever products sum in.
    """
    delta, width = DeltaLayout.of(layout), layout.mesh[1]
    one = {name: tiles[name][layer] for name in _VECTORS}
    state, tail = cache.of(layer)
    projected = project(x, tiles["qkvz"], layer, k, accumulate).reshape(width, -1).T
    channels, z = jnp.split(projected, (delta.channels_x,))
    tokens = jnp.concatenate([tail, channels[None]])  # [w + 1, ch, X]
    mixed = jax.nn.silu(jnp.sum(tokens * one["conv"], axis=0))
    q, key, value = _heads(mixed[:, None], delta)  # [m, 1, dk, 1, X], [m, r, dvx, 1, X]
    q, key = _normalised(q, key, delta, k)
    gates = matvec(x, tiles["gates"], layer, k).reshape(width, -1).T
    decay, beta = _gates(gates[:, None], one, delta)  # [m, r, 1, X]

    state = jnp.exp(decay)[:, :, None, None] * state  # [m, r, dk, dvy, Y, X]
    summed = lambda t: over_columns(sum_in_groups(t, delta, k), delta)
    reads = jnp.stack([_read(state, t) for t in (key, q)])
    of_key, of_query = summed(reads)  # [m, r, dvy, Y, X]
    agreement = summed(jnp.sum(q * key, axis=2))  # [m, 1, 1, X]
    spread = over_columns(delta.to_rows(value[..., 0, :]), delta)
    new = beta[:, :, None] * (spread - of_key)
    state = state + key[:, :, :, None] * new[:, :, None]
    out = of_query + agreement[:, :, None] * new

    squares = allreduce_ktree.apply(jnp.sum(out * out, axis=2), k, "y", broadcast=False)
    out = delta.to_columns(delta.first_columns(out))  # [m, r, dvx, X]
    scale = lax.rsqrt(squares / delta.delta.value_dim + layout.config.rms_norm_eps)
    out = out * scale * one["norm"][None, None] * jax.nn.silu(z).reshape(out.shape)
    out = project(out.reshape(-1, width).T, tiles["out"], layer, k, accumulate)
    return out, cache.put(state, tokens[1:], layer)


def _read(state: jax.Array, vector: jax.Array) -> jax.Array:
    """A PE's own part of the state [m, r, dk, dvy, Y, X] read by [m, 1, dk, 1, X], row by row.

    Mapped over eight sequences, a sum of products over an axis of two made XLA's kernels for CPUs
    crash (jaxlib 0.10.2, which the requirements exclude).
    """

    def body(i: jax.Array, acc: jax.Array) -> jax.Array:
        row = lax.dynamic_index_in_dim(state, i, 2, keepdims=False)
        return multiply_add(acc, lax.dynamic_index_in_dim(vector, i, 2), row)

    return loop(state.shape[2], body, jnp.zeros_like(state[:, :, 0]))


def relay(tiles: Weights, layout: LayerLayout) -> Weights:
    """One layer's weights from decode's layout to prefill's; vectors stay as they are."""
    return {
        **{name: tiles[name] for name in _VECTORS},
        "qkvz": relay_to_columns(tiles["qkvz"], layout),
        "gates": relay_to_columns(tiles["gates"], layout),
        "out": relay_to_hidden(tiles["out"], layout),
    }


def prefill(
    tiles: Weights, x: jax.Array, length: jax.Array, layout: LayerLayout, values: Values, k: int
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """A prompt's [l, ex, Y, X], normalised, to [l, ex, Y, X]; state and tail after ``length``."""
    delta, (tokens, _, rows, _) = DeltaLayout.of(layout), x.shape
    projected = gemm.apply(x, tiles["qkvz"], values=values)
    channels, z = jnp.split(projected, (delta.channels_x,), axis=1)
    mixed, tail = _convolve(channels, tiles["conv"], length)
    q, key, value = _heads(mixed, delta)  # [l, m, 1, dk, Y, X], [l, m, r, dvx, Y, X]
    q, key = _normalised(q, key, delta, k)
    gates = gemm.apply(x, tiles["gates"], values=values)
    number = np.arange(rows) * tokens + np.arange(tokens)[:, None]  # [l, Y]
    real = (number < length)[:, None, None, :, None]
    decay, beta = (  # [l, m, r, Y, X]
        jnp.where(real, gate, 0.0) for gate in _gates(gates, tiles, delta)
    )

    vector = lambda t: _chunks(delta.by_group(t))
    scalar = lambda t: _chunks(jnp.moveaxis(delta.first_columns(t), (-2, -1), (0, 1)))
    dot = partial(_dot, columns=delta.columns, k=k)
    chunks = rule.within_chunk(
        vector(q), vector(key), vector(value), scalar(decay), scalar(beta), dot
    )
    sizes = (chunks.keys.shape[-1], chunks.own.shape[-1])
    start = jnp.zeros((*chunks.decay.shape[1:], *sizes), jnp.float32)
    through = lambda state, chunk: rule.through_chunk(state, chunk, dot)
    state, out = lax.scan(through, start, chunks)
    out = delta.by_column(_tokens(out, rows, tokens))  # [l, m, r, dvx, Y, X]

    squares = over_columns(sum_in_groups(jnp.sum(out * out, axis=-3), delta, k), delta)
    scale = lax.rsqrt(squares / delta.delta.value_dim + layout.config.rms_norm_eps)
    normed = out * scale[:, :, :, None] * tiles["norm"][None, None, None, :, None]
    gated = normed.reshape(z.shape) * jax.nn.silu(z)
    gated = pad(gated, 1, layout.contracted(delta.values_x))
    return gemm.apply(gated, tiles["out"], values=values), (delta.over_mesh(state), tail)


def _heads(mixed: jax.Array, delta: DeltaLayout) -> list[jax.Array]:
    """[..., ch, Y, X] to queries and keys [..., m, 1, dk, Y, X], values [..., m, r, dvx, Y, X]."""
    *lead, _, rows, width = mixed.shape
    parts = jnp.split(mixed, (delta.keys_x, 2 * delta.keys_x), axis=-3)
    shared = (1, 1, delta.delta.per_key)
    shape = lambda n: (*lead, delta.heads, n, -1, rows, width)
    return [part.reshape(shape(n)) for part, n in zip(parts, shared, strict=True)]


def _normalised(
    q: jax.Array, key: jax.Array, delta: DeltaLayout, k: int
) -> tuple[jax.Array, jax.Array]:
    """Queries and keys [..., dk, Y, X] of length 1, queries scaled."""
    squares = jnp.stack([jnp.sum(t * t, axis=-3) for t in (q, key)])
    of_q, of_key = over_columns(sum_in_groups(squares, delta, k), delta)[..., None, :, :]
    q = rule.normalised(q, of_q) * delta.delta.key_dim**-0.5
    return q, rule.normalised(key, of_key)


def _gates(
    projected: jax.Array, vectors: Weights, delta: DeltaLayout
) -> tuple[jax.Array, jax.Array]:
    """Log decay and rate [..., m, r, Y, X] of [..., 2 m r, Y, X]."""
    *lead, _, rows, width = projected.shape
    beta, a = jnp.split(projected, 2, axis=-3)
    beta, a = (t.reshape(*lead, delta.heads, -1, rows, width) for t in (beta, a))
    of_heads = lambda name: vectors[name].reshape(*(1,) * len(lead), *a.shape[-4:-2], 1, width)
    return rule.log_decay(a, of_heads("rate_log"), of_heads("bias")), jax.nn.sigmoid(beta)


def _convolve(
    channels: jax.Array, taps: jax.Array, length: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """[l, ch, Y, X], the first tokens of a row seeing the last ones of the rows above.

    Returns:
      SiLU of the sums, [l, ch, Y, X]; the tail [w, ch, X] after ``length`` tokens.
    """
    tokens, size, rows, width = channels.shape
    before = jnp.zeros((len(taps) - 1, size, width), channels.dtype)
    flat = channels.transpose(2, 0, 1, 3).reshape(-1, size, width)
    flat = jnp.concatenate([before, flat])
    sums = jnp.zeros((rows * tokens, size, width), channels.dtype)
    for i, tap in enumerate(taps):
        sums = sums + tap[None] * flat[i : i + rows * tokens]
    mixed = jax.nn.silu(sums).reshape(rows, tokens, size, width).transpose(1, 2, 0, 3)
    return mixed, lax.dynamic_slice_in_dim(flat, length, len(taps) - 1)


def _chunks(grouped: jax.Array) -> jax.Array:
    """[Y, g, l, m, r, ...] to [Y n, g, m, r, C, ...], filled up to whole chunks."""
    rows, groups, tokens, *rest = grouped.shape
    count, size = chunks_of(tokens)
    filled = pad(grouped, 2, count * size).reshape(rows, groups, count, size, *rest)
    chunks = jnp.moveaxis(filled, (2, 3), (1, 5))  # [Y, n, g, m, r, C, ...]
    return chunks.reshape(-1, *chunks.shape[2:])


def _tokens(chunks: jax.Array, rows: int, tokens: int) -> jax.Array:
    """[Y n, g, m, r, C, D] back to [Y, g, l, m, r, D]."""
    split = chunks.reshape(rows, -1, *chunks.shape[1:])
    filled = jnp.moveaxis(split, (1, 5), (2, 3))  # [Y, g, n, C, m, r, D]
    return filled.reshape(*filled.shape[:2], -1, *filled.shape[4:])[:, :, :tokens]


def _dot(a: jax.Array, b: jax.Array, *, columns: int, k: int) -> jax.Array:
    """[..., C, c dk] x [..., c dk, N]: every column's own products, summed with a K-tree."""
    a = jnp.moveaxis(a.reshape(*a.shape[:-1], columns, -1), -2, 0)
    b = jnp.moveaxis(b.reshape(*b.shape[:-2], columns, -1, b.shape[-1]), -3, 0)
    return sum_along(a @ b, k)
