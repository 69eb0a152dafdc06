"""Cycles and buffers of attention within the columns of a key/value head, see `mesh_layout`."""

import math
from collections.abc import Iterator

from wafer_jax.hardware import DTYPE_BYTES
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.operator_cost import EXP, RECIPROCAL, Meter, OperatorCost, in_sequence
from wafer_jax.models.storage import Span

_SUM_BYTES = DTYPE_BYTES["float32"]
_SINK = 1 + 1 + EXP + 1  # into the maximum, subtract it, exponential, into the sum


def norms(meter: Meter, layout: LayerLayout, tokens: int) -> OperatorCost:
    """RMSNorm of the queries and keys of so many tokens of a row."""
    of = _norms_of_all if layout.config.qk_norm == "all" else _norms_by_head
    return in_sequence("query and key norms", *of(meter, layout, tokens))


def _norms_of_all(meter: Meter, layout: LayerLayout, tokens: int) -> Iterator[OperatorCost]:
    """One word of all queries and one of all keys, over all columns."""
    each = tokens * (meter.vector(layout.q_x) + meter.vector(layout.kv_x))
    yield meter.allreduce("", layout.mesh, 2 * tokens, "x", compute=each)
    yield meter.compute("", meter.vector(2 * tokens, RECIPROCAL) + 2 * each)


def _norms_by_head(meter: Meter, layout: LayerLayout, tokens: int) -> Iterator[OperatorCost]:
    """One word of every head, in its columns."""
    heads = tokens * layout.heads * (layout.config.queries_per_kv + 1)
    group, squares = (layout.mesh[0], layout.columns), heads * meter.vector(2 * layout.pairs)
    yield meter.allreduce("", group, heads, "x", copies=layout.groups, compute=squares)
    scale = meter.vector(heads, RECIPROCAL) + 2 * heads * meter.vector(2 * layout.pairs)
    yield meter.compute("", scale)


def rope(meter: Meter, layout: LayerLayout, tokens: int) -> OperatorCost:
    """RoPE of the queries and keys of so many tokens of a row, and their angles."""
    turned = tokens * layout.heads * (layout.config.queries_per_kv + 1) * layout.pairs
    cycles = meter.vector(turned, 6) + meter.vector(tokens * layout.pairs, 6)
    return meter.compute("RoPE", cycles)


def decode(meter: Meter, layout: LayerLayout, slots: int) -> Iterator[OperatorCost]:
    """One token's scores over a cache with so many tokens in its fullest row, softmax, and mix."""
    mesh, vector, part = layout.mesh, meter.vector, 2 * layout.pairs
    heads = layout.heads * layout.config.queries_per_kv
    group, every = (mesh[0], layout.columns), heads * slots
    sum_of = lambda compute: meter.allreduce("", mesh, heads, "y", compute=compute)
    sinks = vector(heads, _SINK) * layout.config.sinks

    products = heads * meter.gemv(part, slots) + vector(every)
    yield meter.allreduce("scores", group, every, "x", copies=layout.groups, compute=products)
    yield in_sequence(
        "softmax",
        sum_of(heads * vector(slots)),
        sum_of(vector(every, 1 + EXP) + heads * vector(slots)),
        meter.compute("", vector(heads, RECIPROCAL) + heads * vector(slots) + sinks),
    )
    products = heads * meter.gemv(slots, part)
    yield meter.allreduce("attention output", mesh, layout.q_x, "y", compute=products)


def prefill(meter: Meter, layout: LayerLayout, rows: int) -> Iterator[OperatorCost]:
    """The same of a prompt with so many tokens per row."""
    vector, height = meter.vector, layout.mesh[0]
    per_kv, part, group = layout.config.queries_per_kv, 2 * layout.pairs, (height, layout.columns)
    padded = layout.attention_rows(rows)
    keys, queries = padded * height // layout.columns, layout.heads * per_kv * rows
    sum_of = lambda compute: meter.allreduce(
        "", group, queries, "x", copies=layout.groups, compute=compute
    )
    sinks = vector(queries, _SINK) * layout.config.sinks

    sizes = (per_kv * rows * height, part * layout.columns, padded * height)
    each = meter.matmul_transposed("", group, sizes, layout.groups)
    scale = meter.compute("", vector(queries * keys, 2))  # and mask
    yield in_sequence("scores", *[each] * layout.heads, scale)
    yield in_sequence(
        "softmax",
        sum_of(queries * vector(keys)),
        sum_of(vector(queries * keys, 1 + EXP) + queries * vector(keys)),
        meter.compute("", vector(queries, RECIPROCAL) + queries * vector(keys) + sinks),
    )
    sizes = (per_kv * rows * height, padded * height, part * layout.columns)
    each = meter.matmul("", group, sizes, layout.groups)
    yield in_sequence("attention output", *[each] * layout.heads)


def span(layout: LayerLayout, size: int) -> Span:
    """Elements of heads, which lie in runs of RoPE pairs."""
    if size % layout.pairs:  # a part of a run at either end
        return Span(1, size)
    half = layout.config.head_dim // 2
    break_at = layout.config.rope.turned(layout.config.head_dim) // 2 % half
    run = math.gcd(layout.pairs, break_at)
    return Span(run, size // run, math.gcd(run, half))


def cache_bytes(layout: LayerLayout, slots: int, size: int) -> int:
    """Bytes per PE of so many tokens' keys and values, ``size`` bytes an element."""
    return 2 * layout.kv_x * slots * size


def decode_elements(layout: LayerLayout, slots: int) -> int:
    """Elements per PE of the most that is alive at once with so many tokens in its row."""
    scores = slots * layout.heads * layout.config.queries_per_kv
    return max(
        layout.hidden_y + layout.qkv_x,
        layout.qkv_x + scores + layout.q_x,
        layout.q_x + layout.gate_x + layout.hidden_y,
    )


def angle_bytes(layout: LayerLayout) -> int:
    """Bytes per PE of the angles of one token and of one step."""
    return 4 * layout.pairs * _SUM_BYTES


def prefill_bytes(layout: LayerLayout, tokens: int, size: int) -> int:
    """Bytes per PE of attention with so many tokens per row, activations of ``size`` bytes."""
    group, part = layout.config.queries_per_kv, 2 * layout.pairs
    padded = layout.attention_rows(tokens)
    scores = group * tokens * (padded * layout.mesh[0] // layout.columns)
    attention = (tokens * (layout.qkv_x + layout.q_x) + 2 * padded * part + scores) * size
    return attention + (scores + group * tokens * part) * _SUM_BYTES
