"""What the autotuner tried and chose, as a table and in a few sentences."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from wafer_jax.hardware import HardwareSpec
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.mesh_costs import PhaseCosts
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.operator_cost import OperatorCost

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 5
"""Candidates that a notebook shows."""


class Shape(NamedTuple):
    """A square region of layers, and what it is cut into for experts."""

    side: int
    expert_grid: tuple[int, int] = (1, 1)

    @property
    def mesh(self) -> tuple[int, int]:
        """(Y, X) PEs."""
        return self.side, self.side

    def layout(self, config: DecoderConfig) -> LayerLayout:
        """Of a layer on it."""
        return LayerLayout(config, self.mesh, self.expert_grid)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to lay a model out.

    Attributes:
      shape: The region.
      k: Phases of the K-trees.
      layers_per_region: Consecutive layers that share a region.
      wafers: Wafers; 0 where the SRAM refuses it.
      pes: PEs of all regions; 0 likewise.
      needed_bytes: SRAM of a PE of the fullest region, the program included.
      colors: Colours that it needs at the same time.
      input_queues: Input queues of a PE, likewise.
      prefill: Costs of the prompt; None if it was refused, or is not part of what is tuned.
      decode: Costs of one token, the middle one of the output; None likewise.
      seconds: Predicted time; infinite if it was refused.
      refused: Why, in a few words; empty if it was not.
    """

    shape: Shape
    k: int
    layers_per_region: int
    wafers: int = 0
    pes: int = 0
    needed_bytes: int = 0
    colors: int = 0
    input_queues: int = 0
    prefill: PhaseCosts | None = None
    decode: PhaseCosts | None = None
    seconds: float = float("inf")
    refused: str = ""

    @property
    def name(self) -> str:
        """Such as "420x420 PEs, 2 layers per region, K = 2"."""
        layers = f"{self.layers_per_region} layer{'s' if self.layers_per_region > 1 else ''}"
        rows, columns = self.shape.expert_grid
        grid = f", experts on {rows}x{columns} parts" if rows * columns > 1 else ""
        return f"{self.side}x{self.side} PEs, {layers} per region{grid}, K = {self.k}"

    @property
    def side(self) -> int:
        """Rows, and columns, of a region."""
        return self.shape.side


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The outcome of `autotune`.

    Attributes:
      config: The model.
      hw: The machine, with the chosen region as its mesh.
      phase: What was tuned: "prefill", "decode" or "both".
      dtype: What weights are stored in.
      context: Tokens that the KV caches hold.
      prompt: Tokens of the prompt.
      output: Tokens that are generated.
      program_bytes: Of a PE's SRAM, for the program.
      resident_routes: Whether all routes of a phase are installed at the same time.
      best: The choice.
      candidates: All that were looked at, the fastest first, refused ones last.
    """

    config: DecoderConfig
    hw: HardwareSpec
    phase: str
    dtype: str
    context: int
    prompt: int
    output: int
    program_bytes: int
    resident_routes: bool
    best: Candidate
    candidates: tuple[Candidate, ...]

    level = "cost"

    @property
    def frame(self) -> "pd.DataFrame":
        """One row per candidate; ``refused`` says why it does not fit, or is empty."""
        import pandas as pd

        rows = [
            {
                "side": c.side,
                "expert_grid": "x".join(map(str, c.shape.expert_grid)),
                "layers_per_region": c.layers_per_region,
                "k": c.k,
                "wafers": c.wafers or None,
                "pes": c.pes or None,
                "needed_bytes": c.needed_bytes or None,
                "colors": c.colors or None,
                "prefill_cycles": c.prefill.cycles if c.prefill else None,
                "decode_cycles": c.decode.cycles if c.decode else None,
                "seconds": None if c.refused else c.seconds,
                "refused": c.refused,
            }
            for c in self.candidates
        ]
        whole = "wafers pes needed_bytes colors prefill_cycles decode_cycles".split()
        return pd.DataFrame(rows).astype(dict.fromkeys(whole, "Int64"))

    @property
    def explanation(self) -> tuple[str, ...]:
        """Sentences: the choice, what bounds it, what the next ones lose; `print` shows them."""
        return (self._choice, *self._bounds, self._memory, *self._others)

    def __repr__(self) -> str:
        return f"Tuning({self._choice.rstrip('.')}, level {self.level})"

    def __str__(self) -> str:
        return "\n".join(self.explanation)

    def _repr_html_(self) -> str:
        sentences = "<br>".join(escape(sentence) for sentence in self.explanation)
        return f"<p>{sentences}</p>{self.frame.head(_SHOWN).to_html(index=False)}"

    @property
    def _choice(self) -> str:
        best = self.best
        parts = []
        if best.prefill:
            parts.append(f"prefill of {self.prompt:,} tokens in {best.prefill.cycles:,} cycles")
        if best.decode:
            speed = f"{best.decode.tokens_per_s:,.0f} tokens/s"
            parts.append(f"decode of a token in {best.decode.cycles:,} cycles ({speed})")
        what = {"prefill": "prompt", "decode": "output", "both": "request"}[self.phase]
        wafers = f"{best.wafers} wafer{'s' if best.wafers > 1 else ''}"
        return (
            f"{best.name}: {best.pes:,} PEs on {wafers}, {_time(best.seconds)} for the {what}, "
            f"{', '.join(parts)}."
        )

    @property
    def _bounds(self) -> Iterable[str]:
        for name, costs in (("Prefill", self.best.prefill), ("Decode", self.best.decode)):
            if costs is None:
                continue
            runs = [(n, o) for n, o in costs.runs if o.cycles]
            largest = max(runs, key=lambda run: run[0] * run[1].cycles)
            share = 100 * largest[0] * largest[1].cycles / costs.cycles
            yield (
                f"{name} is bound by {_cause(runs)}; the operator that takes most is "
                f"{largest[1].operator!r}, {share:.0f} % of its cycles."
            )

    @property
    def _memory(self) -> str:
        too_small = [
            c.side
            for c in self.candidates
            if c.layers_per_region == 1 and c.needed_bytes > self.hw.sram_bytes
        ]
        least = max(too_small, default=0) + 1
        note = f"; no region below {least}x{least} holds a layer, its cache and the prompt"
        note = note if too_small else ""
        return (
            f"A PE uses {self.best.needed_bytes:,} of {self.hw.sram_bytes:,} bytes, "
            f"{self.program_bytes:,} of them for the program{note}. {self._colors}"
        )

    @property
    def _colors(self) -> str:
        colors = f"{self.best.colors} of {self.hw.colors} colours"
        if self.resident_routes:
            return f"All routes of a phase together take {colors}."
        return f"Operators take up to {colors}, one after another."

    @property
    def _others(self) -> Iterable[str]:
        best = self.best
        fits = [c for c in self.candidates if not c.refused]
        for text, others in (
            ("another region", [c for c in fits if c.side != best.side]),
            (
                "another grid of experts",
                [c for c in fits if c.shape.expert_grid != best.shape.expert_grid],
            ),
            ("another K", [c for c in fits if c.shape == best.shape and c.k != best.k]),
            ("fewer wafers", [c for c in fits if c.wafers < best.wafers]),
        ):
            if others:
                other = min(others, key=lambda c: c.seconds)
                more = 100 * (other.seconds / best.seconds - 1)
                wafers = f" on {other.wafers}" if text == "fewer wafers" else ""
                yield f"The best with {text} is {other.name}{wafers}: {more:.1f} % more time."
        if self.phase == "both":
            yield from self._each_phase(fits)

    def _each_phase(self, fits: list[Candidate]) -> Iterable[str]:
        alone = [
            (name, min(fits, key=cycles))
            for name, cycles in (
                ("prefill", lambda c: c.prefill.cycles),
                ("decode", lambda c: c.decode.cycles if c.decode else 0),
            )
        ]
        if any(c.side != self.best.side for _, c in alone):
            named = " and ".join(f"{name} on {c.side}x{c.side}" for name, c in alone)
            yield f"Alone, {named} would be fastest of what was tried."


def _cause(runs: list[tuple[int, OperatorCost]]) -> str:
    """Shares of a phase's cycles, the largest first."""
    total = sum(times * o.cycles for times, o in runs)
    shares = {
        "arithmetic": sum(times * o.compute_cycles for times, o in runs),
        "words on the way into and out of PEs": sum(t * o.communication_cycles for t, o in runs),
        "waiting for hops, ramps and other PEs": sum(times * o.idle_cycles for times, o in runs),
    }
    (first, most), *rest = sorted(shares.items(), key=lambda item: -item[1])
    others = ", ".join(f"{100 * n / total:.0f} % {name}" for name, n in rest)
    return f"{first} ({100 * most / total:.0f} %; {others})"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:,.2f} s"
    return f"{1e3 * seconds:,.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:,.3g} us"
