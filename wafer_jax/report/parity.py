"""Two implementations of one model compared, layer by layer."""

from collections.abc import Sequence

import numpy as np
import pandas as pd


def compare(stages: Sequence[tuple[str, np.ndarray, np.ndarray]], tolerance: float) -> pd.DataFrame:
    """Measure how far each stage departs from its reference.

    The largest difference is taken relative to the largest magnitude of the reference at that
    stage, since a few channels of a residual stream exceed the others a thousandfold.

    Args:
      stages: Name, values and reference values of each stage, in order; any equal shapes.
      tolerance: Largest relative difference that passes.

    Returns:
      One row per stage with the columns stage, max_difference, max_magnitude, relative and
      passes. A NaN or infinity on either side never passes.
    """
    rows = []
    for name, found, expected in stages:
        a, b = np.asarray(found, np.float64), np.asarray(expected, np.float64)
        if a.shape != b.shape:
            raise ValueError(f"{name}: shapes {a.shape} and {b.shape} differ")
        with np.errstate(invalid="ignore"):
            difference, magnitude = np.abs(a - b).max(), np.abs(b).max()
            relative = difference / magnitude if magnitude else difference
        passes = bool(np.isfinite(a).all() and np.isfinite(b).all() and relative <= tolerance)
        rows.append((name, difference, magnitude, relative, passes))
    columns = ["stage", "max_difference", "max_magnitude", "relative", "passes"]
    return pd.DataFrame(rows, columns=columns)


def first_departure(comparison: pd.DataFrame) -> pd.Series | None:
    """The first row of ``compare`` that does not pass, or None."""
    failing = comparison[~comparison["passes"]]
    return None if failing.empty else failing.iloc[0]
