"""Our cycles beside every published measurement that the emulator can express.

Families, their models and their bars are in the modules ``validation_*``; constants that published
figures were used for are in the presets, with their source.
"""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from wafer_jax.errors import WaferError
from wafer_jax.report import (
    validation_gemm,
    validation_other,
    validation_p2p,
    validation_reduce,
    validation_stencil,
    validation_vector,
)
from wafer_jax.report.published import (
    Family,
    Kind,
    Level,
    NotExpressible,
    PublishedPoint,
    read_points,
    shipped_points,
)

if TYPE_CHECKING:
    import pandas as pd

FAMILIES: tuple[Family, ...] = (
    validation_reduce.FAMILY,
    validation_gemm.FAMILY,
    validation_p2p.FAMILY,
    validation_stencil.FAMILY,
    validation_vector.FAMILY,
    validation_other.FAMILY,
)

_OUT_OF_REACH = (
    (r"whole_program.*|.*_total_span", "includes the host's traffic, which is not emulated"),
    (r"spmm_.*", "sparse: its cycles depend on unpublished data"),
    (r"branch_.*|loop_back_edge|dependent_fp_latency|faddh_reduction",
     "scalar instructions are not emulated"),
    (r".*_bytes|memcpy_kernel_footprint", "a capacity, not a time: see `wafer-jax info`"),
    (r"decode_TPR.*|prefill_TPR.*|end_to_end_TPR.*|max_decode_len.*",
     "a whole model, not one operation"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ValidationPoint:
    """A published figure and ours.

    Attributes:
      family: Kind of measurement.
      source: Where it was published.
      experiment: What was measured.
      device: Such as "WSE-2".
      mesh: ``(Y, X)`` PEs, or None.
      size: Payload, matrix or tile, as published.
      published: The figure.
      ours: The emulator's.
      unit: Of both.
      error: ``ours / published - 1``.
      kind: What the published figure was measured on.
      level: Of ours.
      calibrated: Constant of the presets that the published figure went into, or empty.
      preset: Machine of ours.
    """

    family: str
    source: str
    experiment: str
    device: str
    mesh: tuple[int, int] | None
    size: str
    published: float
    ours: float
    unit: str
    error: float
    kind: Kind
    level: Level
    calibrated: str
    preset: str


@dataclass(frozen=True, kw_only=True)
class Unexpressed:
    """A row that the emulator has no figure for.

    Attributes:
      line: Of the file.
      experiment: What was measured.
      size: As published.
      reason: Why there is none.
    """

    line: int
    experiment: str
    size: str
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Validation:
    """The comparison.

    Attributes:
      points: In the order of the families, then of the file.
      unexpressed: Rows without a figure of ours.
    """

    points: tuple[ValidationPoint, ...]
    unexpressed: tuple[Unexpressed, ...]

    def summary(self) -> "pd.DataFrame":
        """One row per family: how many points, the sizes of their errors, and the bar.

        ``held_out`` are those that no constant was calibrated with.
        """
        import numpy as np
        import pandas as pd

        rows = []
        for family, points in self._by_family():
            sizes = 100 * np.abs([p.error for p in points])
            free = sizes[[not p.calibrated for p in points]]
            rows.append({
                "family": family.name,
                "points": len(points),
                "held_out": len(free),
                "measured_on": ", ".join(sorted({p.kind for p in points})),
                "level": ", ".join(sorted({p.level for p in points})),
                "median_percent": float(np.median(sizes)),
                "worst_percent": float(sizes.max()),
                "held_out_median_percent": float(np.median(free)) if len(free) else float("nan"),
                "bar": str(family.bar or ""),
                "met": _met(family, points),
            })  # fmt: skip
        return pd.DataFrame(rows)

    def frame(self) -> "pd.DataFrame":
        """One row per point, errors in percent."""
        import pandas as pd

        columns = [field.name for field in fields(ValidationPoint)]
        frame = pd.DataFrame([asdict(point) for point in self.points], columns=columns)
        frame["error"] *= 100
        return frame.rename(columns={"error": "error_percent"})

    @property
    def met(self) -> bool:
        """Whether every family with a bar meets it."""
        return all(_met(family, points) is not False for family, points in self._by_family())

    def _by_family(self) -> list[tuple[Family, list[ValidationPoint]]]:
        found = ((f, [p for p in self.points if p.family == f.name]) for f in FAMILIES)
        return [(family, points) for family, points in found if points]

    def plot(self, path: str | Path) -> None:
        """Draw published figures against ours by family, see `plots.plot_validation`."""
        from wafer_jax.report.plots import plot_validation

        plot_validation(self.frame(), path)

    def __repr__(self) -> str:
        return (
            f"Validation({len(self.points)} points of {len(self._by_family())} families, "
            f"{len(self.unexpressed)} not expressed)"
        )


def family_names() -> tuple[str, ...]:
    """Names that `validate` accepts."""
    return tuple(family.name for family in FAMILIES)


def validate(
    family: str | None = None,
    points: str | Path | None = None,
    *,
    progress: Callable[[str], None] | None = None,
) -> Validation:
    """Compare published measurements with what the emulator says.

    Args:
      family: Only this one; by default all.
      points: CSV file in the format of the shipped one, which is the default.
      progress: Called with what is compared next.

    Raises:
      WaferError: An unknown family, or a malformed file.
    """
    if family is not None and family not in family_names():
        raise WaferError(f"unknown family {family!r}: choose one of {', '.join(family_names())}")
    rows = read_points(shipped_points() if points is None else points)
    compared, without = [], []
    for number, row in enumerate(rows, start=1):
        kind = next((f for f in FAMILIES if f.has(row)), None)
        if family is not None and (kind is None or kind.name != family):
            continue
        if progress is not None:
            progress(f"{number} of {len(rows)}: {row.experiment} {row.size}".strip())
        try:
            compared.append(_compare(kind, row))
        except (NotExpressible, WaferError) as reason:
            without.append(Unexpressed(line=row.line, experiment=row.experiment, size=row.size,
                                       reason=str(reason)))  # fmt: skip
    rank = {name: place for place, name in enumerate(family_names())}
    compared.sort(key=lambda point: rank[point.family])
    return Validation(points=tuple(compared), unexpressed=tuple(without))


def _compare(family: Family | None, row: PublishedPoint) -> ValidationPoint:
    if family is None:
        reasons = (why for what, why in _OUT_OF_REACH if re.fullmatch(what, row.experiment))
        raise NotExpressible(next(reasons, "no experiment of this name is modelled"))
    ours = family.ours(row)
    return ValidationPoint(
        family=family.name,
        source=row.source,
        experiment=row.experiment,
        device=row.device,
        mesh=row.mesh,
        size=row.size,
        published=row.value,
        ours=ours.value,
        unit=row.unit,
        error=ours.value / row.value - 1,
        kind=row.kind,
        level=ours.level,
        calibrated=ours.calibrated,
        preset=row.preset,
    )


def _met(family: Family, points: list[ValidationPoint]) -> bool | None:
    if family.bar is None:
        return None
    import numpy as np

    sizes = [
        0.0 if abs(p.ours - p.published) <= family.bar.cycles else 100 * abs(p.error)
        for p in points
    ]
    limits = ((np.median, family.bar.median), (np.max, family.bar.worst))
    return all(limit is None or statistic(sizes) <= limit for statistic, limit in limits)
