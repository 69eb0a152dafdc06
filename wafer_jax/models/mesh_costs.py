"""Cycles of every operator of a model on its regions (cost level), and the tokens/s that follow.

The operators are those of `mesh_prefill`, `mesh_decode` and the kinds of layers, one after another
as in WaferLLM's kernels (arXiv 2502.04563); nothing overlaps but a MeshGEMM's own products and
transfers, and one token is on its way at a time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import chain, pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import numpy as np

from wafer_jax.collectives import relayout
from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.collectives.tiles import tile_size
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES
from wafer_jax.models.attention import kinds_of
from wafer_jax.models.feed_forward import kind_of
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.operator_cost import (
    RECIPROCAL,
    Meter,
    OperatorCost,
    expected,
    in_sequence,
)
from wafer_jax.models.placement import Placement
from wafer_jax.models.storage import STORAGES

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PhaseCosts:
    """What a prefill, or one step of decode, costs: a token of every sequence.

    Attributes:
      phase: "prefill" or "decode".
      tokens: Tokens of the prompt, or the context that the new token sees, itself included; of
        several sequences the longest.
      layer: Operators of one decoder layer; where their kinds differ, of every layer of a period.
      model: Everything else, once: embedding, hand-offs, head, and after prefill the re-layout.
      num_layers: Layers.
      clock_hz: Cycles per second.
      period: Layers that ``layer`` is of.
      batch: Sequences.
    """

    phase: Literal["prefill", "decode"]
    tokens: int
    layer: tuple[OperatorCost, ...]
    model: tuple[OperatorCost, ...]
    num_layers: int
    clock_hz: float
    period: int = 1
    batch: int = 1

    level = "cost"

    @property
    def layer_cycles(self) -> int:
        """One decoder layer, the mean where kinds differ."""
        return round(self._layers_cycles / self.num_layers)

    @property
    def cycles(self) -> int:
        """Everything."""
        return self._layers_cycles + sum(o.cycles for o in self.model)

    @property
    def layers_tokens_per_s(self) -> float:
        """Tokens/s as WaferLLM counts: the time of all layers."""
        return self._new_tokens * self.clock_hz / self._layers_cycles

    @property
    def tokens_per_s(self) -> float:
        """Tokens/s of everything: embedding, hand-offs and head included."""
        return self._new_tokens * self.clock_hz / self.cycles

    @property
    def runs(self) -> list[tuple[int, OperatorCost]]:
        """How often each operator runs, those of the layers first."""
        return [(times, o) for o, times in self._times.items()] + [(1, o) for o in self.model]

    @property
    def _times(self) -> dict[OperatorCost, int]:
        """How often every operator of a layer runs."""
        periods = self.num_layers // self.period
        return {o: n * periods for o, n in Counter(self.layer).items()}

    @property
    def _layers_cycles(self) -> int:
        return self.num_layers // self.period * sum(o.cycles for o in self.layer)

    @property
    def _new_tokens(self) -> int:
        return self.tokens if self.phase == "prefill" else self.batch

    @property
    def frame(self) -> "pd.DataFrame":
        """One row per operator.

        The columns are operator, part ("layer" or "model"), times (how often it runs), cycles,
        compute_cycles, communication_cycles, idle_cycles and moved_bytes of one run, and
        share_percent, the part of the phase that all its runs take.
        """
        import pandas as pd

        layers, total = len(self._times), self.cycles
        parts = ["layer"] * layers + ["model"] * len(self.model)
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
                "share_percent": 100 * times * o.cycles / total,
            }
            for part, (times, o) in zip(parts, self.runs, strict=True)
        ]
        return pd.DataFrame(rows)

    @property
    def title(self) -> str:
        """Such as "decode of a token that sees 2,048: 905,364 cycles"."""
        sequences = f" of each of {self.batch} sequences" if self.batch > 1 else ""
        what = {
            "prefill": f"{self.tokens:,} token{'s' if self.tokens > 1 else ''}",
            "decode": f"a token{sequences} that sees {self.tokens:,}",
        }
        return f"{self.phase} of {what[self.phase]}: {self.cycles:,} cycles"

    def plot(self, ax=None):
        """Draw a bar per operator, all its runs together, split into compute, communication, idle.

        Args:
          ax: Axes to draw on; new ones by default.

        Returns:
          The matplotlib axes.

        Raises:
          WaferError: matplotlib is not installed.
        """
        from wafer_jax.models.pictures import plot_phase

        return plot_phase(self, ax)

    def __repr__(self) -> str:
        return f"PhaseCosts({self.title}, level {self.level}, {self.tokens_per_s:,.0f} tokens/s)"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.frame.round(1).to_html(index=False)}"


def decode_costs(placement: Placement, context: int | Sequence[int], k: int = 2) -> PhaseCosts:
    """Cost of one token, or of a token of each of several sequences.

    Every operator serves all sequences before the next one starts: vector work and words are those
    of all, latencies and the unpacking of weights count once, and attention costs what the
    sequences' own contexts ask for (to a cycle: an operator's cost is the mean over the contexts of
    what it would cost if all were alike, since it grows with each).

    Args:
      placement: The model on its regions.
      context: Tokens that the new one sees, itself included; of several sequences one number each.
      k: Phases of the K-trees.

    Returns:
      Cycles per operator and tokens/s.
    """
    contexts = Counter(np.atleast_1d(np.asarray(context)).tolist())
    meter = replace(_meter(placement, k), batch=contexts.total())
    shares = [times / meter.batch for times in contexts.values()]
    layer = lambda kind, context: _decode_layer(meter, kind, placement.layer, context)
    of_kind = lambda kind: [
        expected(zip(shares, cases, strict=True))
        for cases in zip(*(layer(kind, context) for context in contexts), strict=True)
    ]
    return _phase(
        placement,
        "decode",
        max(contexts),
        [of_kind(kind) for kind in _kinds(placement)],
        (
            _embedding(meter, placement, 1),
            _hand_offs(meter, placement, 1),
            *_head(meter, placement),
            _token_back(meter, placement),
        ),
        meter.batch,
    )


def prefill_costs(placement: Placement, tokens: int, k: int = 2) -> PhaseCosts:
    """Cost of a prompt up to its first new token, and of the switch to decode.

    Args:
      placement: The model on its regions.
      tokens: Tokens of the prompt.
      k: Phases of the K-trees.

    Returns:
      Cycles per operator and tokens/s.
    """
    meter = _meter(placement, k)
    return _phase(
        placement,
        "prefill",
        tokens,
        [_prefill_layer(meter, kind, placement.layer, tokens) for kind in _kinds(placement)],
        (
            _embedding(meter, placement, tokens),
            _hand_offs(meter, placement, tokens),
            *_head(meter, placement),
            _token_back(meter, placement),
            _switch(meter, placement, tokens),
        ),
    )


def _kinds(placement: Placement) -> tuple[ModuleType, ...]:
    return kinds_of(placement.config)


def _meter(placement: Placement, k: int) -> Meter:
    storage = placement.storage
    return Meter(placement.hw, storage.compute, k, storage)


def _phase(
    placement: Placement,
    phase: Literal["prefill", "decode"],
    tokens: int,
    period: Sequence[Iterable[OperatorCost]],
    model: tuple[OperatorCost, ...],
    batch: int = 1,
) -> PhaseCosts:
    layers, clock_hz = placement.config.num_layers, placement.hw.clock_hz
    layer = tuple(chain.from_iterable(period))
    return PhaseCosts(phase, tokens, layer, model, layers, clock_hz, len(period), batch)


def _decode_layer(
    meter: Meter, attention: ModuleType, layout: LayerLayout, context: int
) -> Iterator[OperatorCost]:
    residual = meter.vector(layout.hidden_y)
    yield _norm(meter, "attention norm", layout.mesh, layout.hidden_y)
    yield from attention.decode_costs(_of_attention(meter, layout), layout, context)
    yield meter.compute("attention residual", residual)
    yield _norm(meter, "feed-forward norm", layout.mesh, layout.hidden_y)
    yield from kind_of(layout.config).decode_costs(meter, layout)
    yield meter.compute("feed-forward residual", residual)


def _prefill_layer(
    meter: Meter, attention: ModuleType, layout: LayerLayout, tokens: int
) -> Iterator[OperatorCost]:
    rows = tile_size(tokens, layout.mesh[0])
    residual = meter.vector(rows * layout.hidden_x)
    yield _prompt_norm(meter, "attention norm", layout, rows)
    yield from attention.prefill_costs(_of_attention(meter, layout), layout, tokens)
    yield meter.compute("attention residual", residual)
    yield _prompt_norm(meter, "feed-forward norm", layout, rows)
    yield from kind_of(layout.config).prefill_costs(meter, layout, rows)
    yield meter.compute("feed-forward residual", residual)


def _of_attention(meter: Meter, layout: LayerLayout) -> Meter:
    """For the format that its projections have."""
    has_experts = layout.config.experts is not None
    return replace(meter, storage=meter.storage.of_attention(has_experts))


def _prompt_norm(meter: Meter, name: str, layout: LayerLayout, rows: int) -> OperatorCost:
    """RMSNorm of so many tokens of a row over the columns: a word per token and PE to add up."""
    each = rows * meter.vector(layout.hidden_x)
    total = meter.allreduce("", layout.mesh, rows, "x", compute=each)
    scale = meter.vector(rows, RECIPROCAL) + 2 * each
    return in_sequence(name, total, meter.compute("", scale))


def _norm(meter: Meter, name: str, mesh: tuple[int, int], hidden: int) -> OperatorCost:
    """RMSNorm of a vector over the rows: one word per PE to add up."""
    total = meter.allreduce("", mesh, 1, "y", compute=meter.vector(hidden))
    scale = meter.vector(1, RECIPROCAL) + 2 * meter.vector(hidden)
    return in_sequence(name, total, meter.compute("", scale))


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
    """The residual stream from region to region, the last one the head's.

    In decode every column has it and the next region's columns listen to one of them. In prefill
    all columns' tiles cross the border of the region, and the head wants the last token only.
    """
    layout, size = placement.layer, placement.config.hidden_size
    width, rows = layout.mesh[1], tile_size(tokens, layout.mesh[0])
    parts = []
    for i, (source, target) in enumerate(pairwise(placement.path[1:])):
        last = i == len(placement.layers_of_regions) - 1
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
    """Weights and caches from prefill's layout to decode's, on all regions at once."""
    places = [_layer_switch(meter, kind, placement, tokens) for kind in _kinds(placement)]
    of_region = lambda layers: sum(places[i % len(places)].cycles for i in layers)
    cycles = max(map(of_region, placement.layers_of_regions))
    moved = placement.config.periods * sum(place.moved_bytes for place in places)
    return OperatorCost("re-layout for decode", cycles, 0, cycles, moved)


def _layer_switch(
    meter: Meter, attention: ModuleType, placement: Placement, tokens: int
) -> OperatorCost:
    layout, dtype = placement.layer, meter.dtype
    (height, width), hidden = layout.mesh, layout.hidden_y
    turned = attention.turned_rows(layout)
    of = lambda hw, rows, columns: relayout.cost(hw, rows, columns, dtype=dtype)
    cycles = sum(of(placement.hw, rows, hidden * height) for rows in turned)
    elements = sum(turned) * hidden * height
    for tile in kind_of(layout.config).decode_tiles(layout):
        if tile.turned:
            rows, columns = tile.rows.size, tile.columns.size
            y, x = tile.mesh or layout.mesh
            cycles += tile.count * of(placement.hw.replace(mesh=(y, x)), rows * x, columns * y)
            elements += tile.count * rows * columns * height * width
    weights = OperatorCost("", cycles, 0, cycles, elements * DTYPE_BYTES[dtype])
    return in_sequence("", weights, attention.balance_costs(meter, layout, tokens))
