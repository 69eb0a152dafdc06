"""All-gather by multicast: every PE floods its line with its own block, on its own colour.

No core forwards anything, so it is as fast as the cores can take the words. But every router needs
a route for each PE of the line and every core a queue for each other PE: the all-gather of
WaferLLM's comparison (arXiv 2502.04563, section 5.1) with O(N) paths per core. On a WSE-2 its
input queues end at lines of 9 PEs and its colours at 24; `allgather_relayed` needs four colours.

All PEs take the blocks in the same order, as a multicast waits for the last of its receivers.
"""

import jax

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives import allgather_relayed, broadcast
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.line_blocks import (
    block,
    block_elements,
    collect,
    copy_cycles,
    copy_own,
)
from wafer_jax.collectives.lines import Lines, line_length
from wafer_jax.collectives.tiles import Axis
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program

_SEND, _RECEIVE = 1, 2
"""Threads: with one for both, PEs that still send would block each other."""


@checked
def program(hw: HardwareSpec, words: int, axis: Axis = "x", dtype: str = "float32") -> Program:
    """Give tile x [n] of PE i of a line to all its PEs, as block i of their tiles y [P, n].

    Args:
      hw: Machine and mesh.
      words: 32-bit words per block; n is ``words`` float32, or twice as many 16-bit elements.
      axis: Lines are rows ("x") or columns ("y").
      dtype: Element type.

    Raises:
      WaferError: Too few colours or input queues for the line; an unknown dtype; tiles over the
        SRAM budget.
    """
    builder = ProgramBuilder(hw, f"all-gather of {words} words along {axis}")
    lines = Lines(builder, axis)
    _check_routes(hw, lines.length, builder.name)
    elements = block_elements(words, dtype)
    x = builder.tile("x", (elements,), dtype)
    y = builder.tile("y", (lines.length, elements), dtype)
    for i in range(lines.length):
        role = lines.role(f"place {i}", [i])
        copy_own(role, x, block(y, i))
        if lines.length > 1:
            broadcast.paint(lines, i, i)
            role.thread(_SEND).send(i, x)
        for j in range(lines.length):
            if j != i:
                role.thread(_RECEIVE).receive(j, block(y, j))
    return builder.build(inputs=("x",), outputs=("y",))


multicast, relayed = program, allgather_relayed.program
"""Names of programs in ``wj.allgather``."""


def _check_routes(hw: HardwareSpec, length: int, name: str) -> None:
    for needed, available, what in (
        (length, hw.colors, "colours at every PE"),
        (length - 1, len(hw.input_queue_depths), "input queues at every PE"),
    ):
        if length > 1 and needed > available:
            raise WaferError(
                f"{name} needs {needed} {what} (e.g. PE y=0, x=0), {hw.name} has {available}: "
                f"use shorter lines, or allgather.relayed, which needs 4 colours"
            )


def apply(tiles: jax.Array, axis: Axis = "x") -> jax.Array:
    """Bulk level: [n, Y, X] to [P, n, Y, X], the same on every PE of a line.

    Raises:
      WaferError: An unknown axis.
    """
    return collect(tiles, axis)


@checked
def cost(hw: HardwareSpec, words: int, axis: Axis = "x") -> int:
    """Cycles: ``max(s, 1) + L + (P - 1) w + (P - 2) s``, then what the PEs wait for each other.

    L = 2 T_R + 1 + h (P - 1) is the way of the first block to the last PE, which then takes block
    after block, each with the set-up s. Exact for a line of two, and for up to three PEs with
    blocks of one word. Otherwise all streams want the same links, ramps and slots at once. The
    form counts two of these waits: up to a router's FIFO of each other block passes a link ahead
    of the block that the last PE takes first; and what a PE has not yet sent when words arrive
    shares its slot with them. What it leaves out (full input queues stop a multicast for all its
    receivers) is at most 32 % more, 4 % less where queues hold about as much as on the presets;
    input queues of one word behind deep routers were seen to make 13 % less, ramps and hops of
    many cycles 50 % more.
    """
    length, setup = line_length(hw, axis), hw.stream_setup_cycles
    if length == 1:
        return copy_cycles(hw, words)
    streams = (length - 1) * words + (length - 2) * setup
    ahead = (length - 1) * min(words - 1, hw.router_depth + hw.hop_cycles) if length > 2 else 0
    unsent = max(words - pass_cycles(hw, 1), 0)
    first = max(setup, 1) + pass_cycles(hw, length - 1)
    return max(first + streams + ahead + unsent, copy_cycles(hw, words))
