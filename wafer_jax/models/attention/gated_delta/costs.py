"""Cycles and bytes of gated DeltaNet on the mesh (cost level).

In a prompt's walk through the rows a slice of the state is what one row keeps of it in the end, dvy
elements of every value. A row takes a slice from the row above, has its tokens read and update it,
and passes it on while it takes the next one: after the first row's first slice has come to the last
row, a slice is done in every step. The last step is as many after the first as there are rows and
further slices.

All between the projections is in float32, the state above all; a logarithm counts as an
exponential.

Axes as in `layout`; C tokens of a chunk.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.collectives.kernels import gemm_cycles
from wafer_jax.collectives.tiles import tile_size
from wafer_jax.hardware import DTYPE_BYTES
from wafer_jax.models.attention.gated_delta.layout import DeltaLayout
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.operator_cost import EXP, RECIPROCAL, Meter, OperatorCost, in_sequence
from wafer_jax.models.storage import MatrixTile, Span

LONGEST_CHUNK = 64
"""Tokens that are worked on at once at most, as in transformers; what they make among themselves
grows with their square."""

_WIDE = "float32"
_WIDE_BYTES = DTYPE_BYTES[_WIDE]
_GATES = 3 * EXP + RECIPROCAL + 5
"""Vector instructions of a decay and a rate."""
_SILU = EXP + RECIPROCAL + 2


def chunks_of(tokens: int) -> tuple[int, int]:
    """Number and length of the chunks that so many tokens of a row are cut into."""
    count = tile_size(tokens, LONGEST_CHUNK)
    return count, tile_size(tokens, count)


def decode_costs(meter: Meter, layout: LayerLayout, context: int) -> Iterator[OperatorCost]:
    """Operators of one token, whatever it sees."""
    delta, mesh, hidden = DeltaLayout.of(layout), layout.mesh, layout.hidden_y
    wide, heads = replace(meter, dtype=_WIDE), delta.value_heads
    yield meter.matvec("q, k, v, z", mesh, (hidden, delta.channels_x + delta.values_x), "y")
    gates = meter.plain.matvec("", mesh, (hidden, 2 * heads), "y")
    yield in_sequence("gates", gates, wide.compute("", wide.vector(heads, _GATES)))
    yield _convolution(wide, delta, 1)
    yield _lengths(wide, delta, 1)
    written = heads * delta.value_y
    products = wide.vector(delta.state_size) + delta.heads * wide.vector(delta.key_x)
    products += 2 * heads * wide.gemv(delta.key_x, delta.value_y)
    yield _in_groups(wide, "read the state", delta, 3 * written + delta.heads, products)
    update = wide.vector(written, 4) + wide.vector(delta.state_size)
    yield wide.compute("update the state", update)
    squares, turned = heads * wide.vector(delta.value_y), delta.values_x + heads
    yield wide.allreduce("turn the output", mesh, turned, "y", compute=squares)
    yield wide.compute("gated norm", _gated_norm(wide, delta))
    yield meter.matvec("o", mesh, (delta.values_x, hidden), "x")


def prefill_costs(meter: Meter, layout: LayerLayout, tokens: int) -> Iterator[OperatorCost]:
    """Operators of a prompt."""
    delta, mesh, hidden = DeltaLayout.of(layout), layout.mesh, layout.hidden_x
    wide, heads, rows = replace(meter, dtype=_WIDE), delta.value_heads, tile_size(tokens, mesh[0])
    sizes = lambda k, n: (rows * mesh[0], k * mesh[1], n * mesh[1])
    yield meter.project("q, k, v, z", mesh, sizes(hidden, delta.channels_x + delta.values_x))
    gates = meter.matmul("", mesh, sizes(hidden, 2 * heads))
    yield in_sequence("gates", gates, wide.compute("", wide.vector(rows * heads, _GATES)))
    yield _convolution_across_rows(wide, delta, rows)
    yield _lengths(wide, delta, rows)
    yield _within_chunks(wide, delta, rows)
    yield _walk(wide, delta, tokens)
    squares = rows * heads * wide.vector(delta.value_x)
    total = _in_groups(wide, "", delta, rows * heads, squares)
    yield in_sequence("gated norm", total, wide.compute("", rows * _gated_norm(wide, delta)))
    yield meter.project("o", mesh, sizes(layout.contracted(delta.values_x), hidden))


def balance_costs(meter: Meter, layout: LayerLayout, tokens: int) -> OperatorCost:
    """Slices of the state from the last row to theirs, and the tail to all rows."""
    delta, (height, width) = DeltaLayout.of(layout), layout.mesh
    kept = delta.value_heads * delta.key_x * delta.delta.value_dim
    words = kept + (delta.delta.kernel - 1) * delta.channels_x
    if height == 1:
        return OperatorCost("state to its rows", 0, 0, 0, 0)
    return meter.stream("state to its rows", words, height - 1, words * width)


def turned_rows(layout: LayerLayout) -> tuple[int, ...]:
    """Rows of the matrices that lie along another axis in prefill than in decode."""
    return (DeltaLayout.of(layout).values_x * layout.mesh[1],)


def decode_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """What a PE holds in decode's layout: of q, k, v, z; of the gates; of o."""
    hidden = Span(layout.hidden_y)
    delta = DeltaLayout.of(layout)
    return (*_in_tiles(delta, layout.hidden_y), MatrixTile(_values(delta, delta.values_x), hidden))


def prefill_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """The same in prefill's layout, whose rows fill up to whole blocks of MeshGEMM."""
    delta = DeltaLayout.of(layout)
    values = layout.weight_rows(layout.contracted(delta.values_x))
    out = MatrixTile(_values(delta, values), Span(layout.hidden_x))
    return *_in_tiles(delta, layout.weight_rows(layout.hidden_x)), out


def vector_elements(layout: LayerLayout) -> int:
    """Elements per PE of the convolution, of the gates' parameters and of the norm."""
    delta = DeltaLayout.of(layout)
    return delta.delta.kernel * delta.channels_x + 2 * delta.value_heads + delta.value_x


def cache_bytes(layout: LayerLayout, context: int, size: int) -> int:
    """Bytes per PE of the state and the tail, after any number of tokens."""
    delta = DeltaLayout.of(layout)
    return (delta.state_size + (delta.delta.kernel - 1) * delta.channels_x) * _WIDE_BYTES


def decode_elements(layout: LayerLayout, context: int) -> int:
    """Elements per PE of the most that is alive at once, the residual stream apart."""
    delta = DeltaLayout.of(layout)
    projected, written = delta.channels_x + delta.values_x, delta.value_heads * delta.value_y
    return max(
        layout.hidden_y + projected + 2 * delta.value_heads,
        projected + 2 * delta.value_heads + 4 * written + delta.heads,
        2 * delta.values_x + delta.value_heads + layout.hidden_y,
    )


def step_bytes(layout: LayerLayout) -> int:
    """Nothing is shared by the layers."""
    return 0


def prefill_bytes(layout: LayerLayout, tokens: int, size: int) -> int:
    """Bytes per PE of all chunks of a row, and of the slices that come and go."""
    delta = DeltaLayout.of(layout)
    count, length = chunks_of(tokens)
    keys = delta.value_heads * delta.key_x
    of_tokens = delta.channels_x + 3 * keys + 2 * delta.values_x
    squares = (delta.heads + 2 * delta.value_heads) * length
    wide = count * length * (of_tokens + squares) + 2 * delta.state_size
    return tokens * delta.values_x * size + wide * _WIDE_BYTES


def _in_tiles(delta: DeltaLayout, rows: int) -> tuple[MatrixTile, ...]:
    """Of q, k, v, z and of the gates, which no format packs."""
    part = gcd(delta.key_x, delta.value_x)
    columns = (delta.channels_x + delta.values_x) // part
    unit = gcd(part, delta.delta.key_dim, delta.delta.value_dim)
    gates = MatrixTile(Span(rows), Span(2 * delta.value_heads), packs=False)
    return MatrixTile(Span(rows), Span(part, columns, unit)), gates


def _values(delta: DeltaLayout, size: int) -> Span:
    """Elements of values, which lie in runs of one head."""
    if size % delta.value_x:  # a part of a run at either end
        return Span(1, size)
    unit = gcd(delta.value_x, delta.delta.value_dim)
    return Span(delta.value_x, size // delta.value_x, unit)


def _in_groups(
    meter: Meter, name: str, delta: DeltaLayout, elements: int, compute: int
) -> OperatorCost:
    """A sum along the columns of every group."""
    group = (delta.mesh[0], delta.columns)
    return meter.allreduce(name, group, elements, "x", copies=delta.groups, compute=compute)


def _convolution(meter: Meter, delta: DeltaLayout, tokens: int) -> OperatorCost:
    """Of so many tokens, the ones before them being there."""
    instructions = delta.delta.kernel + _SILU
    return meter.compute("convolution", tokens * meter.vector(delta.channels_x, instructions))


def _convolution_across_rows(meter: Meter, delta: DeltaLayout, rows: int) -> OperatorCost:
    """Of a prompt, so many tokens per row; those before a row's come from the rows above."""
    local, before = _convolution(meter, delta, rows), delta.delta.kernel - 1
    if delta.mesh[0] == 1:
        return local
    words = block_words(before * delta.channels_x, meter.dtype)
    hops = min(tile_size(before, rows), delta.mesh[0] - 1)
    moved = words * (delta.mesh[0] - 1) * delta.mesh[1]
    return in_sequence("convolution", meter.stream("", words, hops, moved), local)


def _lengths(meter: Meter, delta: DeltaLayout, rows: int) -> OperatorCost:
    """Queries and keys of so many tokens of a row, made 1 long."""
    vectors = 2 * rows * delta.heads
    total = _in_groups(meter, "", delta, vectors, vectors * meter.vector(delta.key_x))
    scale = meter.vector(vectors, RECIPROCAL) + vectors * meter.vector(delta.key_x)
    return in_sequence("query and key lengths", total, meter.compute("", scale))


def _gated_norm(meter: Meter, delta: DeltaLayout) -> int:
    """Cycles of one token's."""
    scale = meter.vector(delta.value_heads, RECIPROCAL)
    return scale + meter.vector(delta.values_x, _SILU + 3)


def _within_chunks(meter: Meter, delta: DeltaLayout, rows: int) -> OperatorCost:
    """Products of keys with keys and queries, decays between tokens, and the triangular system."""
    count, length = chunks_of(rows)
    pairs = length * length
    products = 2 * delta.heads * gemm_cycles(meter.hw, length, delta.key_x, length, meter.dtype)
    total = _in_groups(meter, "", delta, 2 * delta.heads * count * pairs, count * products)
    solved = delta.key_x + delta.value_x
    solve = sum(meter.gemv(before, solved) for before in range(1, length))
    each = meter.vector(pairs, EXP + 4) + length * meter.vector(solved, 2) + solve
    local = meter.compute("", count * delta.value_heads * each)
    return in_sequence("within chunks", total, local)


def _walk(meter: Meter, delta: DeltaLayout, tokens: int) -> OperatorCost:
    """All slices of the state through all rows that have tokens."""
    height, heads = delta.mesh[0], delta.value_heads
    rows = tile_size(tokens, height)
    count, length = chunks_of(rows)
    part, key = delta.value_y, delta.key_x
    cycles = lambda m, k, n: gemm_cycles(meter.hw, m, k, n, meter.dtype)
    reads = heads * 2 * cycles(length, key, part)
    writes = heads * (cycles(length, length, part) + cycles(key, length, part))
    writes += meter.vector(delta.state_size) + meter.vector(heads * length * part, 2)
    chunk = (
        _in_groups(meter, "", delta, 3 * heads * length * part, reads),
        meter.compute("", writes),
    )
    one = in_sequence("", *chunk * count)
    used, slices = tile_size(tokens, rows), tile_size(delta.delta.value_dim, part)
    if height > 1:
        words = block_words(delta.state_size, meter.dtype)
        passed = meter.stream("", words, 1, words * delta.mesh[0] * delta.mesh[1])
        one = in_sequence("", one, passed)
    return OperatorCost(
        "walk of the state",
        (used + slices - 1) * one.cycles,
        slices * one.compute_cycles,
        slices * one.communication_cycles,
        slices * one.moved_bytes,
        one.routes,
    )
