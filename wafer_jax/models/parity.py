"""Two implementations of one model compared, layer by layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

Stage = tuple[str, np.ndarray, np.ndarray]
"""Name, values and reference values of what two implementations both have."""


def compare(stages: Sequence[Stage], tolerance: float) -> pd.DataFrame:
    """Measure how far each stage departs from its reference.

    The largest difference within a token is taken relative to the largest magnitude within the
    same token: in a residual stream one token may exceed the others a thousandfold, and would hide
    what is wrong with them.

    Args:
      stages: Name, values and reference values of each stage, in order; equal shapes [..., C]
        with the elements of one token along C.
      tolerance: Largest relative difference that passes.

    Returns:
      One row per stage with the columns stage, difference and magnitude (of the token with the
      largest relative difference), relative and passes. A NaN or infinity on either side never
      passes.
    """
    rows = []
    for name, found, expected in stages:
        a, b = np.asarray(found, np.float64), np.asarray(expected, np.float64)
        if a.shape != b.shape:
            raise ValueError(f"{name}: shapes {a.shape} and {b.shape} differ")
        with np.errstate(invalid="ignore"):
            difference, magnitude = np.abs(a - b).max(-1).ravel(), np.abs(b).max(-1).ravel()
            relative = difference / np.where(magnitude == 0, 1, magnitude)
        worst = int(np.argmax(relative))  # NaN counts as the largest
        row = (name, difference[worst], magnitude[worst], relative[worst])
        rows.append((*row, bool(np.isfinite(row[1:]).all() and row[3] <= tolerance)))
    columns = ["stage", "difference", "magnitude", "relative", "passes"]
    return pd.DataFrame(rows, columns=columns)


def first_departure(comparison: pd.DataFrame) -> pd.Series | None:
    """The first row of ``compare`` that does not pass, or None."""
    failing = comparison[~comparison["passes"]]
    return None if failing.empty else failing.iloc[0]


@dataclass(frozen=True)
class LogitDistance:
    """How far the logits of a generation are from a reference, and whether it mattered.

    Attributes:
      steps: Tokens that were compared.
      max_difference: Largest difference of any logit.
      max_magnitude: Largest logit of the reference.
      same_tokens: Steps at which both have the same likeliest token.
      smallest_margin: Least difference between the reference's two likeliest tokens.
    """

    steps: int
    max_difference: float
    max_magnitude: float
    same_tokens: int
    smallest_margin: float


def logit_distance(found: np.ndarray, expected: np.ndarray) -> LogitDistance:
    """Compare the logits of every step.

    Args:
      found: [N, V].
      expected: [N, V], the reference.
    """
    top = np.partition(expected, -2, axis=-1)[:, -2:]
    return LogitDistance(
        steps=len(found),
        max_difference=float(np.abs(found.astype(np.float64) - expected).max()),
        max_magnitude=float(np.abs(expected).max()),
        same_tokens=int((found.argmax(-1) == expected.argmax(-1)).sum()),
        smallest_margin=float((top[:, 1] - top[:, 0]).min()),
    )
