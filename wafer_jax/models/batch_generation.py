"""What a generation for several prompts at once gives: texts, cycles, and where it all lay."""

import math
from dataclasses import dataclass
from functools import cached_property

from wafer_jax.collectives.tiles import tile_size
from wafer_jax.models.mesh_costs import decode_costs, prefill_costs
from wafer_jax.models.placement import Placement


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchGeneration:
    """Tokens generated greedily; values from the bulk level, cycles from the cost level.

    On the wafer the prompts come one after another, then every step of decode adds a token to all
    sequences that have not ended.

    Attributes:
      name: The model.
      prompt_ids: Ids of the prompts.
      ids: Ids of the new tokens of each.
      texts: The new tokens as texts, or None without a tokenizer.
      placement: The regions, sized for all sequences.
      k: Phases of the K-trees.
      prefill_s: Seconds that the prefills took to emulate, compilation included.
      decode_s: Seconds of the decode, likewise.
    """

    name: str
    prompt_ids: tuple[tuple[int, ...], ...]
    ids: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...] | None
    placement: Placement
    k: int
    prefill_s: float
    decode_s: float

    level = "bulk"

    @property
    def contexts(self) -> tuple[tuple[int, ...], ...]:
        """Of every step of decode, the tokens that each sequence sees, its new one included."""
        steps = range(1, max(map(len, self.ids)))
        sequences = list(zip(map(len, self.prompt_ids), map(len, self.ids), strict=True))
        return tuple(tuple(p + step for p, new in sequences if step < new) for step in steps)

    @cached_property
    def prefill_cycles(self) -> int:
        """All prompts, one after another."""
        lengths = map(len, self.prompt_ids)
        return sum(prefill_costs(self.placement, tokens, self.k).cycles for tokens in lengths)

    @cached_property
    def decode_cycles(self) -> int:
        """All steps of decode."""
        rows, of_slots, total = self.placement.kv_rows, {}, 0
        for contexts in self.contexts:
            slots = tuple(sorted(tile_size(context, rows) for context in contexts))
            if slots not in of_slots:  # the cost changes only when a fullest row holds one more
                of_slots[slots] = decode_costs(self.placement, contexts, self.k).cycles
            total += of_slots[slots]
        return total

    @property
    def cycles(self) -> int:
        """Cycles of all prefills and all steps of decode."""
        return self.prefill_cycles + self.decode_cycles

    @property
    def seconds(self) -> float:
        """``cycles`` at the machine's clock."""
        return self.placement.hw.seconds(self.cycles)

    @property
    def decode_tokens_per_s(self) -> float:
        """Emulated tokens/s of decode, of all sequences together; NaN if no step was made."""
        tokens = sum(map(len, self.contexts))
        return tokens / self.placement.hw.seconds(self.decode_cycles) if tokens else math.nan

    def __repr__(self) -> str:
        height, width = self.placement.hw.mesh
        lines = map(repr, self.ids if self.texts is None else self.texts)
        return "\n".join(lines) + (
            f"\n{self.name}, a layer on {height}x{width} PEs of {self.placement.hw.name}: "
            f"{sum(map(len, self.ids))} tokens of {len(self.ids)} sequences in {self.cycles:,} "
            f"cycles (cost level), {self.decode_tokens_per_s:,.0f} tokens/s of decode"
        )
