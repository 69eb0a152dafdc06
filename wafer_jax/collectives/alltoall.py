"""All-to-all: every PE of a line has a block for each other one.

Each PE sends what it has for one side in one bundle to its neighbour (`relays`). A core takes its
own block out of every bundle that comes and lets the rest pass through, nothing is stored: four
colours and two input queues for a line of any length. Switches or a colour for each PE would spare
the cores, but turns of P senders or O(N) routes; and the links of the middle, which carry P^2 / 4
blocks each way whatever the schedule, are as busy as these cores' slots to a factor of two.

A bundle is sent in one stream and received in two, so a run in packets of several words needs a
packet that divides the words of a block (docs/semantics.md, section 7).
"""

import jax
import jax.numpy as jnp

from wafer_jax.builder import ProgramBuilder, RoleBuilder
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.line_blocks import (
    block,
    block_elements,
    blocks,
    check_blocks,
    copy_cycles,
    copy_own,
)
from wafer_jax.collectives.lines import Lines, line_length
from wafer_jax.collectives.relays import Relay, paint, relays
from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.events import Tile
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program


@checked
def program(hw: HardwareSpec, words: int, axis: Axis = "x", dtype: str = "float32") -> Program:
    """Give block i of tile x [P, n] of PE j to PE i of the line, as block j of its y [P, n].

    Args:
      hw: Machine and mesh.
      words: 32-bit words per block; n is ``words`` float32, or twice as many 16-bit elements.
      axis: Lines are rows ("x") or columns ("y").
      dtype: Element type.

    Raises:
      WaferError: Too few colours; an unknown dtype; tiles over the SRAM budget.
    """
    builder = ProgramBuilder(hw, f"all-to-all of {words} words along {axis}")
    lines = Lines(builder, axis)
    shape = (lines.length, block_elements(words, dtype))
    x, y = builder.tile("x", shape, dtype), builder.tile("y", shape, dtype)
    paint(lines)
    for i in range(lines.length):
        role = lines.role(f"place {i}", [i])
        copy_own(role, block(x, i), block(y, i))
        for relay in relays(i, lines.length):
            _emit(role, relay, x, y, words)
    return builder.build(inputs=("x",), outputs=("y",))


relayed = program
"""The name of `program` in ``wj.alltoall.relayed(...)``."""


def _emit(role: RoleBuilder, relay: Relay, x: Tile, y: Tile, words: int) -> None:
    """The own bundle, then one from each source: blocks lie in a bundle in the order of the line.

    So a core's own block is the first of what comes forward, and the last of what comes back.
    """
    thread = role.thread(relay.thread)
    passing = len(relay.targets) * words
    if relay.send is not None:
        thread.send(relay.send, blocks(x, min(relay.targets), max(relay.targets) + 1))
    for j in relay.sources:
        assert relay.receive is not None
        own_first = relay.sources.step < 0
        if own_first:
            thread.receive(relay.receive, block(y, j))
        if relay.send is not None:
            thread.forward(relay.receive, relay.send, words=passing)
        if not own_first:
            thread.receive(relay.receive, block(y, j))


def apply(tiles: jax.Array, axis: Axis = "x") -> jax.Array:
    """Bulk level: [P, n, Y, X] to [P, n, Y, X], blocks and places on the line exchanged.

    Raises:
      WaferError: Another number of blocks, or an unknown axis.
    """
    where = axis_index(axis)
    check_blocks(tiles, tiles.shape[where])
    return jnp.swapaxes(tiles, 0, where)


@checked
def cost(hw: HardwareSpec, words: int, axis: Axis = "x") -> int:
    """Cycles: ``max(s, 1) + w max_i [(P - 1) + i (P - i) + (P - 1 - i) (i + 1)] + L (P - 1) / 2``.

    The issues of the busiest core i, in the middle: it sends its own P - 1 blocks, and takes or
    passes on P - i blocks of each of the i PEs behind it, i + 1 of each of those ahead, about
    P^2 / 2 in all; then L = 2 T_R + 1 + h for each hop to the end of the line. Or, for short
    blocks, the longest way ``max(s, 1) + (P - 1) (L + w) + (P - 2) s``: a core takes its own block,
    and sets up the next stream, before the rest of a bundle passes. Exact for a line of two.
    Otherwise both directions share the slots, set-ups are hidden only while the other direction
    has words, and a core whose queue is full stops those behind it: between 6 % less and 34 %
    more on lines of up to 24 PEs, and up to two thirds more with hops of 16 cycles.
    """
    length, setup = line_length(hw, axis), hw.stream_setup_cycles
    if length == 1:
        return copy_cycles(hw, words)
    start, late = max(setup, 1), pass_cycles(hw, 1)
    blocks_of_core = max(
        length - 1 + i * (length - i) + (length - 1 - i) * (i + 1) for i in range(length)
    )
    busiest = blocks_of_core * words + (length - 1) // 2 * late
    longest_way = (length - 1) * (late + words) + (length - 2) * setup
    return max(start + busiest, start + longest_way, copy_cycles(hw, words))
