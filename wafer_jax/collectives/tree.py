"""Reduction trees on a line: phases of groups, in each group two half-chains that meet at a root.

    position   0 -> 1 -> 2 <- 3 <- 4      5 -> 6 -> 7 <- 8 <- 9       phase 1, groups of 5
                         2 ---------------------> 7                   phase 2, one group of roots

A phase cuts the line of those who still hold a part of the sum into groups; afterwards only the
groups' roots hold one, and they are the line of the next phase. The far end of a half-chain sends
its words; every other member adds its own to what passes; the root adds first the words of the
shorter half-chain to its own (of the lower one if both are equally long), then the other's. Chain,
two-phase and K-tree differ in how they cut.

Colours: a PE cannot receive and send on one colour, so a half-chain alternates two. The two sides
of a group and the phases have their own, because a root receives from all of them: a K-tree's root
listens on up to 2 K colours. Routers between two roots pass their words on without the cores.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from wafer_jax.builder import ThreadBuilder
from wafer_jax.collectives.lines import Lines
from wafer_jax.errors import WaferError
from wafer_jax.events import Tile
from wafer_jax.hardware import RAMP, HardwareSpec


@dataclass(frozen=True)
class Group:
    """``size`` consecutive members of a line, the one at ``root`` collects."""

    size: int
    root: int

    def chains(self) -> list[range]:
        """Members of each half-chain from its far end on, in the order the root adds them."""
        low, high = range(self.root), range(self.size - 1, self.root, -1)
        return [c for c in sorted((low, high), key=len) if c]


Phases = tuple[tuple[Group, ...], ...]
"""The groups of every phase, in the order of the line."""


def whole(length: int, root: int) -> Phases:
    """One phase of one group: a chain."""
    return ((Group(length, root),),)


def members(phases: Phases, length: int) -> Iterator[list[tuple[Group, list[int]]]]:
    """Each phase's groups with the positions of their members."""
    line = list(range(length))
    for phase in phases:
        starts = [0]
        for group in phase:
            starts.append(starts[-1] + group.size)
        placed = [(g, line[a:b]) for g, (a, b) in zip(phase, pairwise(starts), strict=True)]
        yield placed
        line = [positions[group.root] for group, positions in placed]


def final_root(phases: Phases, length: int) -> int:
    """Position that holds the whole sum in the end."""
    *_, last = members(phases, length)
    ((group, positions),) = last
    return positions[group.root]


class Step(NamedTuple):
    """One stream op of a member on its tile: send, add and pass on, or (out is None) add."""

    color_in: int | None
    color_out: int | None


@dataclass(frozen=True)
class Tree:
    """A tree painted on lines.

    Attributes:
      positions: Positions that take the same steps, by these steps.
      root: Position of the sum.
      next_color: First colour number that is still free.
    """

    positions: dict[tuple[Step, ...], list[int]]
    root: int
    next_color: int


def paint(lines: Lines, hw: HardwareSpec, phases: Phases, first_color: int, name: str) -> Tree:
    """Paint the routes of a tree and list what each position does.

    Raises:
      WaferError: More colours than the machine has.
    """
    chains = list(_chains(phases, lines.length))
    used = sorted({key for chain in chains for key in _hops(*chain)})
    color_of = {key: first_color + i for i, key in enumerate(used)}
    next_color = first_color + len(used)
    check_colors(hw, next_color, name)
    routes: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    steps: dict[int, list[Step]] = {i: [] for i in range(lines.length)}
    for phase, order, nodes in chains:
        hops = [color_of[key] for key in reversed(_hops(phase, order, nodes))]
        for node, color_in, color_out in zip(nodes, [None, *hops], [*hops, None], strict=True):
            steps[node].append(Step(color_in, color_out))
        for color, start, end in zip(hops, nodes, nodes[1:], strict=False):
            _add_hop(routes, lines, color, start, end)
    for (color, rx, tx), positions in routes.items():
        lines.route(color, positions, rx, tx)
    together: dict[tuple[Step, ...], list[int]] = defaultdict(list)
    for position, taken in steps.items():
        together[tuple(taken)].append(position)
    return Tree(dict(together), final_root(phases, lines.length), next_color)


def needs(phases: Phases, length: int) -> tuple[int, list[int]]:
    """Colours of a tree's routes, and on how many of them every position receives."""
    heard: list[set[tuple[int, int, int]]] = [set() for _ in range(length)]
    used = set()
    for phase, order, nodes in _chains(phases, length):
        hops = _hops(phase, order, nodes)
        used.update(hops)
        for node, hop in zip(reversed(nodes), hops, strict=False):
            heard[node].add(hop)
    return len(used), [len(hops) for hops in heard]


def _chains(phases: Phases, length: int) -> Iterator[tuple[int, int, list[int]]]:
    """Every half-chain: its phase, its place in the root's order, its positions to the root."""
    for phase, placed in enumerate(members(phases, length)):
        for group, positions in placed:
            for order, chain in enumerate(group.chains()):
                yield phase, order, [positions[i] for i in (*chain, group.root)]


def _hops(phase: int, order: int, nodes: list[int]) -> list[tuple[int, int, int]]:
    """What has a colour of its own, from the hop into the root on, whose parity is 0."""
    return [(phase, order, i % 2) for i in range(len(nodes) - 1)]


def _add_hop(
    routes: dict[tuple[int, int, int], list[int]], lines: Lines, color: int, start: int, end: int
) -> None:
    ahead, behind = (lines.forward, lines.back) if end > start else (lines.back, lines.forward)
    routes[color, RAMP, ahead].append(start)
    routes[color, behind, ahead] += range(min(start, end) + 1, max(start, end))
    routes[color, behind, RAMP].append(end)


def emit(thread: ThreadBuilder, steps: Sequence[Step], tile: Tile) -> None:
    """Append a position's steps on ``tile`` to a thread."""
    for color_in, color_out in steps:
        if color_in is None:
            assert color_out is not None
            thread.send(color_out, tile)
        elif color_out is None:
            thread.receive(color_in, tile, "add")
        else:
            thread.forward(color_in, color_out, tile)


def check_colors(hw: HardwareSpec, needed: int, name: str) -> None:
    """Raise ``WaferError`` if a collective needs more colours than there are."""
    if needed > hw.colors:
        raise WaferError(
            f"{name} needs {needed} colours, {hw.name} has {hw.colors}: reduce in fewer phases"
        )


def check_queues(hw: HardwareSpec, needed: int, name: str) -> None:
    """Raise ``WaferError`` if some PE receives more colours than it has input queues."""
    if needed > (available := len(hw.input_queue_depths)):
        raise WaferError(
            f"{name} needs {needed} input queues at its root, {hw.name} has {available}: "
            f"reduce in fewer phases"
        )
