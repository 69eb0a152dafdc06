"""Switches by which the PEs of a way use one colour in turn, with no core between two of them.

*Collect*: the words of all PEs of a way run to its head. The nearest PE sends first, while the
words of those behind it wait in their routers; a control wavelet behind its last word turns its
own router from "my core" to "those behind me" and passes the others without effect.

*Deal*: the head sends a block for each PE of a way, nearest first. The router of a PE delivers to
its core until a control wavelet turns it to "those behind me", one such wavelet after each block.

Either takes a single colour, and a position changes one side of a route only, as a WSE-2 demands.
Sources: switch positions and control wavelets of the SDK documentation; Luczynski et al., HPDC'24
(arXiv 2404.15888), where routers accept one sender after another in the same way.
"""

from collections.abc import Sequence

from wafer_jax.builder import ThreadBuilder
from wafer_jax.collectives.lines import Lines
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.events import Slice, Tile
from wafer_jax.hardware import RAMP, HardwareSpec


def paint_collect(lines: Lines, color: int, way: Sequence[int], head: int) -> None:
    """Route a colour from the PEs of a way, given nearest first, to its head, a direction."""
    *nearer, farthest = way
    behind = lines.back if head == lines.forward else lines.forward
    if nearer:
        lines.switch(color, nearer, (RAMP, head), (behind, head))
    lines.route(color, [farthest], RAMP, head)


def paint_deal(lines: Lines, color: int, way: Sequence[int], head: int) -> None:
    """Route a colour from the head, a direction, to the PEs of a way, given nearest first."""
    *nearer, farthest = way
    behind = lines.back if head == lines.forward else lines.forward
    if nearer:
        lines.switch(color, nearer, (head, RAMP), (head, behind))
    lines.route(color, [farthest], head, RAMP)


def send_turns(thread: ThreadBuilder, color: int, blocks: Sequence[Slice | Tile]) -> None:
    """Send blocks, a control wavelet between two of them."""
    for i, block in enumerate(blocks):
        if i:
            thread.control(color, "advance")
        thread.send(color, block)


def deal_cycles(hw: HardwareSpec, words: int, count: int) -> int:
    """Cycles in which the head issues ``count`` blocks, with set-ups and control wavelets."""
    setup = hw.stream_setup_cycles
    return count * (setup + words) + (count - 1) * (setup + 1) if count else 0


def collect_cycles(hw: HardwareSpec, words: int, count: int, setup: int) -> int:
    """Cycles until the core next to the head has the blocks of ``count`` PEs, one event for each.

    The nearest PE's block, and its control wavelet with another set-up that nothing hides; then in
    each turn w words, behind a control wavelet and the hop that lies between two senders. A block
    longer than the sender's queue hides only as much of its control wavelet's set-up as the queue
    holds words.

    Args:
      hw: The machine.
      words: Words of a block.
      count: PEs of the way.
      setup: Set-up of the receiver for each block, 0 if it receives all blocks in one event.
    """
    if not count:
        return 0
    sender, turn = hw.stream_setup_cycles, 1 + hw.hop_cycles
    queued = hw.router_depth + hw.output_queue_depths[0] - 1
    shown = max(sender - queued, 0) if words > queued + 2 + hw.ramp_cycles else 0
    first = sender + pass_cycles(hw, 1) + words
    if count == 1:
        return first
    later = max(turn + shown, setup)
    return first + max(turn + sender, setup) + words + (count - 2) * (later + words)
