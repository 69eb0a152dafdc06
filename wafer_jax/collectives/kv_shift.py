"""Balanced upward shift of a KV cache over the rows of a mesh.

WaferLLM (OSDI'25), section 4.3: appending every new key and value to the last row would fill that
row and leave the others idle. Instead a new vector enters the last row, and when the last rows hold
more than the ones above them they pass their oldest vector one row up, all at once.

With n vectors on Y rows every row holds n // Y, and the last n mod Y rows one more. So fills differ
by at most one, the rows read from the top and each from its oldest are the vectors in order of
time, and no vector ever moves by more than one hop. (The paper lets rows pass when they hold as
many as the row above, so that the *first* rows hold one more. That is the mirror image, but in an
almost empty cache a new vector would have to run through all empty rows at once.)

Vector t lies in slot t mod S of whatever row holds it: a row's vectors are consecutive and at most
S, so no two want the same slot, and one that moves up keeps its slot. Nothing else moves in memory.

The program is built for a given length, which decides who passes what: a schedule per length reads
better than branches on a register. A row that is full receives into a tile of its own and copies
that into its slot once its own oldest vector has left, since both want the same slot.

Axes: S slots per row, Y and X of the mesh; T vectors of a prompt.
"""

import jax
import jax.numpy as jnp

from wafer_jax.builder import ProgramBuilder, RoleBuilder
from wafer_jax.collectives import kv_slots
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.errors import WaferError
from wafer_jax.events import Tile
from wafer_jax.hardware import RAMP, HardwareSpec, N, S
from wafer_jax.program import Program

_SENT = 0


def first_of_rows(length: jax.Array | int, rows: int) -> jax.Array:
    """Number of the oldest vector of each row when ``length`` are held: [rows + 1] int32.

    The last entry is ``length``, so consecutive differences are the rows' counts.
    """
    row = jnp.arange(rows + 1, dtype=jnp.int32)
    return row * (length // rows) + jnp.maximum(row - (rows - length % rows), 0)


def counts(length: jax.Array | int, rows: int) -> jax.Array:
    """[rows] int32: vectors that each row holds."""
    return jnp.diff(first_of_rows(length, rows))


def held(length: jax.Array | int, slots: int, rows: int) -> jax.Array:
    """[slots, rows] int32: number of the vector in each slot, or -1 where there is none."""
    first = first_of_rows(length, rows)[None]
    slot = jnp.arange(slots, dtype=jnp.int32)[:, None]
    number = first[:, :-1] + (slot - first[:, :-1]) % slots
    return jnp.where(number < first[:, 1:], number, -1)


def shift(cache: jax.Array, length: jax.Array, slot_axis: int = 0) -> jax.Array:
    """Make room in the last row: the rows that hold one more pass their oldest vector up.

    Args:
      cache: [..., Y, X] with the slots on ``slot_axis``; ``length`` vectors are in it.
      length: [] int32.
      slot_axis: Axis of the S slots.

    Returns:
      The cache; vector ``length`` may now be written to slot ``length % S`` of the last row.
    """
    rows, slots = cache.shape[-2], cache.shape[slot_axis]
    row = jnp.arange(1, rows, dtype=jnp.int32)
    slot = first_of_rows(length, rows)[1:-1] % slots
    passes = row >= rows - length % rows
    target = jnp.where(passes, row - 1, rows + row)  # off the mesh: dropped
    moved = cache[_at(cache, slot_axis, slot, row)]
    return cache.at[_at(cache, slot_axis, slot, target)].set(
        moved, mode="drop", unique_indices=True
    )


def append(cache: jax.Array, entry: jax.Array, length: jax.Array, slot_axis: int = 0) -> jax.Array:
    """Write vector ``length`` to the last row, which has room after `shift`.

    Args:
      cache: [..., Y, X] with the slots on ``slot_axis``.
      entry: [..., X], the cache's shape less the slots and the rows.
      length: [] int32.
      slot_axis: Axis of the S slots.
    """
    rows, slots = cache.shape[-2], cache.shape[slot_axis]
    last = jnp.full((1,), rows - 1, jnp.int32)
    where = _at(cache, slot_axis, jnp.reshape(length % slots, (1,)), last)
    return cache.at[where].set(entry[None].astype(cache.dtype))


def apply(cache: jax.Array, entry: jax.Array, length: jax.Array, slot_axis: int = 0) -> jax.Array:
    """Shift, then append: a cache of ``length`` vectors becomes one of ``length + 1``.

    A pure function of arrays for use inside a decode loop; `capacity` says when it is full, which
    cannot be checked here.

    Args:
      cache: [..., Y, X] with the slots on ``slot_axis``.
      entry: [..., X], the new vector, cut over the columns.
      length: [] int32, vectors held before.
      slot_axis: Axis of the S slots.
    """
    return append(shift(cache, length, slot_axis), entry, length, slot_axis)


def capacity(cache: jax.Array, slot_axis: int = 0) -> int:
    """Vectors that a cache can hold: Y rows of S slots."""
    return cache.shape[slot_axis] * cache.shape[-2]


def check_room(cache: jax.Array, length: int, slot_axis: int = 0) -> None:
    """Raise ``WaferError`` if a cache of ``length`` vectors is full."""
    if length >= (most := capacity(cache, slot_axis)):
        raise WaferError(
            f"the KV cache is full: {length} vectors in {cache.shape[-2]} rows of "
            f"{cache.shape[slot_axis]} slots ({most}): give it more slots or more rows"
        )


@checked
def program(
    hw: HardwareSpec, elements: int, length: int, slots: int, dtype: str = "float32"
) -> Program:
    """Shift tile cache [slots, elements] and append tile entry [elements] of the last row.

    Args:
      hw: Machine and mesh.
      elements: Elements of keys and values of one vector on one PE.
      length: Vectors held before.
      slots: S, per row.
      dtype: Element type.

    Raises:
      WaferError: A full cache, sizes below 1, slots that share a word, tiles over the SRAM budget.
    """
    height = hw.mesh[0]
    kv_slots.check_cache(elements, slots, length, height * slots, dtype)
    builder = ProgramBuilder(hw, f"KV shift before vector {length}")
    cache, entry = kv_slots.tiles(builder, elements, slots, dtype)
    arriving = builder.tile("arriving", (elements,), dtype)
    for y in range(height):
        role = builder.role(f"row {y}", at=(y, slice(None)))
        _row(role, builder, y, length, cache, arriving)
        if y == height - 1:
            thread = role.thread(0 if _is_full(y, length, height, slots) else 1)
            kv_slots.copy(thread, hw, entry, kv_slots.slot_tile(cache, length % slots))
    return builder.build(inputs=("cache", "entry"), outputs=("cache",))


def _row(
    role: RoleBuilder, builder: ProgramBuilder, y: int, length: int, cache: Tile, arriving: Tile
) -> None:
    """What a row passes up on thread 0, and takes from below on thread 1."""
    height, slots = builder.hw.mesh[0], cache.shape[0]
    first, passing = [int(f) for f in first_of_rows(length, height)], height - length % height
    full = _is_full(y, length, height, slots)
    if y >= passing:
        builder.route(y % 2, y, slice(None), RAMP, N)
        role.thread(0).send(y % 2, kv_slots.slot_tile(cache, first[y] % slots))
        if full and y + 1 < height:
            role.thread(0).signal(_SENT)
    if y + 1 < height and y + 1 >= passing:
        color, target = (y + 1) % 2, kv_slots.slot_tile(cache, first[y + 1] % slots)
        builder.route(color, y, slice(None), S, RAMP)
        role.thread(1).receive(color, arriving if full else target)
        if full:
            role.thread(1).wait(_SENT)
            kv_slots.copy(role.thread(1), builder.hw, arriving, target)


def _is_full(y: int, length: int, rows: int, slots: int) -> bool:
    """Whether a row holds as many vectors as it has slots."""
    return length // rows + (y >= rows - length % rows) == slots


@checked
def cost(hw: HardwareSpec, elements: int, length: int, slots: int, dtype: str = "float32") -> int:
    """Cycles of `program` with the same arguments.

    The shift, if some row passes a vector, and beside it the copy of the new one. In a full cache
    copies follow the words: that of the new vector in the last row, and of the vectors that come in
    in the other rows. Off by one cycle at most: without set-up (s = 0) the copy's start takes the
    slot from a word of a short vector; and in a full cache the last row's signal of a short one
    fits between its words.

    Raises:
      WaferError: As `program`, less the SRAM budget.
    """
    rows = hw.mesh[0]
    kv_slots.check_cache(elements, slots, length, rows * slots, dtype)
    copy, words = kv_slots.copy_cycles(hw, elements, dtype), block_words(elements, dtype)
    passing = length % rows
    if not passing:
        return copy
    alone = hw.stream_setup_cycles + pass_cycles(hw, 1) + words
    shifted = alone if passing == 1 else shift_cost(hw, elements, dtype=dtype)
    if not _is_full(rows - 1, length, rows, slots):
        return max(shifted, copy)
    if passing == 1:
        return max(alone, hw.stream_setup_cycles + words + copy)
    return shifted + 2 + copy


def shift_cost(hw: HardwareSpec, elements: int, *, dtype: str = "float32") -> int:
    """Cycles of one shift: every row sends ``elements`` per PE one hop up and receives as many.

    All rows move at once, so the cost does not depend on their number: set-up, then words that take
    the issue slot once to leave and once to arrive, or the latency of a hop if that is longer.

    Args:
      hw: The machine.
      elements: Elements of keys and values of one vector on one PE.
      dtype: Their type.
    """
    if hw.mesh[0] == 1:
        return 0
    words = block_words(elements, dtype)
    alone = pass_cycles(hw, 1) + words
    return hw.stream_setup_cycles + max(alone, 2 * words)


def _at(cache: jax.Array, slot_axis: int, slot: jax.Array, row: jax.Array) -> tuple:
    """Index of (slot[i], row[i]) for all i; i comes first in what it selects."""
    where: list = [slice(None)] * cache.ndim
    where[slot_axis], where[-2] = slot, row
    return tuple(where)
