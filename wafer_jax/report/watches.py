"""Values of a program to watch, read in the compiled loop.

They are a table of a fixed size that the loop takes as an argument, so that a new watch compiles
nothing. Axes: W watched words, n lanes.
"""

from enum import IntEnum
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.errors import WaferError
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES
from wafer_jax.mesh_state import WaferState
from wafer_jax.program import Program
from wafer_jax.step import fifo as f
from wafer_jax.step_spec import StepSpec

MAX_WATCHES = 64


class Source(IntEnum):
    """Where a watched word lies."""

    UNUSED = 0
    REGISTER = 1
    SRAM = 2
    ROUTER = 3
    INPUT = 4


class Watched(NamedTuple):
    """One watched value.

    Attributes:
      name: For people.
      source: Where it lies.
      lane: Its PE.
      number: Register, SRAM word or colour index.
      dtype: How to read the word.
      half: Which 16-bit element of it.
      since: Cycle in which it was first looked at.
    """

    name: str
    source: Source
    lane: int
    number: int
    dtype: str = "int32"
    half: int = 0
    since: int = 0

    def decode(self, word: np.ndarray) -> int | float:
        """The value that a word, [] uint32, holds."""
        if DTYPE_BYTES.get(self.dtype, WORD_BYTES) == WORD_BYTES:
            return word.view(np.dtype(self.dtype)).item()
        bits = (word >> np.uint32(16 * self.half)).astype(np.uint16)
        return float(bits.view(jnp.dtype(self.dtype)))


def watch_table(watches: list[Watched]) -> jax.Array:
    """[3, W] int32: source, lane, number."""
    rows = [(w.source, w.lane, w.number) for w in watches]
    table = np.zeros((3, MAX_WATCHES), np.int32)
    table[:, : len(rows)] = np.array(rows, np.int32).reshape(-1, 3).T
    return jnp.asarray(table)


def watched_words(spec: StepSpec, state: WaferState, table: jax.Array) -> jax.Array:
    """[W] uint32: the watched words, 0 where there is none."""
    source, lane, number = table
    out = jnp.zeros(source.shape, jnp.uint32)
    if state.registers is not None:
        held = state.registers[jnp.clip(number, 0, spec.registers - 1), lane]
        out = jnp.where(source == Source.REGISTER, lax.bitcast_convert_type(held, jnp.uint32), out)
    if state.memory is not None:
        word = state.memory.sram[jnp.where(source == Source.SRAM, number, 0) * spec.lanes + lane]
        out = jnp.where(source == Source.SRAM, word, out)
    queues = [(Source.ROUTER, c, q) for c, q in enumerate(state.router)]
    queues += [(Source.INPUT, c, q) for c, q in zip(spec.delivered, state.input, strict=True)]
    for which, c, q in queues:
        words = f.total(spec.fifo, q[lane]).astype(jnp.uint32)
        out = jnp.where((source == which) & (number == c), words, out)
    return out


def tile_words(
    program: Program, y: int, x: int, lane: int, name: str, elements: slice
) -> list[Watched]:
    """Elements of a PE's tile, in the order of its memory.

    Raises:
      WaferError: The PE has no such tile, or the slice no element of it.
    """
    tile = program.role_at(y, x).tiles.get(name)
    if tile is None:
        raise WaferError(f"{program.name}: PE (y={y}, x={x}) has no tile {name!r}")
    try:
        numbers = range(tile.size)[elements]
    except (TypeError, ValueError):
        raise WaferError(f"{elements}: give whole numbers, and a step other than 0") from None
    if not numbers:
        raise WaferError(f"{program.name}: tile {name!r} has {tile.size} elements, none chosen")
    per_word = WORD_BYTES // DTYPE_BYTES[tile.dtype]
    return [
        Watched(
            f"{name}[{e}] ({y}, {x})", Source.SRAM, lane, tile.offset + e // per_word, tile.dtype,
            e % per_word,
        )
        for e in numbers
    ]  # fmt: skip
