"""What is tuned: predict one candidate, or say which budget refuses it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from wafer_jax.collectives import allreduce_ktree
from wafer_jax.collectives.tiles import tile_size
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec
from wafer_jax.models.attention import kinds_of
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.feed_forward import kind_of
from wafer_jax.models.mesh_costs import PhaseCosts, decode_costs, prefill_costs
from wafer_jax.models.mesh_memory import different_region_bytes, largest_region_bytes
from wafer_jax.models.operator_cost import Meter
from wafer_jax.models.placement import Placement, place
from wafer_jax.models.storage import MatrixTile, storage_of
from wafer_jax.models.tuning import Candidate, Shape

Phase = Literal["prefill", "decode", "both"]
_ALLREDUCES = 10
"""Of a decoder layer in decode, each about a hop per row or column (WaferLLM's kernel)."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model, a machine, a request, the budgets, and what was tried so far.

    Attributes:
      config: The model.
      hw: The machine; its mesh is not looked at.
      program_bytes: SRAM of a PE with layers that their program takes.
      phase: What counts.
      prompt: Tokens of the prompt.
      output: Tokens to generate.
      context: Tokens that the KV caches hold.
      dtype: What weights are stored in.
      wafers: The most; None for any number.
      resident_routes: Whether all routes of a phase are installed at the same time.
      tried: Candidates by (side, expert grid, k, layers per region).
    """

    config: DecoderConfig
    hw: HardwareSpec
    program_bytes: int
    phase: Phase
    prompt: int
    output: int
    context: int
    dtype: str
    wafers: int | None
    resident_routes: bool
    tried: dict[tuple[Shape, int, int], Candidate] = field(default_factory=dict)

    @property
    def decode_steps(self) -> int:
        """Tokens that decode makes; the first one of a request is the prefill's."""
        return {"prefill": 0, "decode": self.output, "both": self.output - 1}[self.phase]

    @property
    def middle(self) -> int:
        """Tokens that the middle one of the decode steps sees, itself included."""
        return self.prompt + max(1, (self.decode_steps + 1) // 2)

    def needed_bytes(self, shape: Shape, layers: int) -> int:
        """SRAM of a PE of the fullest region of layers."""
        layout = shape.layout(self.config)
        memory = largest_region_bytes(layout, self.dtype, self.context, self.prompt, layers)
        return memory.used_bytes + self.program_bytes

    def fits(self, shape: Shape, layers: int) -> bool:
        """Whether the SRAM does."""
        room, layout = self.hw.sram_bytes - self.program_bytes, shape.layout(self.config)
        regions = different_region_bytes(layout, self.dtype, self.context, self.prompt, layers)
        return all(region.used_bytes <= room for region in regions)

    def most_layers(self, shape: Shape) -> int:
        """Layers that fit a region where one does, spread evenly over as few regions."""
        low, high = 1, self.config.num_layers
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.fits(shape, middle) else (low, middle - 1)
        regions = -(-self.config.num_layers // low)
        return -(-self.config.num_layers // regions)

    def over_wafers(self, shape: Shape) -> bool:
        """Whether even with as many layers as fit a region there are too many wafers."""
        if self.wafers is None:
            return False
        try:
            return self._place(shape, self.most_layers(shape)).wafers > self.wafers
        except WaferError:
            return True

    def estimate(self, shape: Shape) -> float:
        """Cycles of the products and of decode's hops, to compare sides of about one size.

        Products are where such sides differ, because tiles that do not divide are padded. What
        else there is changes slowly with the side.
        """
        config, meter, side = self.config, self._meter, shape.side
        layout, rows = shape.layout(config), tile_size(self.prompt, side)
        used = config.experts.chosen / config.experts.count if config.experts else 1.0
        feed_forward, total = kind_of(config), 0.0

        def multiplied(tiles: Iterable[MatrixTile]) -> int:
            return sum(t.count * meter.multiply((t.rows.size, t.columns.size)) for t in tiles)

        def product(tile: MatrixTile) -> int:
            height, width = mesh = tile.mesh or layout.mesh
            tokens = tile_size(rows * side, height) * height
            sizes = (tokens, tile.rows.size * height, tile.columns.size * width)
            return tile.count * meter.project("", mesh, sizes).cycles

        for attention in kinds_of(config):
            if self.phase != "decode":
                tiles = (*attention.prefill_tiles(layout), *feed_forward.prefill_tiles(layout))
                total += sum(map(product, tiles))
                padded = layout.attention_rows(rows) * side
                queries, width = config.queries_per_kv * rows * side, layout.pairs * layout.columns
                scores = meter.matmul("", (side, layout.columns), (queries, padded, 2 * width))
                total += 2 * layout.heads * scores.cycles
            each = _ALLREDUCES * side * self.hw.hop_cycles
            each += multiplied(attention.decode_tiles(layout))
            each += used * multiplied(feed_forward.decode_tiles(layout))
            total += self.decode_steps * each
        return total

    @cached_property
    def _meter(self) -> Meter:
        storage = storage_of(self.dtype)
        return Meter(self.hw, storage.compute, storage=storage)

    def try_out(self, shape: Shape, k: int, layers: int | None = None) -> Candidate:
        """Predict a candidate, with the most layers by default, or say why it is refused."""
        layers = self.most_layers(shape) if layers is None else layers
        key = (shape, k, layers)
        if key not in self.tried:
            self.tried[key] = self._candidate(*key)
        return self.tried[key]

    def _candidate(self, shape: Shape, k: int, layers: int) -> Candidate:
        needed, hw = self.needed_bytes(shape, layers), self.hw
        found: dict[str, Any] = {"shape": shape, "k": k, "layers_per_region": layers}
        found["needed_bytes"] = needed
        if needed > hw.sram_bytes:
            why = f"SRAM: needs {needed:,} of {hw.sram_bytes:,} bytes per PE"
            return Candidate(**found, refused=why)
        try:
            placement = self._place(shape, layers)
        except WaferError as refusal:
            return Candidate(**found, refused=f"SRAM: {refusal}")
        found |= {"wafers": placement.wafers, "pes": placement.num_pes}
        if self.wafers and placement.wafers > self.wafers:
            return Candidate(**found, refused=f"wafers: {placement.wafers} of {self.wafers}")
        available = len(hw.input_queue_depths)
        queues = allreduce_ktree.needs(shape.side, k)[1]
        if queues > available:  # no costs either
            return Candidate(**found, refused=f"input queues: {queues} of {available}")
        prefill = prefill_costs(placement, self.prompt, k) if self.phase != "decode" else None
        decode = decode_costs(placement, self.middle, k) if self.phase != "prefill" else None
        colors, queues = self._routes([costs for costs in (prefill, decode) if costs])
        found |= {"colors": colors, "input_queues": queues}
        if colors > hw.colors:
            return Candidate(**found, refused=f"colours: {colors} of {hw.colors}")
        if queues > available:
            return Candidate(**found, refused=f"input queues: {queues} of {available}")
        cycles = prefill.cycles if prefill else 0
        cycles += self.decode_steps * decode.cycles if decode else 0
        return Candidate(**found, prefill=prefill, decode=decode, seconds=hw.seconds(cycles))

    def _place(self, shape: Shape, layers: int) -> Placement:
        return place(
            self.config,
            self.hw.replace(mesh=shape.mesh),
            context=self.context,
            prompt=self.prompt,
            dtype=self.dtype,
            layers_per_region=layers,
            expert_grid=shape.expert_grid,
        )

    def _routes(self, phases: Iterable[PhaseCosts]) -> tuple[int, int]:
        """Colours and input queues that a PE needs at the same time, in the worse phase.

        The PEs of layers run the layers' operators, others those of the embedding and the head.
        """
        together = sum if self.resident_routes else max
        parts = [part for costs in phases for part in (costs.layer, costs.model)]
        sets = [{r for operator in part for r in operator.routes} for part in parts]
        colors = [together([0, *(r.colors for r in routes)]) for routes in sets]
        # A queue is bound to a colour as an operator starts, so queues never add up.
        queues = [max([0, *(r.input_queues for r in routes)]) for routes in sets]
        return max(colors), max(queues)
