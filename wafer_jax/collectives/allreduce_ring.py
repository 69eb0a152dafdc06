"""Ring allreduce: reduce-scatter, then all-gather, over a ring that lies on each line.

    0 -> 1 -> 2 -> ... -> P - 1 -> 0        the way home passes all routers, no cores

The words are cut into P chunks (the first B mod P of them one word longer). In P - 1 rounds every
PE passes a chunk on and adds one that it receives to its own; then one PE has the sum of each
chunk, and in P - 1 more rounds the sums go round. The ring that WaferLLM compares with (arXiv
2502.04563, section 6.1: ``O[(2 alpha + beta) N]``, O(1) routes) and the simple one of Luczynski et
al., HPDC'24. Folded as in `interleave` no link would be longer than two hops, but a lap is
2 (P - 1) hops long either way, so the longest path is shorter by one hop at most.

A chunk is passed on when all of it has arrived. One thread sends and another receives, because on
a ring a core that first sends all waits for itself as soon as a chunk is longer than the queues.
Hops alternate two colours, the way home has a third. Every position works on other chunks, so the
event tables grow as P^2.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.builder import ProgramBuilder, RoleBuilder, ThreadBuilder
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.line_blocks import block_elements
from wafer_jax.collectives.lines import Lines, line_length
from wafer_jax.collectives.parts import Part, add_roles, nothing
from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.collectives.tree import check_colors
from wafer_jax.collectives.tree_bulk import Op, combination
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.events import Tile
from wafer_jax.hardware import RAMP, WORD_BYTES, HardwareSpec
from wafer_jax.program import Program

COLORS = 3
"""Two for hops to the next PE, one for the way home."""

_SEND, _RECEIVE = range(2)
"""Threads."""

_RECEIVED, _START = range(2)
"""Semaphores."""


def chunk_words(words: int, length: int) -> list[int]:
    """Words of each of ``length`` chunks, the first ones one word longer; 0 if there are few."""
    size, longer = divmod(words, length)
    return [size + (c < longer) for c in range(length)]


@checked
def program(hw: HardwareSpec, words: int, axis: Axis = "x", dtype: str = "float32") -> Program:
    """Sum tile x along every line, in place, on every PE.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE; x is [words] float32, or [2 words] of a 16-bit type.
      axis: Lines are rows ("x") or columns ("y").
      dtype: Element type.

    Raises:
      WaferError: An unknown dtype, too few colours, or tiles over the SRAM budget.
    """
    builder = ProgramBuilder(hw, f"ring allreduce of {words} words along {axis}")
    x = builder.tile("x", (block_elements(words, dtype),), dtype)
    add_to(builder, x, axis)
    return builder.build(inputs=("x",), outputs=("x",))


def add_to(
    builder: ProgramBuilder,
    tile: Tile,
    axis: Axis,
    before: Callable[[ThreadBuilder], object] = nothing,
) -> None:
    """Add the allreduce of ``tile`` to a program: routes, and one role per position on a line.

    Args:
      builder: The program, with no other roles.
      tile: What is summed, in place.
      axis: Lines are rows ("x") or columns ("y").
      before: Appends what every PE does first.

    Raises:
      WaferError: Too few colours.
    """
    add_roles(builder, axis, parts_of(builder, tile, axis)[0], before)


def parts_of(
    builder: ProgramBuilder, tile: Tile, axis: Axis, first_color: int = 0
) -> tuple[list[Part], int]:
    """Paint the routes of `add_to`; what the positions do, and the next free colour."""
    lines = Lines(builder, axis)
    if lines.length == 1:
        return [Part("alone", [0], lambda role: None)], first_color
    check_colors(builder.hw, first_color + COLORS, builder.name)
    _paint(lines, first_color)
    emit = partial(_emit, tile=tile, length=lines.length, first_color=first_color)
    parts = [Part(f"place {i}", [i], partial(emit, place=i)) for i in range(lines.length)]
    return parts, first_color + COLORS


def _paint(lines: Lines, first_color: int) -> None:
    last = lines.length - 1
    for i in range(last):
        color = first_color + i % 2
        lines.route(color, [i], RAMP, lines.forward)
        lines.route(color, [i + 1], lines.back, RAMP)
    home = first_color + COLORS - 1
    lines.route(home, [last], RAMP, lines.back)
    lines.route(home, range(1, last), lines.forward, lines.back)
    lines.route(home, [0], lines.forward, RAMP)


def _emit(role: RoleBuilder, place: int, tile: Tile, length: int, first_color: int) -> None:
    """The rounds of one place: round r passes chunk place - r on, and takes the one before it."""

    def sends_on(i: int) -> int:
        return first_color + (COLORS - 1 if i == length - 1 else i % 2)

    sizes = chunk_words(tile.words, length)
    starts = np.cumsum([0, *sizes]).tolist()
    send, receive = role.thread(_SEND), role.thread(_RECEIVE)
    send.signal(_START)
    receive.wait(_START)
    for r in range(2 * (length - 1)):
        passed, taken = (place - r) % length, (place - 1 - r) % length
        if sizes[passed]:
            if r:
                send.wait(_RECEIVED)
            send.send(sends_on(place), tile.slice(starts[passed], sizes[passed]))
        if sizes[taken]:
            into = tile.slice(starts[taken], sizes[taken])
            combine = "add" if r < length - 1 else "copy"
            receive.receive(sends_on((place - 1) % length), into, combine).signal(_RECEIVED)
    if sizes[(place + 2) % length]:
        send.wait(_RECEIVED)


def apply(tiles: jax.Array, axis: Axis = "x", op: Op = "add") -> jax.Array:
    """Bulk level: the same additions in the same order.

    Args:
      tiles: [l, ..., Y, X] of l elements per PE.
      axis: Lines are rows ("x") or columns ("y").
      op: "add" or "max".

    Returns:
      [l, ..., Y, X], the same on every PE of a line.

    Raises:
      WaferError: An unknown axis or op.
    """
    combine = combination(op, tiles.dtype)
    where = tiles.ndim + axis_index(axis)
    length, per_word = tiles.shape[where], WORD_BYTES // tiles.dtype.itemsize
    sizes = chunk_words(-(-tiles.shape[0] // per_word), length)
    first = np.repeat(np.repeat(np.arange(length), sizes), per_word)[: tiles.shape[0]]
    first = first.reshape(-1, *(1,) * (tiles.ndim - 1))

    def of_place(r: int | jax.Array) -> jax.Array:
        """What is r places behind the first PE of each element's chunk."""
        return jnp.take_along_axis(tiles, jnp.asarray((first + r) % length), where)

    total = lax.fori_loop(1, length, lambda r, sum_: combine(of_place(r), sum_), of_place(0))
    return jnp.broadcast_to(total, tiles.shape)


@checked
def cost(hw: HardwareSpec, words: int, axis: Axis = "x") -> int:
    """Cycles: ``max(1 + s, 2) + sum(L) + 2 (P - 1) (w + 2) + (2 P - 3) s``, the longest chunk's.

    Each of the 2 (P - 1) rounds takes a chunk of w = B / P words over a link of latency
    ``L = 2 T_R + 1 + h d``, two cycles to tell the sending thread, and the set-up s. The links of
    all rounds are 4 P - 6 hops long (fewer for the two chunks that come home in their last two
    rounds). So it is Luczynski et al.'s ``2 (P - 1) B / P + 4 P - 6 + 2 (P - 1) (2 T_R + 1)``
    plus the control.

    Exact if P divides B and w is at most the latency to the next PE. Longer chunks still leave
    a PE when the next arrives, both through its one issue slot, so that a round takes 2 w in place
    of L + w, and up to two cycles more where the control of one meets the words of the other.
    Where P does not divide B, shorter chunks catch up with longer ones, which then share their
    slots: between 4 % less and 18 % more cycles than this.
    """
    length, setup = line_length(hw, axis), hw.stream_setup_cycles
    if length == 1:
        return 0
    latency = [pass_cycles(hw, 1)] * (length - 1) + [pass_cycles(hw, length - 1)]
    sizes = chunk_words(words, length)

    def path(chunk: int) -> int:
        rounds = [latency[(chunk + r) % length] for r in range(2 * (length - 1))]
        passing = sum(max(late, sizes[chunk - 1]) + sizes[chunk] + 2 for late in rounds)
        return passing + (len(rounds) - 1) * setup

    return max(1 + setup, 2) + max(path(c) for c, size in enumerate(sizes) if size)
