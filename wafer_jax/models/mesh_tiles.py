"""Arrays of a checkpoint cut by index into decode's tiles.

Axes: R and C the axis that a product reduces over and the other one, small letters for one PE's
part, see `mesh_layout`.
"""

import numpy as np

from wafer_jax.models.mesh_layout import PAD


def cut_matrix(weight: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """[out, in] to [r, R, C * c], where ``rows`` [R, r] and ``columns`` [C, c] index in and out."""
    tiles = cut(cut(weight, columns.reshape(-1)).T, rows.T)
    return np.ascontiguousarray(tiles)


def side_by_side(*parts: tuple[int, np.ndarray]) -> np.ndarray:
    """Index of several axes after one another, cut each for itself: (length, [C, c]) each."""
    columns, start = [], 0
    for length, index in parts:
        columns.append(np.where(index != PAD, index + start, PAD))
        start += length
    return np.concatenate(columns, axis=1)


def cut(array: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Take along the first axis, zero where the index is PAD."""
    taken = array[index]  # PAD is a valid index, of the last element
    taken[index == PAD] = 0
    return taken
