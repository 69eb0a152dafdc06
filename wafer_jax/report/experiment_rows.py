"""Published figures as rows beside ours: the columns that every such table shares.

``wafer-jax report`` counts the rows of every section whose frame has them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

NOT_EMULATED = ("formula", "roofline")
"""Levels of figures that say nothing about the emulator."""
COLUMNS = ("paper", "ours", "error_percent", "bar_percent", "met", "level")


def row(*, paper: float, ours: float, level: str, bar: float | None = None, **what: Any) -> dict:
    """One figure.

    Args:
      paper: Published, not 0.
      ours: In the same unit.
      level: Of ours: "fabric", "bulk" or "cost"; "formula" where ours is the paper's own arithmetic
        done again on published figures; "roofline" for a bound of a GPU.
      bar: Size of the error in percent that is still met; None: for information.
      **what: Columns before, which say what is compared.

    Returns:
      A row for a frame: ``what``, then `COLUMNS`.
    """
    error = 100 * (ours / paper - 1)
    met = None if bar is None else abs(error) <= bar
    figures = (paper, ours, error, np.nan if bar is None else bar, met, level)
    return what | dict(zip(COLUMNS, figures, strict=True))


def frame(rows: Iterable[dict]) -> pd.DataFrame:
    """Rows as a table; ``met`` is True, False or None."""
    return pd.DataFrame(rows).astype({"met": object})


def with_bar(table: pd.DataFrame, bar: float) -> pd.DataFrame:
    """A table with error_percent and level, its rows with a published figure held to a bar."""
    known = table["error_percent"].notna()
    met = [
        bool(abs(e) <= bar) if k else None
        for e, k in zip(table["error_percent"], known, strict=True)
    ]
    place = list(table.columns).index("level")
    result = table.copy()
    result.insert(place, "bar_percent", np.where(known, bar, np.nan))
    result.insert(place + 1, "met", pd.Series(met, table.index, dtype=object))
    return result


@dataclass(frozen=True)
class Tally:
    """How close rows are.

    Attributes:
      rows: Their number.
      median_percent: Of the sizes of the errors; None without rows.
      worst_percent: The largest size.
      missed: Rows that miss their bar.
      with_bar: Rows that have one.
      levels: Of ours.
    """

    rows: int
    median_percent: float | None
    worst_percent: float | None
    missed: int
    with_bar: int
    levels: tuple[str, ...]


def paper_column(table: pd.DataFrame) -> str | None:
    """Name of the column with published figures, such as paper_tokens_per_s, if there is one."""
    if not {"error_percent", "level"} <= set(table.columns):
        return None
    return next((str(name) for name in table.columns if str(name).startswith("paper")), None)


def tally(tables: Iterable[pd.DataFrame]) -> Tally:
    """Count the rows of those tables that have the shared columns.

    Rows without a published figure are predictions and not counted, nor are those of the levels in
    `NOT_EMULATED`, unless they have a bar and miss it.
    """
    found = [t for t in tables if paper_column(t) is not None]
    rows = [r for t in found for r in t.to_dict("records") if not pd.isna(r["error_percent"])]
    own = [r for r in rows if r["level"] not in NOT_EMULATED]
    sizes = [abs(r["error_percent"]) for r in own]
    bars = [r for r in rows if not pd.isna(r.get("bar_percent", np.nan))]
    return Tally(
        rows=len(own),
        median_percent=float(np.median(sizes)) if sizes else None,
        worst_percent=max(sizes, default=None),
        missed=sum(abs(r["error_percent"]) > r["bar_percent"] for r in bars),
        with_bar=len(bars),
        levels=tuple(sorted({r["level"] for r in own})),
    )
