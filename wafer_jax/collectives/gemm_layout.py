"""Which block of A and B lies where in MeshGEMM, and what the host loads.

C = A B on Y x X PEs. The contracted axis is cut into L = lcm(Y, X) blocks, so a PE holds L / X
blocks of A and L / Y blocks of B (one of each on a square mesh). The blocks of a row of A, read
along the INTERLEAVE ring of that row, form one cyclic list of L places, and so do the blocks of a
column of B; in every step all blocks move on by one place. PE (y, x) always works with the first
of its places, so in step s it multiplies the blocks with number

    (x's first place on its ring + y's first place on its ring - s) mod L

once rows of A and columns of B have been skewed by the other coordinate's place (Cannon's
alignment, along the interleaved ring; WaferLLM section 5.3). That numbers the blocks as A's
columns hold them. Where Y != X the same numbering needs B's rows to be loaded in another order,
which costs nothing on the host and does not change the product.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.arguments import whole
from wafer_jax.collectives.interleave import order, position
from wafer_jax.collectives.tiles import tile_matrix, tile_size
from wafer_jax.errors import WaferError
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES


@dataclass(frozen=True)
class Layout:
    """Sizes of a product [m, k] x [k, n] on a mesh; see the module.

    Attributes:
      mesh: (Y, X).
      steps: L, blocks of the contracted axis, and steps of the product.
      a_blocks: Blocks of A per PE.
      b_blocks: Blocks of B per PE.
      tile_m: Rows of A and C per PE.
      block_k: Columns of a block of A, rows of a block of B.
      tile_n: Columns of B and C per PE.
    """

    mesh: tuple[int, int]
    steps: int
    a_blocks: int
    b_blocks: int
    tile_m: int
    block_k: int
    tile_n: int

    @property
    def a_rounds(self) -> int:
        """Rounds that align A on chip: PE tiles that the farthest row moves, at most X / 2."""
        return -(-self.b_blocks * (self.mesh[0] // 2) // self.a_blocks)

    @property
    def b_rounds(self) -> int:
        """Rounds that align B on chip, at most Y / 2."""
        return -(-self.a_blocks * (self.mesh[1] // 2) // self.b_blocks)


def layout_of(mesh: tuple[int, int], m: int, k: int, n: int) -> Layout:
    """Cut a product of dense sizes, rounded up to whole tiles.

    Raises:
      WaferError: A size that is no whole number, or below 1.
    """
    m, k, n = (whole(size, f"size {name}") for name, size in zip("mkn", (m, k, n), strict=True))
    if min(m, k, n) < 1:
        raise WaferError(f"MeshGEMM of [{m}, {k}] x [{k}, {n}]: sizes must be at least 1")
    height, width = mesh
    steps = math.lcm(height, width)
    return Layout(
        mesh=mesh,
        steps=steps,
        a_blocks=steps // width,
        b_blocks=steps // height,
        tile_m=tile_size(m, height),
        block_k=tile_size(k, steps),
        tile_n=tile_size(n, width),
    )


def layout_of_tiles(a: jax.Array, b: jax.Array) -> Layout:
    """Layout of tiles a [m, k, Y, X] and b [k', n, Y, X], any leading axes left out.

    Raises:
      WaferError: Tiles that do not fit each other.
    """
    (rows, a_cols, *mesh), (b_rows, cols) = a.shape[-4:], b.shape[-4:-2]
    height, width = mesh
    whole = a_cols * width
    if b.shape[-2:] != a.shape[-2:] or whole != b_rows * height:
        raise WaferError(
            f"MeshGEMM: a {a.shape} and b {b.shape} contract {whole} and {b_rows * height} "
            f"columns and rows: cut them with gemm.tile_operands"
        )
    return layout_of((height, width), rows * height, whole, cols * width)


def tile_operands(a: jax.Array, b: jax.Array, mesh: tuple[int, int]) -> tuple[jax.Array, jax.Array]:
    """Cut dense matrices into tiles that MeshGEMM takes, padded with zeros.

    Args:
      a: [M, K].
      b: [K, N].
      mesh: (Y, X).

    Returns:
      a [m, k, Y, X] and b [k', n, Y, X] with k X = k' Y, a multiple of lcm(Y, X).

    Raises:
      WaferError: Matrices that do not fit each other.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise WaferError(f"MeshGEMM: cannot multiply {a.shape} by {b.shape}")
    pad = -a.shape[1] % math.lcm(*mesh)
    a, b = jnp.pad(a, ((0, 0), (0, pad))), jnp.pad(b, ((0, pad), (0, 0)))
    return tile_matrix(a, mesh), tile_matrix(b, mesh)


@lru_cache(maxsize=64)
def block_numbers(mesh: tuple[int, int], steps: int) -> np.ndarray:
    """[L, Y, X] int32: the block of A's columns and B's rows that each PE multiplies in a step."""
    height, width = mesh
    place = _first_places(steps, height)[:, None] + _first_places(steps, width)
    step = np.arange(steps)[:, None, None]
    return _block_at_place(steps, width)[(place - step) % steps].astype(np.int32)


def load(a: np.ndarray, b: np.ndarray, align: str = "chip") -> dict[str, np.ndarray]:
    """Tiles for the fabric, as the host loads them for ``program(..., align=align)``.

    Args:
      a: [m, k, Y, X] tiles of A.
      b: [k', n, Y, X] tiles of B.
      align: "host" skews the blocks here; "chip" leaves that to the program, and tells every PE
        how far its row and its column must move; "left" does so for A alone.

    Returns:
      a0, a1, ... [m, block_k, Y, X], b0, b1, ... [block_k, n, Y, X], and for those aligned on chip
      the counts a_shift and b_shift [1, Y, X] float32, in blocks.

    Raises:
      WaferError: Tiles that do not fit each other.
    """
    a, b = np.asarray(a), np.asarray(b)
    layout = layout_of_tiles(a, b)  # pyright: ignore[reportArgumentType]
    a_on_chip, b_on_chip = aligned_on_chip(align)
    steps, (height, width) = layout.steps, layout.mesh
    first_y, first_x = _first_places(steps, height), _first_places(steps, width)
    skew_a = 0 if a_on_chip else first_y[:, None]
    skew_b = 0 if b_on_chip else first_x
    a_rows, b_cols = rows_of_a(a, layout), columns_of_b(b, layout)
    at_place = _block_at_place(steps, width)
    tiles = {}
    for j in range(layout.a_blocks):
        number = at_place[(first_x + skew_a + j) % steps]
        number = np.broadcast_to(number, layout.mesh)[None, None]
        tiles[f"a{j}"] = np.take_along_axis(a_rows, number, axis=-1)
    for j in range(layout.b_blocks):
        number = at_place[(first_y[:, None] + skew_b + j) % steps]
        number = np.broadcast_to(number, layout.mesh)[None, None]
        tiles[f"b{j}"] = np.take_along_axis(b_cols, number, axis=-2)
    on_chip = {"a_shift": a_on_chip, "b_shift": b_on_chip}
    return tiles | {name: shift for name, shift in _shifts(layout).items() if on_chip[name]}


def aligned_on_chip(align: str) -> tuple[bool, bool]:
    """Whether A, and B, are aligned on chip.

    Raises:
      WaferError: Neither "chip", "left" nor "host".
    """
    if align not in ("chip", "left", "host"):
        raise WaferError(
            f'align={align!r}: choose "chip" (shifts on the mesh), "left" (those of A alone) or '
            f'"host" (loaded skewed)'
        )
    return align != "host", align == "chip"


def check_align(align: str) -> None:
    """Raise ``WaferError`` unless ``align`` is "chip" or "host"."""
    if align not in ("chip", "host"):
        raise WaferError(f'align={align!r}: choose "chip" (shifts on the mesh) or "host" (loaded)')


def rows_of_a(a, layout: Layout):
    """[m, a_blocks * block_k, Y, X] to [m, block_k, Y, L]: all blocks of each row."""
    rows, width = layout.tile_m, layout.mesh[1]
    blocks = a.reshape(rows, layout.a_blocks, layout.block_k, -1, width)
    return blocks.transpose(0, 2, 3, 4, 1).reshape(rows, layout.block_k, -1, layout.steps)


def columns_of_b(b, layout: Layout):
    """[b_blocks * block_k, n, Y, X] to [block_k, n, L, X]: all blocks of each column."""
    cols, (height, width) = layout.tile_n, layout.mesh
    blocks = b.reshape(layout.b_blocks, layout.block_k, cols, height, width)
    return blocks.transpose(1, 2, 3, 0, 4).reshape(layout.block_k, cols, layout.steps, width)


def join(tiles: jax.Array) -> jax.Array:
    """[..., r, c, Y, X] to [..., Y r, X c]."""
    *lead, rows, cols, height, width = tiles.shape
    blocks = jnp.moveaxis(tiles, (-2, -1), (-4, -2))
    return blocks.reshape(*lead, height * rows, width * cols)


def cut(dense: jax.Array, mesh: tuple[int, int]) -> jax.Array:
    """[..., Y r, X c] to [..., r, c, Y, X]."""
    *lead, rows, cols = dense.shape
    height, width = mesh
    blocks = dense.reshape(*lead, height, rows // height, width, cols // width)
    return jnp.moveaxis(blocks, (-4, -2), (-2, -1))


def block_words(size: int, dtype: str) -> int:
    """Words of a block of ``size`` elements."""
    return -(-size * DTYPE_BYTES[dtype] // WORD_BYTES)


def _shifts(layout: Layout) -> dict[str, np.ndarray]:
    """Blocks that each row of A and column of B moves: > 0 backward (even lines), < 0 forward.

    A line at place p must move back by p places or forward by L - p. Even PEs have the first half
    of the ring's places, odd ones the second, so each takes the shorter way.
    """
    height, width = layout.mesh
    rows, cols = (np.where(i % 2 == 0, i // 2, -(i + 1) // 2)
                  for i in (np.arange(height), np.arange(width)))  # fmt: skip
    shifts = {
        "a_shift": layout.b_blocks * rows[:, None] if layout.a_rounds else None,
        "b_shift": layout.a_blocks * cols if layout.b_rounds else None,
    }
    return {
        name: np.broadcast_to(shift.astype(np.float32), (1, *layout.mesh))
        for name, shift in shifts.items()
        if shift is not None
    }


def _first_places(steps: int, length: int) -> np.ndarray:
    """[length]: first of the L places that each PE of a line holds."""
    return steps // length * position(length)


def _block_at_place(steps: int, width: int) -> np.ndarray:
    """[L]: number of A's block at each place of a row before any move."""
    per_pe = steps // width
    return (order(width)[:, None] * per_pe + np.arange(per_pe)).reshape(-1)
