"""The chapters of a report that are no experiments: the validation, and the audit's tables."""

from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd

from wafer_jax.hardware import hardware
from wafer_jax.report import validation
from wafer_jax.report.audit_subject import LINE_SIZES
from wafer_jax.report.audit_tables import ComplianceTable, gemm_table, gemv_table, ktree_table
from wafer_jax.report.experiment import Progress, Section
from wafer_jax.report.experiment_rows import Tally
from wafer_jax.report.plots import validation_figure
from wafer_jax.report.provenance import provenance

Fields = Callable[[Progress], dict[str, Any]]
Source = tuple[str, str, str, Fields]
"""Name, title, command, and what gives the fields of the chapter."""

_VALIDATION_NOTE = """\
Errors are sizes. Held out: points that no constant was calibrated with. In the summary, with bar \
and missed count families here; the worst is of the informational points, which have none. \
docs/validation.md says what each compares; --all lists points."""


def validated() -> Source:
    """Published measurements on silicon and on the vendor's simulator."""
    title = "Published measurements beside our cycles"
    return "validation", title, "wafer-jax validate", _validation


def _validation(say: Progress) -> dict[str, Any]:
    found = validation.validate(progress=say)
    summary = found.summary()
    errors = [abs(100 * point.error) for point in found.points]
    content = BytesIO()
    validation_figure(found.frame()).savefig(content, dpi=110)
    barred = summary[summary["bar"] != ""]
    return {
        "origin": provenance(),
        "sections": (Section("Families", summary, _VALIDATION_NOTE),),
        "tally": Tally(
            rows=len(errors),
            median_percent=float(np.median(errors)),
            worst_percent=max(errors),
            missed=sum(met is False for met in barred["met"]),
            with_bar=len(barred),
            levels=tuple(sorted({p.level for p in found.points})),
        ),
        "picture": content.getvalue(),
    }


def audited() -> tuple[Source, ...]:
    """WaferLLM's two tables of compliance, measured."""
    return (
        ("audit-gemm-table", "Paths, hops, stages and memory of distributed GEMMs",
         "wafer-jax audit gemm-table", lambda say: _compliance(_gemm, say)),
        ("audit-gemv-table", "Paths, hops and stages of the allreduces of a GEMV",
         "wafer-jax audit gemv-table", lambda say: _compliance(_gemv, say)),
    )  # fmt: skip


def _gemm(say: Progress) -> Iterable[ComplianceTable]:
    return (gemm_table(hardware("wse2"), progress=say),)


def _gemv(say: Progress) -> Iterable[ComplianceTable]:
    hw = hardware("wse2")
    return gemv_table(hw, progress=say), ktree_table(hw, LINE_SIZES[-1], say)


def _compliance(measure: Callable[[Progress], Iterable[ComplianceTable]], say: Progress) -> dict:
    tables = measure(say)
    return {
        "origin": provenance(hardware("wse2"), level="fabric") | {"mesh": None},
        "sections": tuple(Section(t.title, t.frame, " ".join(t.notes)) for t in tables),
        "statements": (),
        "tally": _agreement(tables),
    }


def _agreement(tables: Iterable[ComplianceTable]) -> Tally:
    """Growths that agree with the paper's, as rows that meet their bar."""
    agrees = pd.Series([x.agrees for t in tables for x in t.lines if x.agrees is not None])
    return Tally(
        rows=len(agrees),
        median_percent=None,
        worst_percent=None,
        missed=int((~agrees.astype(bool)).sum()),
        with_bar=len(agrees),
        levels=("fabric",),
    )
