"""What an audit found: rows of measures, their growth, and the budgets they break."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console, RenderableType

from wafer_jax.hardware import HardwareSpec
from wafer_jax.report.audit_growth import Growth
from wafer_jax.report.audit_measure import Measure
from wafer_jax.report.frames import cell, table

WIDTH = 120
FIGURES = (
    ("P", "working_pes", "PEs that compute"),
    ("P", "working_percent", "the same, % of the PEs"),
    ("L", "trip_hops", "farthest trip of a word, hops"),
    ("L", "chain_hops", "longest chain of dependences, hops"),
    ("L", "chain_stages", "the same chain, software stages"),
    ("L", "align_hops", "chain of the alignment on chip, hops"),
    ("M", "sram_bytes", "SRAM per PE, bytes"),
    ("M", "operand_percent", "the same, % of a dense matrix"),
    ("R", "routes", "colours routed at a PE, most"),
    ("R", "routes_mean", "colours routed at a PE, mean"),
    ("R", "paths", "paths through a PE (colour, sender)"),
    ("R", "colors", "colours of the program"),
    ("R", "input_queues", "input queues of a PE"),
)
"""Property, name and words of a row's figures."""
FITTED = ("working_pes", "trip_hops", "chain_hops", "chain_stages", "align_hops", "sram_bytes",
          "routes", "paths", "colors", "input_queues")  # fmt: skip
"""Those whose growth is fitted."""


class Budget(NamedTuple):
    """One budget of a machine: what a program needs of it, and what there is."""

    needed: Callable[[Measure], int]
    available: Callable[[HardwareSpec], int]
    unit: str


BUDGETS = {
    "colors": Budget(lambda m: m.colors, lambda hw: hw.colors, "colours"),
    "input_queues": Budget(
        lambda m: m.input_queues, lambda hw: len(hw.input_queue_depths), "input queues"
    ),
    "output_queues": Budget(
        lambda m: m.output_queues, lambda hw: len(hw.output_queue_depths), "output queues"
    ),
    "sram_bytes": Budget(lambda m: m.sram_bytes, lambda hw: hw.data_bytes, "bytes of SRAM"),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One program of a sweep.

    Attributes:
      size: N; None for a program that was given.
      mesh: (Y, X).
      measure: Its figures; of an algorithm that aligns on chip or host, those without alignment.
      aligned: Of the program that aligns on chip.
    """

    size: int | None
    mesh: tuple[int, int]
    measure: Measure
    aligned: Measure | None = None

    def value(self, figure: str, operand_bytes: int | None = None) -> float | None:
        """A figure by its name in ``FIGURES``; None where it does not exist."""
        m, aligned = self.measure, self.aligned
        match figure:
            case "working_pes":
                return round(m.working_share * m.pes)
            case "working_percent":
                return 100 * m.working_share
            case "operand_percent":
                return 100 * m.sram_bytes / operand_bytes if operand_bytes else None
            case "align_hops":
                if aligned is None or aligned.chain_hops is None or m.chain_hops is None:
                    return None
                return aligned.chain_hops - m.chain_hops
        return getattr(m, figure)

    def over(self, hw: HardwareSpec) -> dict[str, tuple[int, int]]:
        """Budgets of a machine that the program exceeds: (needed, available)."""
        amounts = {name: (b.needed(self.measure), b.available(hw)) for name, b in BUDGETS.items()}
        return {name: pair for name, pair in amounts.items() if pair[0] > pair[1]}


@dataclass(frozen=True, kw_only=True)
class Audit:
    """PLMR of an algorithm over sizes, or of one program. Printed, it is a table.

    Attributes:
      name: Algorithm or program.
      hw: Machine whose budgets count.
      parameters: What the algorithm was built with.
      operand_bytes: Bytes of one dense matrix, if the problem has one.
      rows: One per size.
      growth: By the name of a figure in ``FITTED``, where there are sizes enough.
    """

    name: str
    hw: HardwareSpec
    parameters: Mapping[str, Any]
    operand_bytes: int | None
    rows: tuple[Row, ...]
    growth: Mapping[str, Growth]

    @property
    def breaks(self) -> dict[str, tuple[int | None, ...]]:
        """Sizes that exceed a budget, by budget; only those exceeded."""
        over = {
            name: tuple(r.size for r in self.rows if name in r.over(self.hw)) for name in BUDGETS
        }
        return {name: sizes for name, sizes in over.items() if sizes}

    def values(self, figure: str) -> list[float | None]:
        """A figure over the rows."""
        return [row.value(figure, self.operand_bytes) for row in self.rows]

    @property
    def frame(self) -> pd.DataFrame:
        """One row per size: N, mesh_y, mesh_x, and a column per figure that exists."""
        columns: dict[str, list] = {
            "N": [row.size for row in self.rows],
            "mesh_y": [row.mesh[0] for row in self.rows],
            "mesh_x": [row.mesh[1] for row in self.rows],
        }
        columns |= {name: self.values(name) for name in self._shown()}
        return pd.DataFrame(columns)

    def _shown(self) -> list[str]:
        return [name for _, name, _ in FIGURES if any(v is not None for v in self.values(name))]

    def _table(self) -> pd.DataFrame:
        """Figures down, sizes across."""
        shown = self._shown()
        lines = []
        for letter, name, words in FIGURES:
            if name not in shown:
                continue
            line: dict[str, Any] = {"": letter, "figure": words}
            for row, value in zip(self.rows, self.values(name), strict=True):
                head = f"{row.mesh[0]}x{row.mesh[1]}" if row.size is None else f"N={row.size}"
                line[head] = f"{value:.1f}" if name.endswith("percent") else cell(value)
            if self.growth:
                fit = self.growth.get(name)
                line["growth"] = "" if fit is None else fit.name
                line["exponent"] = "" if fit is None else fit.shown_exponent
            lines.append(line)
        return pd.DataFrame(lines)

    def tables(self) -> list[RenderableType]:
        """For a rich console."""
        setting = ", ".join(f"{k}={v}" for k, v in self.parameters.items())
        head = f"PLMR audit of {self.name}" + (f" ({setting})" if setting else "")
        parts: list[RenderableType] = [table(self._table(), head), ""]
        for name, sizes in self.breaks.items():
            budget = BUDGETS[name]
            most = max(budget.needed(row.measure) for row in self.rows)
            at = f" at N = {', '.join(map(str, sizes))}" if sizes[0] is not None else ""
            parts.append(
                f"Over budget{at}: up to {most:,} {budget.unit}, {self.hw.name} has "
                f"{budget.available(self.hw):,}"
            )
        if not self.breaks:
            parts.append(f"Within the budgets of {self.hw.name}.")
        return parts

    def __str__(self) -> str:
        return rendered(self.tables())

    def _repr_html_(self) -> str:
        return preformatted(self)

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "name": self.name,
            "parameters": dict(self.parameters),
            "operand_bytes": self.operand_bytes,
            "rows": [
                {
                    "size": row.size,
                    "mesh": list(row.mesh),
                    **asdict(row.measure),
                    "aligned": None if row.aligned is None else asdict(row.aligned),
                    "over": {name: list(pair) for name, pair in row.over(self.hw).items()},
                }
                for row in self.rows
            ],
            "growth": {name: asdict(fit) for name, fit in self.growth.items()},
            "breaks": {name: list(sizes) for name, sizes in self.breaks.items()},
        }


def rendered(parts: Sequence[RenderableType]) -> str:
    """What a console would show, as text."""
    out = io.StringIO()
    # In a notebook a console would display what it should write to the file.
    console = Console(
        file=out, width=WIDTH, highlight=False, force_terminal=False, force_jupyter=False
    )
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


def preformatted(shown: object) -> str:
    """Text as HTML, for notebooks."""
    return f"<pre>{escape(str(shown))}</pre>"
