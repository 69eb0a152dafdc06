"""Tiles of packed matrices on the mesh, which turn into numbers when they are multiplied.

Axes as in `mesh_weights`: tiles [r, R, N], rows r of the tiles of R PEs, N = C * c columns; b
blocks that a tile has a part of.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.models.mesh_layout import PAD
from wafer_jax.models.mesh_tiles import cut_matrix
from wafer_jax.models.quantized.packed import Matrix, PackedMatrix


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class PackedTiles:
    """Codes, and the factors of all blocks that a tile has a part of.

    Attributes:
      codes: [..., r, R, N] uint8, int8 or float8_e4m3fn.
      scales: [..., b, R, N] float32.
      offsets: [..., b, R, N] float32, or None.
      block: [..., r, R] int32, which of the b blocks a row belongs to.
    """

    codes: jax.Array
    scales: jax.Array
    offsets: jax.Array | None
    block: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        """[..., r, R, N]."""
        return self.codes.shape

    def __getitem__(self, layer: int | jax.Array) -> "PackedTiles":
        """One of the leading axis."""
        return jax.tree.map(lambda a: a[layer], self)


Tiles = jax.Array | PackedTiles
"""Weights on the mesh, in any format."""


def numbers(tiles: Tiles) -> jax.Array:
    """Weights in float32, [..., r, R, N]."""
    if not isinstance(tiles, PackedTiles):
        return tiles.astype(jnp.float32)
    spread = lambda factors: jnp.take_along_axis(
        factors, tiles.block[..., None], axis=-3, mode="promise_in_bounds"
    )
    values = tiles.codes.astype(jnp.float32) * spread(tiles.scales)
    return values if tiles.offsets is None else values + spread(tiles.offsets)


def column_numbers(tiles: Tiles, columns: jax.Array) -> jax.Array:
    """Some columns [T] int32 of [..., r, R, N] in float32, [..., r, R, T]."""
    take = lambda a: jnp.take(a, columns, axis=-1, mode="clip")
    if not isinstance(tiles, PackedTiles):
        return numbers(take(tiles))
    offsets = None if tiles.offsets is None else take(tiles.offsets)
    chosen = PackedTiles(
        codes=take(tiles.codes), scales=take(tiles.scales), offsets=offsets, block=tiles.block
    )
    return numbers(chosen)


def stack_of_one(tiles: Tiles, layer: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A stack [L, r, R, N] as a product takes it, and the layer's number in it.

    Float32 stays where it is; anything else turns into numbers for the layer alone, which is
    faster than row by row.
    """
    if isinstance(tiles, jax.Array) and tiles.dtype == jnp.float32:
        return tiles, layer
    here = lambda a: lax.dynamic_index_in_dim(a, layer, keepdims=False)
    return numbers(jax.tree.map(here, tiles))[None], jnp.int32(0)


def matrix_tiles(
    weight: Matrix, rows: np.ndarray, columns: np.ndarray
) -> "np.ndarray | PackedTiles":
    """[out, in] to [r, R, C * c], where ``rows`` [R, r] and ``columns`` [C, c] index in and out."""
    if isinstance(weight, PackedMatrix):
        return pack_tiles(weight, rows, columns)
    return cut_matrix(weight, rows, columns)


def pack_tiles(matrix: PackedMatrix, rows: np.ndarray, columns: np.ndarray) -> PackedTiles:
    """Cut a packed matrix.

    Args:
      matrix: [out, in].
      rows: [R, r] int, index of in, or PAD.
      columns: [C, c] int, index of out, or PAD.

    Returns:
      The tiles, of NumPy arrays; padding turns into zeros.
    """
    wanted = np.where(rows != PAD, rows // matrix.block, PAD)
    held = [np.unique(line) for line in wanted]  # sorted, PAD first
    blocks = np.full((len(rows), max(map(len, held))), PAD)
    for line, some in zip(blocks, held, strict=True):
        line[: len(some)] = some
    place = np.stack([np.searchsorted(h, w) for h, w in zip(held, wanted, strict=True)])
    tile = lambda array, index: cut_matrix(array, index, columns)
    arrays: dict[str, Any] = {
        "codes": tile(matrix.codes, rows),
        "scales": tile(matrix.scales, blocks),
        "offsets": None if matrix.offsets is None else tile(matrix.offsets, blocks),
        "block": np.ascontiguousarray(place.T.astype(np.int32)),
    }
    return PackedTiles(**arrays)
