"""Which part of C = A B^T belongs where, and which tile of B is where in each step.

A [m, k] and B [n, k] are cut alike, rows along y and columns along x. B's n rows are cut into
L = lcm(Y, X) parts: a PE row holds L / Y of them in its tile of B, and a PE column owns the L / X
columns of C that belong to its own.
"""

import math
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.collectives.interleave import order, position
from wafer_jax.collectives.tiles import tile_matrix
from wafer_jax.errors import WaferError


class Part(NamedTuple):
    """Rows of a tile of B whose products are summed in one column.

    Attributes:
      root: That column.
      first: First of the L parts of B's rows.
      count: How many.
    """

    root: int
    first: int
    count: int


def parts_of_tile(mesh: tuple[int, int], tile: int) -> list[Part]:
    """Where the products with a tile of B belong, in the order of the columns."""
    height, width = mesh
    steps = math.lcm(height, width)
    per_tile, per_column = steps // height, steps // width
    columns = groupby(range(tile * per_tile, (tile + 1) * per_tile), lambda p: p // per_column)
    groups = [(root, list(numbers)) for root, numbers in columns]
    return [Part(root, numbers[0], len(numbers)) for root, numbers in groups]


@lru_cache(maxsize=64)
def tile_numbers(height: int) -> np.ndarray:
    """[Y, Y] int32: which tile of B each row holds in each step."""
    place = position(height) - np.arange(height)[:, None]
    return order(height)[place % height].astype(np.int32)


def tile_operands(a: jax.Array, b: jax.Array, mesh: tuple[int, int]) -> tuple[jax.Array, jax.Array]:
    """Cut dense matrices into tiles that the transposed MeshGEMM takes, padded with zeros.

    Args:
      a: [M, K].
      b: [N, K].
      mesh: (Y, X).

    Returns:
      a [m, k, Y, X] and b [n, k, Y, X] with n Y a multiple of lcm(Y, X).

    Raises:
      WaferError: Matrices that do not fit each other.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise WaferError(f"transposed MeshGEMM: cannot multiply {a.shape} by {b.shape} transposed")
    b = jnp.pad(b, ((0, -b.shape[0] % math.lcm(*mesh)), (0, 0)))
    return tile_matrix(a, mesh), tile_matrix(b, mesh)


def check_tiles(a: np.ndarray | jax.Array, b: np.ndarray | jax.Array) -> None:
    """Raise ``WaferError`` unless tiles a [..., m, k, Y, X] and b [..., n, k, Y, X] fit."""
    rows, width = b.shape[-4] * b.shape[-2], b.shape[-1]
    if a.shape[-3:] != b.shape[-3:] or rows % width:
        raise WaferError(
            f"transposed MeshGEMM: a {a.shape} and b {b.shape} must agree in the last three axes, "
            f"and b's {rows} rows divide into {width} columns: cut them with tile_operands"
        )
