"""WaferLLM's two tables of compliance (OSDI'25, sections 5.1 and 6.1), measured.

The claims are the paper's. Beside each stands the growth that the audit finds in the programs that
are built here, and whether the two agree.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from rich.console import RenderableType

from wafer_jax.hardware import HardwareSpec
from wafer_jax.report.audit import Progress, audit
from wafer_jax.report.audit_growth import Growth, growth
from wafer_jax.report.audit_result import Audit, preformatted, rendered
from wafer_jax.report.audit_subject import check_sizes
from wafer_jax.report.frames import cell, table
from wafer_jax.runtime.algorithms import ALGORITHMS

MAX_PHASES = 4
"""Largest K of the table over K."""


@dataclass(frozen=True)
class Line:
    """One figure of one method.

    Attributes:
      method: As the paper calls it.
      letter: Property: P, L, M or R.
      figure: Words.
      values: By size; empty if no such algorithm is built.
      measured: Growth of the values, or None.
      claim: The paper's.
    """

    method: str
    letter: str
    figure: str
    values: tuple[float, ...]
    measured: str | None
    claim: str

    @property
    def agrees(self) -> bool | None:
        """Whether measured growth and claim are the same; None if nothing was measured."""
        return None if self.measured is None else self.measured == self.claim


@dataclass(frozen=True)
class ComplianceTable:
    """A table of the paper, measured. Print it.

    Attributes:
      title: What is compared.
      heads: Of the columns of values, such as "N=4".
      lines: One per method and figure.
      notes: Sentences below.
    """

    title: str
    heads: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """One row per line, as it is shown."""
        rows = []
        for line in self.lines:
            values = map(_short, line.values or [None] * len(self.heads))
            measured = line.measured or ("" if line.values else "not built")
            rows.append(
                {"method": line.method, "": line.letter, "figure": line.figure}
                | dict(zip(self.heads, values, strict=True))
                | {"measured": measured, "paper": line.claim, "agrees": cell(line.agrees)}
            )
        return pd.DataFrame(rows)

    def tables(self) -> list[RenderableType]:
        """For a rich console."""
        return [table(self.frame, self.title), "", *self.notes]

    def __str__(self) -> str:
        return rendered(self.tables())

    def _repr_html_(self) -> str:
        return preformatted(self)

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"lines": [asdict(x) | {"agrees": x.agrees} for x in self.lines]}


Values = Callable[[Audit], list[float]]


@dataclass(frozen=True)
class _Method:
    """A row of the paper's table: which algorithm it is here, and a claim per figure."""

    name: str
    algorithm: str
    claims: tuple[str, ...]


_GEMM = (
    _Method("allgather", "gemm.allgather", ("O(N)", "O(N)", "O(N)", "O(1/N)")),
    _Method("SUMMA", "gemm.summa", ("O(N)", "O(N)", "O(N)", "O(1/N^2)")),
    _Method("Cannon", "gemm.cannon", ("O(1)", "O(N)", "O(1)", "O(1/N^2)")),
    _Method("MeshGEMM", "gemm", ("O(1)", "O(1)", "O(1)", "O(1/N^2)")),
)
_GEMV = (
    _Method("pipeline", "allreduce.pipeline", ("O(1)", "O(N)", "O(N)")),
    _Method("ring", "allreduce.ring", ("O(1)", "O(N)", "O(N)")),
    _Method("K-tree, K=2", "allreduce.ktree", ("O(1)", "O(N)", "O(sqrt N)")),
)
_GEMM_NOTES = (
    "Per step: the farthest trip of a word, or the chain of dependences over the N steps (one step "
    "of allgather) if that is more.",
    "Stages: cores that take words off the fabric; a multicast by routers is one, whoever listens.",
    "The paper's beta N of allgather and SUMMA are relays by cores where routes run out. Here each "
    "source has a colour, so no core relays, and colours and input queues run out instead.",
)
_GEMV_NOTES = (
    "Hops and stages: of the longest chain of dependences through the whole allreduce, broadcast "
    "included; a stage is a core that takes words off the fabric.",
    "Colours routed at a PE are the paper's paths; the K-tree's O(K) are O(1) in N.",
)


def gemm_table(
    hw: HardwareSpec, sizes: Sequence[int] | None = None, progress: Progress | None = None
) -> ComplianceTable:
    """The distributed GEMMs: paths, hops and stages per step, and memory of one matrix.

    Args:
      hw: Machine.
      sizes: N of the N x N meshes, at least three.
      progress: Called with words about how far it is.
    """
    numbers = check_sizes(sizes, "square")
    figures: tuple[tuple[str, str, Values], ...] = (
        ("R", "colours routed at a PE", lambda a: _figure(a, "routes")),
        ("L", "hops per step", _hops_per_step),
        ("L", "stages per step", lambda a: _per_step(a, "chain_stages")),
        ("M", "SRAM, % of a matrix", lambda a: _figure(a, "operand_percent")),
    )
    lines = _lines(hw, numbers, _GEMM, figures, progress)
    return ComplianceTable(
        "Distributed GEMM (WaferLLM, section 5.1)", _heads("N", numbers), lines, _GEMM_NOTES
    )


def gemv_table(
    hw: HardwareSpec, sizes: Sequence[int] | None = None, progress: Progress | None = None
) -> ComplianceTable:
    """The allreduces of a distributed GEMV: paths, and hops and stages of the whole."""
    numbers = check_sizes(sizes, "line")
    figures: tuple[tuple[str, str, Values], ...] = (
        ("R", "colours routed at a PE", lambda a: _figure(a, "routes")),
        ("L", "hops in all", lambda a: _figure(a, "chain_hops")),
        ("L", "stages in all", lambda a: _figure(a, "chain_stages")),
    )
    lines = _lines(hw, numbers, _GEMV, figures, progress)
    return ComplianceTable(
        "Allreduce of a GEMV (WaferLLM, section 6.1)", _heads("N", numbers), lines, _GEMV_NOTES
    )


def ktree_table(hw: HardwareSpec, size: int, progress: Progress | None = None) -> ComplianceTable:
    """What the K-tree trades: paths at the root against stages, over K, on a line of ``size``.

    Without the broadcast, which K does not change: it adds a path and a stage. Trees whose groups
    would have fewer than about four members are left out.
    """
    phases = tuple(range(1, min(max(size.bit_length() // 2, 2), MAX_PHASES) + 1))
    audits = [
        audit("allreduce.ktree", [size], hw=hw, progress=progress, k=k, broadcast=False)
        for k in phases
    ]
    received = tuple(a.rows[0].measure.receive_paths for a in audits)
    stages = tuple(_figure(a, "chain_stages")[0] for a in audits)
    formula = tuple(round(k * size ** (1 / k) / 2, 1) for k in phases)
    fit = growth(phases, received, "K")
    line = (
        Line("K-tree", "R", "paths into the root", received, _name(fit), "O(K)"),
        Line("K-tree", "L", "stages in all", stages, None, ""),
        Line("paper", "L", "K N^(1/K) / 2", formula, None, ""),
    )
    notes = (
        "The paper gives the root K + 1 paths: one per phase, and the broadcast. Here the sides of "
        "a group reach its root on colours of their own: 2 K in, and one for the broadcast.",
    )
    return ComplianceTable(f"K-tree over K, N = {size}", _heads("K", phases), line, notes)


def _lines(
    hw: HardwareSpec,
    sizes: tuple[int, ...],
    methods: Sequence[_Method],
    figures: Sequence[tuple[str, str, Values]],
    progress: Progress | None,
) -> tuple[Line, ...]:
    lines = []
    for method in methods:
        built = method.algorithm in ALGORITHMS
        found = audit(method.algorithm, sizes, hw=hw, progress=progress) if built else None
        for (letter, words, values), claim in zip(figures, method.claims, strict=True):
            measured = tuple(values(found)) if found is not None else ()
            fit = growth(sizes, measured) if measured else None
            lines.append(Line(method.name, letter, words, measured, _name(fit), claim))
    return tuple(lines)


def _name(fit: Growth | None) -> str | None:
    return None if fit is None else fit.name


def _heads(symbol: str, sizes: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"{symbol}={size}" for size in sizes)


def _figure(found: Audit, name: str) -> list[float]:
    return [0.0 if v is None else v for v in found.values(name)]


def _per_step(found: Audit, figure: str) -> list[float]:
    steps = [1 if found.name == "gemm.allgather" else row.size or 1 for row in found.rows]
    return [v / n for v, n in zip(_figure(found, figure), steps, strict=True)]


def _hops_per_step(found: Audit) -> list[float]:
    trips, chain = _figure(found, "trip_hops"), _per_step(found, "chain_hops")
    return [max(pair) for pair in zip(trips, chain, strict=True)]


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"
