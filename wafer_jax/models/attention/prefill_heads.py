"""Attention of a prompt within the columns that hold a key/value head and its queries (prefill).

The columns of a head are a mesh of their own of Y x c PEs. Scores are a transposed MeshGEMM, so
keys are never transposed (WaferLLM, arXiv 2502.04563, section 4.1).

Axes: l tokens per row, M rows of a tile, g groups of c columns, m key/value heads of a group, G
queries per key/value head, p RoPE pairs, d elements of a head per PE; Y, X, q as in `mesh_layout`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.collectives import allreduce_ktree, gemm, gemm_transposed
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_relay import Values, pad


def angles(layout: LayerLayout, tokens: int) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine [l, 1, 1, p, Y, X] of every pair at every token's position."""
    inverse, magnitude = (
        table.astype(np.float32)[:, None]
        for table in (layout.inverse_frequencies, layout.magnitudes)
    )
    position = np.arange(layout.mesh[0]) * tokens + np.arange(tokens)[:, None]  # [l, Y]
    angle = jnp.asarray(position[:, None, None, None, :, None].astype(np.float32) * inverse)
    magnitude = jnp.asarray(magnitude[None, None, None])
    return jnp.cos(angle) * magnitude, jnp.sin(angle) * magnitude


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """RoPE on [l, m, G, 2, p, Y, X], both elements of a pair on the same PE: [l, m, G, d, Y, X]."""
    first, second = x[:, :, :, 0], x[:, :, :, 1]
    turned = (first * cos - second * sin, second * cos + first * sin)
    return jnp.concatenate(turned, axis=3)


def attend(
    q: jax.Array,
    keys: jax.Array,
    v: jax.Array,
    layout: LayerLayout,
    values: Values,
    k: int,
    *,
    window: int | None,
    sinks: jax.Array | None,
) -> jax.Array:
    """Causal attention of q [l, m, G, d, Y, X], keys and v [l, m, d, Y, X]: [l, q, Y, X].

    A token sees a window of so many, itself included, or all. Sinks are [m, G, g]. The G queries of
    a key/value head are further rows of one product. Keys count in whole blocks of both axes of its
    mesh; padded ones are masked.
    """
    tokens, heads, group, d, rows, width = q.shape
    padded = layout.attention_rows(tokens)
    q, keys, v = (_by_group(t, layout) for t in (q, keys, v))  # [g, l, m, ..., Y, c]
    q = jnp.moveaxis(q, 1, 3).reshape(layout.groups, heads, group * tokens, d, rows, -1)
    keys, v = (pad(jnp.moveaxis(t, 1, 2), 2, padded) for t in (keys, v))
    scores = gemm_transposed.apply(q, keys, values=values) * layout.config.head_dim**-0.5
    seen = _causal(tokens, padded, scores.shape[-3], rows, layout.columns, window)
    seen = np.tile(seen, (group, 1, 1, 1))[None, None]
    if sinks is not None:  # [g, m, G l, 1, 1]
        sinks = jnp.repeat(jnp.moveaxis(sinks, -1, 0), tokens, axis=2)[..., None, None]
    share = _softmax(jnp.where(seen, scores, -jnp.inf), sinks, k)
    mixed = gemm.apply(share, v, values=values)  # [g, m, G l, d, Y, c]
    mixed = mixed.reshape(layout.groups, heads, group, tokens, d, rows, -1)
    mixed = jnp.moveaxis(mixed, (0, 3), (-2, 0))  # [l, m, G, d, Y, g, c]
    return pad(mixed.reshape(tokens, layout.q_x, rows, -1), 3, width)


def _softmax(scores: jax.Array, sinks: jax.Array | None, k: int) -> jax.Array:
    """Softmax of [..., M, n, Y, c] over n and c: two small allreduces along the rows.

    The sinks [..., M, 1, 1] are one logit more, which every PE adds to what the allreduces gave.
    """
    top = allreduce_ktree.apply(jnp.max(scores, axis=-3), k, "x", broadcast=False, op="max")
    if sinks is not None:
        top = jnp.maximum(top, sinks)
    weights = jnp.exp(scores - jnp.expand_dims(top, -3))
    total = allreduce_ktree.apply(jnp.sum(weights, axis=-3), k, "x", broadcast=False)
    if sinks is not None:
        total = total + jnp.exp(sinks - top)
    return weights / jnp.expand_dims(total, -3)


def _causal(
    tokens: int, padded: int, keys: int, rows: int, columns: int, window: int | None
) -> np.ndarray:
    """[l, n, Y, c] bool: which keys each query sees, of a window or of all.

    Query i of row y is token y l + i. Keys are numbered row by row with ``padded`` places per row,
    and cut over the columns.
    """
    query = np.arange(rows) * tokens + np.arange(tokens)[:, None]  # [l, Y]
    number = np.arange(columns) * keys + np.arange(keys)[:, None]  # [n, c]
    row, place = number // padded, number % padded
    key = np.where(place < tokens, row * tokens + place, tokens * rows)
    behind = query[:, None, :, None] - key[None, :, None, :]
    return (behind >= 0) & (behind < (window or tokens * rows))


def _by_group(tiles: jax.Array, layout: LayerLayout) -> jax.Array:
    """[..., Y, X] to [g, ..., Y, c], idle columns left out."""
    used = layout.groups * layout.columns
    grouped = tiles[..., :used].reshape(*tiles.shape[:-1], layout.groups, layout.columns)
    return jnp.moveaxis(grouped, -2, 0)
