"""Tiles of one block per PE of a line, [P, n], as scatter, gather and all-to-all have them."""

import math

import jax
import jax.numpy as jnp

from wafer_jax.builder import RoleBuilder
from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.errors import WaferError
from wafer_jax.events import Kernel, Slice, Tile
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES, HardwareSpec

COPY = Kernel(name="copy", fn=lambda block: block)
"""``Compute(COPY, inputs=(block,), outputs=(other,), ...)``: words that need not travel."""

OWN, STREAM = range(2)
"""Threads of a role that copies its own block beside its streams."""


def block_elements(words: int, dtype: str) -> int:
    """Elements of so many words.

    Raises:
      WaferError: An unknown element type.
    """
    if dtype not in DTYPE_BYTES:
        raise WaferError(f"dtype {dtype!r} is none of {', '.join(DTYPE_BYTES)}")
    return words * (WORD_BYTES // DTYPE_BYTES[dtype])


def block(tile: Tile, i: int) -> Tile:
    """Block i of a tile [P, n], as a tile."""
    words = tile.words // tile.shape[0]
    name, offset = f"{tile.name}[{i}]", tile.offset + i * words
    return Tile(name=name, offset=offset, shape=tile.shape[1:], dtype=tile.dtype)


def blocks(tile: Tile, start: int, stop: int) -> Slice:
    """Blocks ``start .. stop - 1`` of a tile [P, n]."""
    words = tile.words // tile.shape[0]
    return tile.slice(start * words, (stop - start) * words)


def copy_own(role: RoleBuilder, source: Tile, target: Tile) -> None:
    """Copy a block within the SRAM, beside the role's streams."""
    cycles = copy_cycles(role.hw, source.words)
    role.thread(OWN).compute(COPY, (source,), (target,), cycles)


def copy_cycles(hw: HardwareSpec, words: int) -> int:
    """Cycles of `copy_own` of so many words: one vector instruction."""
    return max(1, math.ceil(hw.copy_cycles(words, "float32")))


def check_blocks(tiles: jax.Array, length: int) -> None:
    """Raise ``WaferError`` unless tiles are [P, n, Y, X] on a line of P PEs."""
    if tiles.ndim != 4 or tiles.shape[0] != length:
        raise WaferError(f"tiles {tiles.shape} are not [{length}, n, Y, X]: one block for each PE")


def collect(tiles: jax.Array, axis: Axis) -> jax.Array:
    """Blocks [n, Y, X] of all PEs of a line on each of them, [P, n, Y, X].

    Raises:
      WaferError: An unknown axis.
    """
    where = axis_index(axis)
    line = jnp.expand_dims(jnp.moveaxis(tiles, where, 0), where)
    return jnp.broadcast_to(line, (tiles.shape[where], *tiles.shape))
