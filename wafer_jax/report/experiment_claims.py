"""What the modules of claims share: figures by method, size and grid, and words for them."""

from collections.abc import Iterable

import pandas as pd

from wafer_jax.report.experiment import Verdict

Figures = dict[tuple[str, int, int], float]
"""By method, size of the matrix and PEs of a side."""


def figures_of(frame: pd.DataFrame, column: str) -> Figures:
    """A column of a frame with the columns method, size and grid."""
    keys = zip(frame["method"], frame["size"], frame["grid"], strict=True)
    return {
        (str(m), int(n), int(g)): float(v) for (m, n, g), v in zip(keys, frame[column], strict=True)
    }


def verdict_of(holds: Iterable[bool]) -> Verdict:
    """Whether all, some or none of them hold."""
    holds = list(holds)
    return "yes" if all(holds) else "partly" if any(holds) else "no"


def size_name(size: int) -> str:
    """Such as 2K."""
    return f"{size // 1024}K"
