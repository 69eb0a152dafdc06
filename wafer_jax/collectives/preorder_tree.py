"""Pre-order reduction trees on a line: every tree whose messages keep the order of the line.

    position   0   1   2   3   4   5        parents (-1, 0, 1, 1, 0, 4)
               0 <-1 <-2   |   |   |        1 adds 2's words, then 3's, and passes the sum on
                   1 <-----3   |   |        0 adds 1's words, then 4's
               0 <-------------4 <-5

Positions number the vertices in pre-order: the root is 0, a subtree is a run of positions, and a
vertex adds its children's words in increasing order. The words of its last child are added on
their way to the parent, so that they are not stored. Star, chain, binary tree and two-phase are
such trees (Luczynski et al., HPDC'24, arXiv 2404.15888).

Colours: all children of a vertex use one, so a PE listens on one and sends on another. A child's
router first takes words from its own PE and, after a control wavelet behind the last of them, from
the next sibling, whose words wait there until then. Such words run through the whole subtree in
between, whose routers must pass them on; so a vertex may not listen on the colour of an ancestor
that has further children behind it. That takes two colours and one more for every edge to a child
that is not its parent's last, counted along the worst path from the root.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wafer_jax.builder import ProgramBuilder, ThreadBuilder
from wafer_jax.collectives.lines import Lines
from wafer_jax.collectives.tiles import Axis
from wafer_jax.collectives.tree import check_colors
from wafer_jax.errors import WaferError
from wafer_jax.events import Tile
from wafer_jax.hardware import DTYPE_BYTES, RAMP, WORD_BYTES, HardwareSpec
from wafer_jax.program import Program

Parents = tuple[int, ...]
"""Position of each position's parent; the root's is -1."""


def chain_tree(length: int) -> Parents:
    """Every position's parent is the one before it."""
    return tuple(range(-1, length - 1))


def two_phase_tree(length: int, group: int) -> Parents:
    """Chains inside groups, and a chain over their first positions; the first may be smaller.

    Raises:
      WaferError: A group size below 1.
    """
    if group < 1:
        raise WaferError(f"groups of {group} PEs: choose at least 1")
    first = (length - 1) % group + 1
    starts = [0, *range(first, length, group)]
    before = dict(zip(starts[1:], starts, strict=False))
    return tuple(before.get(i, i - 1) for i in range(length))


def check_tree(parents: Parents, length: int) -> None:
    """Refuse what is no pre-order tree over a line.

    Raises:
      WaferError: Naming the first position that breaks the order.
    """
    if len(parents) != length:
        raise WaferError(f"a tree of {len(parents)} positions on a line of {length} PEs")
    if parents[0] != -1:
        raise WaferError(f"position 0 of a tree has parent {parents[0]}: it is the root, give -1")
    for i in range(1, length):
        above = i - 1
        while above >= 0 and above != parents[i]:
            above = parents[above]
        if above < 0:
            raise WaferError(
                f"position {i} of a tree has parent {parents[i]}: in pre-order it is {i - 1} or "
                f"an ancestor of {i - 1}"
            )


def children_of(parents: Parents) -> list[list[int]]:
    """Children of every position, in increasing order."""
    children: list[list[int]] = [[] for _ in parents]
    for i, parent in enumerate(parents[1:], start=1):
        children[parent].append(i)
    return children


def completion_order(parents: Parents) -> list[int]:
    """Positions in the order in which their sums are complete: post-order."""
    order, stack = [], []
    for i, parent in enumerate(parents):
        while stack and stack[-1] != parent:
            order.append(stack.pop())
        stack.append(i)
    return order + stack[::-1]


@dataclass(frozen=True)
class Shape:
    """What the cost model looks at.

    Attributes:
      depth: D, stages from the furthest leaf to the root.
      contention: C, messages that the busiest PE receives.
      energy: E, links that a word of every PE crosses, summed.
    """

    depth: int
    contention: int
    energy: int


def shape_of(parents: Parents) -> Shape:
    """Depth, contention and energy of a tree."""
    depth = [0]
    for parent in parents[1:]:
        depth.append(depth[parent] + 1)
    return Shape(
        depth=max(depth),
        contention=max(len(c) for c in children_of(parents)),
        energy=sum(i - parent for i, parent in enumerate(parents) if i),
    )


def listen_colors(parents: Parents) -> list[int | None]:
    """Number, from 0, of the colour that every position listens on; None for leaves.

    A position's words pass only over ranges in which no other position listens on their colour.
    """
    children = children_of(parents)
    colors: list[int | None] = [None] * len(parents)
    taken: list[set[int]] = [set() for _ in parents]
    for i, parent in enumerate(parents):
        if parent >= 0:
            # Colours of ancestors whose further children send over this position.
            passing = set(taken[parent])
            if i != children[parent][-1]:
                passing.add(_color(colors, parent))
            taken[i] = passing
        if children[i]:
            used = taken[i] | ({_color(colors, parent)} if parent >= 0 else set())
            colors[i] = next(c for c in range(len(parents)) if c not in used)
    return colors


def colors_of(parents: Parents) -> int:
    """Colours that a tree takes."""
    return max((c + 1 for c in listen_colors(parents) if c is not None), default=0)


def _color(colors: list[int | None], position: int) -> int:
    color = colors[position]
    assert color is not None
    return color


class Member(NamedTuple):
    """What one position does with its tile.

    Attributes:
      color_in: Colour of its children, None for a leaf.
      color_out: Colour towards its parent, None for the root.
      messages: Children.
      hands_over: Its router passes a later sibling's words on behind its own.
    """

    color_in: int | None
    color_out: int | None
    messages: int
    hands_over: bool


def paint(
    lines: Lines, hw: HardwareSpec, parents: Parents, first_color: int, name: str
) -> dict[Member, list[int]]:
    """Paint the routes of a tree; returns the positions that do the same, by what they do.

    Raises:
      WaferError: No pre-order tree, or more colours than the machine has.
    """
    check_tree(parents, lines.length)
    children = children_of(parents)
    colors = [None if c is None else first_color + c for c in listen_colors(parents)]
    check_colors(hw, first_color + colors_of(parents), name)
    positions: dict[Member, list[int]] = defaultdict(list)
    for i, parent in enumerate(parents):
        color_out = None if parent < 0 else colors[parent]
        hands_over = parent >= 0 and i != children[parent][-1]
        positions[Member(colors[i], color_out, len(children[i]), hands_over)].append(i)
    for i, siblings in enumerate(children):
        if siblings:
            _paint_family(lines, _color(colors, i), i, siblings)
    return dict(positions)


def _paint_family(lines: Lines, color: int, parent: int, siblings: Sequence[int]) -> None:
    """Route the children's words to their parent, one child after the other."""
    *earlier, last = siblings
    lines.route(color, [parent], lines.forward, RAMP)
    between = sorted(set(range(parent + 1, last)) - set(earlier))
    if between:
        lines.route(color, between, lines.forward, lines.back)
    if earlier:
        lines.switch(color, earlier, (RAMP, lines.back), (lines.forward, lines.back))
    lines.route(color, [last], RAMP, lines.back)


def emit(thread: ThreadBuilder, member: Member, tile: Tile) -> None:
    """Append what a position does with ``tile`` to a thread."""
    color_in, color_out, messages, hands_over = member
    if color_in is not None:
        for _ in range(messages if color_out is None else messages - 1):
            thread.receive(color_in, tile, "add")
    if color_out is None:
        return
    if color_in is None:
        thread.send(color_out, tile)
    else:
        thread.forward(color_in, color_out, tile)
    if hands_over:
        thread.control(color_out, "advance")


def tree_program(
    hw: HardwareSpec, words: int, axis: Axis, parents: Parents, dtype: str, name: str
) -> Program:
    """The reduce of tile x along every line over a tree, in place at position 0.

    Raises:
      WaferError: No pre-order tree, too few colours, or tiles over the SRAM budget.
    """
    builder = ProgramBuilder(hw, f"{name} of {words} words along {axis}")
    lines = Lines(builder, axis)
    x = builder.tile("x", (words * (WORD_BYTES // DTYPE_BYTES[dtype]),), dtype)
    for i, (member, positions) in enumerate(paint(lines, hw, parents, 0, builder.name).items()):
        emit(lines.role(f"member {i}", positions).thread(), member, x)
    return builder.build(inputs=("x",), outputs=("x",))
