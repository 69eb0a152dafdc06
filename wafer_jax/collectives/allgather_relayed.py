"""All-gather hop by hop: every core keeps the blocks that it receives and sends them on.

For when routes are exhausted: four colours and two input queues (`relays`) do for lines of any
length, where the multicast of `allgather` needs O(N). The price is WaferLLM's L property (arXiv
2502.04563, section 3): beta for each of up to P - 1 stages, and the issue slot twice for each
word, to keep it and to pass it on.

A line has two ends, so a thread may first send and then receive: nobody waits for itself.
"""

import jax

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.line_blocks import (
    block,
    block_elements,
    collect,
    copy_cycles,
    copy_own,
)
from wafer_jax.collectives.lines import Lines, line_length
from wafer_jax.collectives.relays import paint, relays
from wafer_jax.collectives.tiles import Axis
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program


@checked
def program(hw: HardwareSpec, words: int, axis: Axis = "x", dtype: str = "float32") -> Program:
    """Give tile x [n] of PE i of a line to all its PEs, as block i of their tiles y [P, n].

    Args:
      hw: Machine and mesh.
      words: 32-bit words per block; n is ``words`` float32, or twice as many 16-bit elements.
      axis: Lines are rows ("x") or columns ("y").
      dtype: Element type.

    Raises:
      WaferError: Too few colours; an unknown dtype; tiles over the SRAM budget.
    """
    builder = ProgramBuilder(hw, f"relayed all-gather of {words} words along {axis}")
    lines = Lines(builder, axis)
    elements = block_elements(words, dtype)
    x = builder.tile("x", (elements,), dtype)
    y = builder.tile("y", (lines.length, elements), dtype)
    paint(lines)
    for i in range(lines.length):
        role = lines.role(f"place {i}", [i])
        copy_own(role, x, block(y, i))
        for relay in relays(i, lines.length):
            thread = role.thread(relay.thread)
            if relay.send is not None:
                thread.send(relay.send, x)
            for j in relay.sources:
                assert relay.receive is not None
                thread.receive(relay.receive, block(y, j))
                if relay.send is not None:
                    thread.send(relay.send, block(y, j))
    return builder.build(inputs=("x",), outputs=("y",))


def apply(tiles: jax.Array, axis: Axis = "x") -> jax.Array:
    """Bulk level: [n, Y, X] to [P, n, Y, X], the same on every PE of a line.

    Raises:
      WaferError: An unknown axis.
    """
    return collect(tiles, axis)


@checked
def cost(hw: HardwareSpec, words: int, axis: Axis = "x") -> int:
    """Cycles: the larger of what the longest way and the busiest cores take.

    The longest way, for short blocks: ``max(s, 1) + (P - 2) (L + w + s) + L + w``, since a core
    passes a block on when it has all of it; L = 2 T_R + 1 + h. The busiest cores, in the middle:
    ``2 P w`` issues (each block once to keep it and once to pass it on, the own one twice), a
    set-up for every other block, and the hops that the last block then still has to go, each
    ``L + w`` but for the last one's w. Exact for a line of two. Otherwise both directions share
    the slot, and a core that sends does not receive, so that its neighbour waits: between 11 % less
    and 19 % more.
    """
    length, setup = line_length(hw, axis), hw.stream_setup_cycles
    if length == 1:
        return copy_cycles(hw, words)
    start, hop = max(setup, 1), pass_cycles(hw, 1) + words
    if length == 2:
        return max(start + hop, start + 2 * words, copy_cycles(hw, words))
    longest_way = (length - 2) * (hop + setup) + hop
    busiest = 2 * length * words + (length - 1) * setup + ((length - 1) // 2) * hop - words
    return max(start + longest_way, start + busiest, copy_cycles(hw, words))
