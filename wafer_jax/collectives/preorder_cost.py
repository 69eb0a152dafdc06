"""Cycles of a pre-order tree: the cost model of Luczynski et al., and the tree's critical path.

Symbols: B words, P positions, R ``ramp_cycles``, h ``hop_cycles``, s ``stream_setup_cycles``.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from wafer_jax.collectives.preorder_tree import Parents, Shape, children_of
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.hardware import HardwareSpec
from wafer_jax.plmr import plmr


def model_cycles(hw: HardwareSpec, words: int, length: int, shape: Shape) -> float:
    """``max(C B, E B / N + L) + (2 R + 1) D`` with N = L = P - 1: Luczynski et al., HPDC'24.

    The model knows neither s nor h, nor the control wavelets of a tree.
    """
    if length == 1:
        return 0.0
    links = length - 1
    moved = max(shape.contention * words, shape.energy * words / links + links)
    return moved + plmr(hw).beta_cycles * shape.depth


class _Message(NamedTuple):
    """When a child's words come, in cycles.

    Attributes:
      first: The first word can be received.
      free: The next sibling's words may follow through the child's router.
    """

    first: int
    free: int


def critical_path_cycles(hw: HardwareSpec, words: int, parents: Parents) -> int:
    """Cycles until the root has the sum, each link taken to be free when a word comes.

    A vertex passes its last child's first word on ``2 R + 1 + h d`` cycles (d links) after it came,
    but not before it has received its other children's words and been set up; a child's words
    leave the next router not before the child's control wavelet has left the child's.
    """
    children = children_of(parents)
    start = [hw.stream_setup_cycles] * len(parents)
    for parent in reversed(range(len(parents))):
        if children[parent]:
            start[parent] = _last_stream(hw, words, parent, children[parent], start)
    return start[0] + words if len(parents) > 1 else 0


def _last_stream(
    hw: HardwareSpec, words: int, parent: int, siblings: Sequence[int], start: Sequence[int]
) -> int:
    """Cycle in which a vertex issues the first word of its last stream."""
    ready, free = hw.stream_setup_cycles, 0
    issued = 0
    for before, child in pairwise([parent, *siblings]):
        message = _message(hw, words, before, child, parent, start[child], free)
        issued = max(ready, message.first)
        ready, free = issued + words + hw.stream_setup_cycles, message.free
    return issued


def _message(
    hw: HardwareSpec, words: int, before: int, child: int, parent: int, start: int, free: int
) -> _Message:
    """Follow a child's words to its parent; ``before`` is the sibling before it, or the parent."""
    into_router = 1 + hw.ramp_cycles
    reaches = start + into_router + hw.hop_cycles * (child - before - 1)
    leaves = reaches if before == parent else max(reaches, free)
    last = start + into_router + leaves - reaches + words - 1
    # Words held up fill the router's FIFO, and then hold up the thread and its control wavelet.
    capacity = hw.router_depth + hw.output_queue_depths[0] + into_router
    issued = start + words - 1
    if words > capacity:
        issued = max(issued, last - capacity + 1)
    handed_over = max(last + 1, issued + 1 + hw.stream_setup_cycles + into_router)
    first = leaves + pass_cycles(hw, before + 1 - parent) - into_router
    return _Message(first, handed_over + 1)
