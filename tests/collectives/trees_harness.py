"""Shared by the tests of pre-order trees: all of them, and their sums in plain NumPy."""

from collections.abc import Iterator

import numpy as np


def all_trees(length: int) -> Iterator[tuple[int, ...]]:
    """Every pre-order tree of a length, as parents."""

    def grow(parents: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(parents) == length:
            yield parents
            return
        above = len(parents) - 1
        while above >= 0:
            yield from grow((*parents, above))
            above = parents[above]

    return grow((-1,))


def ordered_sum(parents: tuple[int, ...], parts: list[np.ndarray], vertex: int = 0) -> np.ndarray:
    """What a vertex has when it has added its children's sums in increasing order."""
    total = parts[vertex]
    for child, parent in enumerate(parents):
        if parent == vertex:
            total = total + ordered_sum(parents, parts, child)
    return total
