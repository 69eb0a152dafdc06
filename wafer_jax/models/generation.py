"""What a generation on an emulated wafer gives: text, logits, cycles, and where it all lay."""

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from wafer_jax.collectives.tiles import tile_size
from wafer_jax.models.mesh_costs import PhaseCosts, decode_costs, prefill_costs
from wafer_jax.models.placement import Placement

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class Generation:
    """Tokens generated greedily; values from the bulk level, cycles from the cost level.

    Attributes:
      name: The model.
      prompt_ids: Ids of the prompt.
      ids: Ids of the new tokens.
      text: The new tokens as text, or None without a tokenizer.
      logits: [N, V] float32 that chose each new token, or None if they were not kept.
      placement: The regions, sized for this prompt and context.
      k: Phases of the K-trees.
      prefill_s: Seconds that the prefill took to emulate, compilation included.
      decode_s: Seconds of the decode, likewise.
    """

    name: str
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    text: str | None
    logits: np.ndarray | None
    placement: Placement
    k: int
    prefill_s: float
    decode_s: float

    level = "bulk"

    @cached_property
    def prefill(self) -> PhaseCosts:
        """Cost of the prompt, which gives the first new token."""
        return prefill_costs(self.placement, len(self.prompt_ids), self.k)

    @cached_property
    def decode(self) -> PhaseCosts:
        """Cost of one token of decode, of the last one or of the next one if there was none."""
        context = len(self.prompt_ids) + max(1, len(self.ids) - 1)
        return decode_costs(self.placement, context, self.k)

    @cached_property
    def cycles(self) -> int:
        """Cycles of the prefill and of all tokens that were decoded."""
        prompt, rows = len(self.prompt_ids), self.placement.kv_rows
        contexts = range(prompt + 1, prompt + len(self.ids))
        by_slots = {}  # the cost changes only when the fullest row holds one more
        for context in contexts:
            slots = tile_size(context, rows)
            if slots not in by_slots:
                by_slots[slots] = decode_costs(self.placement, context, self.k).cycles
        decoded = sum(by_slots[tile_size(context, rows)] for context in contexts)
        return self.prefill.cycles + decoded

    @property
    def seconds(self) -> float:
        """``cycles`` at the machine's clock."""
        return self.placement.hw.seconds(self.cycles)

    @property
    def first_token_s(self) -> float:
        """Emulated time to the first new token (TTFT)."""
        return self.placement.hw.seconds(self.prefill.cycles)

    @property
    def operators(self) -> "pd.DataFrame":
        """The operators of both phases, one row each, with a column phase."""
        import pandas as pd

        frames = [phase.frame for phase in (self.prefill, self.decode)]
        for phase, frame in zip(("prefill", "decode"), frames, strict=True):
            frame.insert(0, "phase", phase)
        return pd.concat(frames, ignore_index=True)

    @property
    def rates(self) -> "pd.DataFrame":
        """Emulated tokens/s of both phases, in both definitions."""
        import pandas as pd

        phases = (self.prefill, self.decode)
        return pd.DataFrame(
            {
                "phase": [p.phase for p in phases],
                "tokens": [p.tokens for p in phases],
                "layer_cycles": [p.layer_cycles for p in phases],
                "total_cycles": [p.cycles for p in phases],
                "layers_tokens_per_s": [p.layers_tokens_per_s for p in phases],
                "tokens_per_s": [p.tokens_per_s for p in phases],
            }
        )

    def plot(self):
        """Draw the cycles of every operator, a panel per phase, see `PhaseCosts.plot`.

        Returns:
          The matplotlib axes of both panels.

        Raises:
          WaferError: matplotlib is not installed.
        """
        from wafer_jax.models.pictures import plot_phases

        return plot_phases((self.prefill, self.decode))

    def __repr__(self) -> str:
        height, width = self.placement.hw.mesh
        text = str(list(self.ids)) if self.text is None else repr(self.text)
        return (
            f"{text}\n{self.name}, a layer on {height}x{width} PEs of {self.placement.hw.name}: "
            f"{len(self.ids)} tokens in {self.cycles:,} cycles (cost level), "
            f"{self.decode.tokens_per_s:,.0f} tokens/s of decode"
        )

    def _repr_html_(self) -> str:
        head = "<br>".join(escape(line) for line in repr(self).splitlines())
        tables = (self.rates, self.operators.round(1))
        return f"<p>{head}</p>{''.join(table.to_html(index=False) for table in tables)}"
