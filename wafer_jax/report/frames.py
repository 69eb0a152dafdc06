"""Frames to tables for the terminal and to plain values for JSON."""

import math
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table
from rich.text import Text

UNITS = ("cycles", "bytes", "words", "joules", "seconds", "percent", "tokens/s")
"""Last parts of a column's name that are units: they stand on a line of their own."""


def table(frame: pd.DataFrame, title: str | None = None) -> Table:
    """Render a frame: numbers right-aligned with thousands separators, units from the names.

    Args:
      frame: Any frame; its index is not shown.
      title: Line above the table, or None.

    Returns:
      A table for a rich console.
    """
    result = Table(title=title, title_justify="left", title_style="bold", header_style="bold",
                   box=None, pad_edge=False, padding=(0, 2, 0, 0))  # fmt: skip
    for name in frame.columns:
        number = is_number(frame[name])
        last = name == frame.columns[-1]  # the only one that may wrap
        result.add_column(heading(str(name)), justify="right" if number else "left",
                          no_wrap=not last or number, overflow="fold",
                          vertical="bottom" if number else "top")  # fmt: skip
    for line in texts(frame):
        result.add_row(*map(Text, line))
    return result


def is_number(column: Any) -> bool:
    """Whether a column holds numbers, which stand to the right."""
    return pd.api.types.is_numeric_dtype(column) and column.dtype != bool


def texts(frame: pd.DataFrame) -> list[list[str]]:
    """The cells of a frame for people, row by row."""
    forms = [_percent if str(n).endswith("_percent") else cell for n in frame.columns]
    return [
        [form(value) for form, value in zip(forms, row, strict=True)]
        for row in frame.itertuples(index=False, name=None)
    ]


def heading(name: str) -> str:
    """Column name for people: ``sram_bytes`` becomes "sram", and "bytes" on the next line."""
    *rest, last = name.replace("tokens_per_s", "tokens/s").split("_")
    return f"{' '.join(rest)}\n{last}" if rest and last in UNITS else name.replace("_", " ")


def cell(value: Any) -> str:
    """One value for people: 12,345; 0.0123; 1.5e-06; an empty text for what is missing."""
    if value is None or value is pd.NA:
        return ""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    if isinstance(value, float | np.floating):
        return _real(float(value))
    if isinstance(value, tuple):
        return " ".join(map(cell, value))
    return str(value)


def _percent(value: float | None) -> str:
    """Percents stand under each other with one decimal."""
    return "" if value is None or math.isnan(value) else f"{round(value, 1) + 0.0:.1f}"


def _real(value: float) -> str:
    if not math.isfinite(value):
        return "" if math.isnan(value) else str(value)
    if value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    if 1e-3 <= abs(value) < 1e3:
        return f"{value:.4g}"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.2e}"


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """One dict of plain values per row."""
    return [
        {str(k): plain(v) for k, v in zip(frame.columns, row, strict=True)}
        for row in frame.itertuples(index=False)
    ]


def plain(value: Any) -> Any:
    """A value as JSON has it: numpy scalars and arrays unwrapped, NaN and infinity None."""
    if isinstance(value, pd.DataFrame):
        return records(value)
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value
