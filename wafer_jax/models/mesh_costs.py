"""Cycles of every operator of a model on its regions (cost level), and the tokens/s that follow.

The operators are those of `mesh_prefill` and `mesh_decode`, one after another as in WaferLLM's
kernels (arXiv 2502.04563); nothing overlaps but a MeshGEMM's own products and transfers, and one
token is on its way at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from wafer_jax.collectives import kv_shift, relayout
from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.collectives.kernels import gemv_cycles
from wafer_jax.collectives.tiles import tile_size
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES
from wafer_jax.models.feed_forward import kind_of
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.operator_cost import EXP, RECIPROCAL, Meter, OperatorCost, in_sequence
from wafer_jax.models.placement import Placement
from wafer_jax.models.storage import STORAGES

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PhaseCosts:
    """What a prefill, or one token of decode, costs.

    Attributes:
      phase: "prefill" or "decode".
      tokens: Tokens of the prompt, or the context that the new token sees, itself included.
      layer: Operators of one decoder layer.
      model: Everything else, once: embedding, hand-offs, head, and after prefill the re-layout.
      num_layers: Layers.
      clock_hz: Cycles per second.
    """

    phase: Literal["prefill", "decode"]
    tokens: int
    layer: tuple[OperatorCost, ...]
    model: tuple[OperatorCost, ...]
    num_layers: int
    clock_hz: float

    level = "cost"

    @property
    def layer_cycles(self) -> int:
        """One decoder layer."""
        return sum(o.cycles for o in self.layer)

    @property
    def cycles(self) -> int:
        """Everything."""
        return self.num_layers * self.layer_cycles + sum(o.cycles for o in self.model)

    @property
    def layers_tokens_per_s(self) -> float:
        """Tokens/s as WaferLLM counts: the time of one layer times the number of layers."""
        return self._new_tokens * self.clock_hz / (self.num_layers * self.layer_cycles)

    @property
    def tokens_per_s(self) -> float:
        """Tokens/s of everything: embedding, hand-offs and head included."""
        return self._new_tokens * self.clock_hz / self.cycles

    @property
    def _new_tokens(self) -> int:
        return self.tokens if self.phase == "prefill" else 1

    @property
    def frame(self) -> "pd.DataFrame":
        """One row per operator: part ("layer" or "model"), how often it runs, cycles of one run."""
        import pandas as pd

        parts = (("layer", self.num_layers, self.layer), ("model", 1, self.model))
        rows = [
            {
                "operator": o.operator,
                "part": part,
                "times": times,
                "cycles": o.cycles,
                "compute_cycles": o.compute_cycles,
                "communication_cycles": o.communication_cycles,
                "idle_cycles": o.idle_cycles,
                "moved_bytes": o.moved_bytes,
            }
            for part, times, operators in parts
            for o in operators
        ]
        return pd.DataFrame(rows)


def decode_costs(placement: Placement, context: int, k: int = 2) -> PhaseCosts:
    """Cost of one token.

    Args:
      placement: The model on its regions.
      context: Tokens that it sees, itself included.
      k: Phases of the K-trees.
    """
    meter = _meter(placement, k)
    return _phase(
        placement,
        "decode",
        context,
        _decode_layer(meter, placement.layer, context),
        (
            _embedding(meter, placement, 1),
            _hand_offs(meter, placement, 1),
            *_head(meter, placement),
            _token_back(meter, placement),
        ),
    )


def prefill_costs(placement: Placement, tokens: int, k: int = 2) -> PhaseCosts:
    """Cost of a prompt up to its first new token, and of the switch to decode.

    Args:
      placement: The model on its regions.
      tokens: Tokens of the prompt.
      k: Phases of the K-trees.
    """
    meter = _meter(placement, k)
    return _phase(
        placement,
        "prefill",
        tokens,
        _prefill_layer(meter, placement.layer, tokens),
        (
            _embedding(meter, placement, tokens),
            _hand_offs(meter, placement, tokens),
            *_head(meter, placement),
            _token_back(meter, placement),
            _switch(meter, placement, tokens),
        ),
    )


def _meter(placement: Placement, k: int) -> Meter:
    storage = placement.storage
    return Meter(placement.hw, storage.compute, k, storage)


def _phase(
    placement: Placement,
    phase: Literal["prefill", "decode"],
    tokens: int,
    layer: Iterator[OperatorCost],
    model: tuple[OperatorCost, ...],
) -> PhaseCosts:
    layers, clock_hz = placement.config.num_layers, placement.hw.clock_hz
    return PhaseCosts(phase, tokens, tuple(layer), model, layers, clock_hz)


def _decode_layer(meter: Meter, layout: LayerLayout, context: int) -> Iterator[OperatorCost]:
    mesh, vector = layout.mesh, meter.vector
    hidden, q, kv = layout.hidden_y, layout.q_x, layout.kv_x
    slots, part = tile_size(context, mesh[0]), 2 * layout.pairs
    heads = layout.heads * layout.config.queries_per_kv
    group, every = (mesh[0], layout.columns), heads * slots
    sum_of = lambda compute: meter.allreduce("", mesh, heads, "y", compute=compute)

    norm = lambda name: _norm(meter, name, mesh, hidden)
    yield norm("attention norm")
    yield meter.matvec("q, k, v", mesh, (hidden, layout.qkv_x), "y")
    if layout.config.qkv_bias:
        yield meter.compute("q, k, v bias", vector(layout.qkv_x))
    if layout.config.qk_norm:
        yield _head_norms(meter, layout, 1)
    turn = vector((heads + layout.heads) * layout.pairs, 6) + vector(layout.pairs, 6)
    yield meter.compute("RoPE", turn)  # of queries and keys, and of the angles by one position
    yield _shift(meter, mesh, 2 * kv)
    products = heads * gemv_cycles(meter.hw, part, slots, meter.dtype) + vector(every)
    yield meter.allreduce("scores", group, every, "x", copies=layout.groups, compute=products)
    yield in_sequence(
        "softmax",
        sum_of(heads * vector(slots)),
        sum_of(vector(every, 1 + EXP) + heads * vector(slots)),
        meter.compute("", vector(heads, RECIPROCAL) + heads * vector(slots)),
    )
    products = heads * gemv_cycles(meter.hw, slots, part, meter.dtype)
    yield meter.allreduce("attention output", mesh, q, "y", compute=products)
    yield meter.matvec("o", mesh, (q, hidden), "x")
    if layout.config.out_bias:
        yield meter.compute("o bias", vector(hidden))
    yield meter.compute("attention residual", vector(hidden))
    yield norm("feed-forward norm")
    yield from kind_of(layout.config).decode_costs(meter, layout)
    yield meter.compute("feed-forward residual", vector(hidden))


def _prefill_layer(meter: Meter, layout: LayerLayout, tokens: int) -> Iterator[OperatorCost]:
    mesh, vector, (height, width) = layout.mesh, meter.vector, layout.mesh
    rows, hidden = tile_size(tokens, height), layout.hidden_x
    q = layout.contracted(layout.q_x)
    per_kv, part, group = layout.config.queries_per_kv, 2 * layout.pairs, (height, layout.columns)
    padded = layout.attention_rows(rows)
    keys, queries = padded * height // layout.columns, layout.heads * per_kv * rows
    product = lambda name, k, n: meter.project(name, mesh, (rows * height, k * width, n * width))
    sum_of = lambda compute: meter.allreduce(
        "", group, queries, "x", copies=layout.groups, compute=compute
    )

    def norm(name: str) -> OperatorCost:
        squares = rows * vector(hidden)
        scale = vector(rows, RECIPROCAL) + 2 * rows * vector(hidden)
        total = meter.allreduce("", mesh, rows, "x", compute=squares)
        return in_sequence(name, total, meter.compute("", scale))

    yield norm("attention norm")
    yield product("q, k, v", hidden, layout.qkv_x)
    if layout.config.qkv_bias:
        yield meter.compute("q, k, v bias", rows * vector(layout.qkv_x))
    if layout.config.qk_norm:
        yield _head_norms(meter, layout, rows)
    turned = rows * layout.heads * (per_kv + 1) * layout.pairs
    yield meter.compute("RoPE", vector(turned, 6) + vector(rows * layout.pairs, 6))
    sizes = (per_kv * rows * height, part * layout.columns, padded * height)
    each = meter.matmul_transposed("", group, sizes, layout.groups)
    scale = meter.compute("", vector(queries * keys, 2))  # and mask
    yield in_sequence("scores", *[each] * layout.heads, scale)
    yield in_sequence(
        "softmax",
        sum_of(queries * vector(keys)),
        sum_of(vector(queries * keys, 1 + EXP) + queries * vector(keys)),
        meter.compute("", vector(queries, RECIPROCAL) + queries * vector(keys)),
    )
    sizes = (per_kv * rows * height, padded * height, part * layout.columns)
    each = meter.matmul("", group, sizes, layout.groups)
    yield in_sequence("attention output", *[each] * layout.heads)
    yield product("o", q, hidden)
    if layout.config.out_bias:
        yield meter.compute("o bias", rows * vector(hidden))
    yield meter.compute("attention residual", vector(rows * hidden))
    yield norm("feed-forward norm")
    yield from kind_of(layout.config).prefill_costs(meter, layout, rows)
    yield meter.compute("feed-forward residual", vector(rows * hidden))


def _norm(meter: Meter, name: str, mesh: tuple[int, int], hidden: int) -> OperatorCost:
    """RMSNorm of a vector over the rows: one word per PE to add up."""
    total = meter.allreduce("", mesh, 1, "y", compute=meter.vector(hidden))
    scale = meter.vector(1, RECIPROCAL) + 2 * meter.vector(hidden)
    return in_sequence(name, total, meter.compute("", scale))


def _head_norms(meter: Meter, layout: LayerLayout, tokens: int) -> OperatorCost:
    """RMSNorm of every query and key of so many tokens of a row, in the columns of their head."""
    heads = tokens * layout.heads * (layout.config.queries_per_kv + 1)
    group, squares = (layout.mesh[0], layout.columns), heads * meter.vector(2 * layout.pairs)
    total = meter.allreduce("", group, heads, "x", copies=layout.groups, compute=squares)
    scale = meter.vector(heads, RECIPROCAL) + 2 * heads * meter.vector(2 * layout.pairs)
    return in_sequence("query and key norms", total, meter.compute("", scale))


def _shift(meter: Meter, mesh: tuple[int, int], elements: int) -> OperatorCost:
    cycles = kv_shift.shift_cost(meter.hw.replace(mesh=mesh), elements, dtype=meter.dtype)
    size = elements * DTYPE_BYTES[meter.dtype]
    issue = min(2 * block_words(elements, meter.dtype), cycles)
    return OperatorCost("KV shift", cycles, 0, issue, (mesh[0] - 1) * mesh[1] * size)


def _embedding(meter: Meter, placement: Placement, tokens: int) -> OperatorCost:
    """Look the tokens up and send their rows to the first layer, in the worst case from afar."""
    source, target = placement.regions[0], placement.regions[1]
    height, layout = target.mesh[0], placement.layer
    words = block_words(placement.embedding.hidden_y, meter.dtype) * tokens
    hops = source.mesh[1] - 1 + source.hops_to(target)
    if tokens > 1:  # the embedding turns from the rows to the columns, the tokens spread over rows
        tile = tile_size(tokens, height) * layout.hidden_x
        words, hops = max(words, block_words(tile * height, meter.dtype)), hops + height - 1
    moved = block_words(tokens * placement.config.hidden_size, meter.dtype)
    look_up = meter.compute("", tokens * meter.vector(placement.embedding.hidden_y))
    return in_sequence("embedding", look_up, meter.stream("", words, hops, moved))


def _hand_offs(meter: Meter, placement: Placement, tokens: int) -> OperatorCost:
    """The residual stream from layer to layer and from the last one to the head.

    In decode every column has it and the next region's columns listen to one of them. In prefill
    all columns' tiles cross the border of the region, and the head wants the last token only.
    """
    layout, size = placement.layer, placement.config.hidden_size
    width, rows = layout.mesh[1], tile_size(tokens, layout.mesh[0])
    parts = []
    for i, (source, target) in enumerate(pairwise(placement.path[1:])):
        last = i == placement.config.num_layers - 1
        sent = 1 if last else tokens
        if source.wafer != target.wafer:
            parts.append(meter.host_link("", sent * size * DTYPE_BYTES[meter.dtype]))
            continue
        tile = layout.hidden_y if tokens == 1 else layout.hidden_x * width * (1 if last else rows)
        hops = source.hops_to(target) + (width - 1 if tokens > 1 else 0)
        moved = block_words(sent * size, meter.dtype)
        parts.append(meter.stream("", block_words(tile, meter.dtype), hops, moved))
    return in_sequence("hand-offs", *parts)


def _head(meter: Meter, placement: Placement) -> Iterator[OperatorCost]:
    layout = placement.head
    meter = replace(meter, storage=STORAGES[meter.storage.vocabulary])
    yield _norm(meter, "final norm", layout.mesh, layout.hidden_y)
    yield meter.matvec("head", layout.mesh, (layout.hidden_y, layout.vocab_x), "y")
    largest = meter.vector(layout.vocab_x, 2)  # and where it is
    pair = 2 * WORD_BYTES // DTYPE_BYTES[meter.dtype]  # a logit and an id, a word each
    yield meter.allreduce("argmax", layout.mesh, pair, "x", compute=largest)


def _token_back(meter: Meter, placement: Placement) -> OperatorCost:
    """The chosen token's id to the embedding."""
    head, embedding = placement.path[-1], placement.path[0]
    if head.wafer != embedding.wafer:
        return meter.host_link("token to embedding", 4)
    hops = sum(embedding.mesh) - 2 if head is embedding else head.hops_to(embedding)
    return meter.stream("token to embedding", 1, hops, 1)


def _switch(meter: Meter, placement: Placement, tokens: int) -> OperatorCost:
    """Weights and KV cache from prefill's layout to decode's, on all layers at once."""
    layout, hw, dtype = placement.layer, placement.hw, meter.dtype
    (height, width), size = layout.mesh, DTYPE_BYTES[dtype]
    hidden = layout.hidden_y * height
    rows = tile_size(tokens, height)
    turned = (layout.q_x * width, *kind_of(layout.config).turned_rows(layout))
    cycles = sum(relayout.cost(hw, r, hidden, dtype=dtype) for r in turned)
    cycles += relayout.balance_cost(hw, rows, tokens, 2 * layout.kv_x, dtype=dtype)
    moved = sum(turned) * hidden + tokens * 2 * layout.kv_x * width
    return OperatorCost(
        "re-layout for decode", cycles, 0, cycles, moved * size * placement.config.num_layers
    )
