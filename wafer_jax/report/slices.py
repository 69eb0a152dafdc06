"""Rows of a recording joined to slices of equal content.

Axes: R rows, S slices.
"""

from typing import NamedTuple

import numpy as np


class Slices(NamedTuple):
    """Equal neighbouring rows joined: codes, first cycles and lengths, [S] int64 each."""

    code: np.ndarray
    start: np.ndarray
    cycles: np.ndarray


def join(code: np.ndarray, start: np.ndarray, span: np.ndarray) -> Slices:
    """Join neighbouring rows with equal codes.

    Args:
      code: [R], any integers.
      start: [R] int64.
      span: [R] int64.
    """
    if not code.size:
        empty = np.zeros(0, np.int64)
        return Slices(empty, empty, empty)
    first = np.flatnonzero(np.concatenate([[True], code[1:] != code[:-1]]))
    return Slices(
        code[first].astype(np.int64), start[first], np.add.reduceat(span, first).astype(np.int64)
    )
