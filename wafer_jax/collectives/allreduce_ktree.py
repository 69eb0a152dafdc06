"""K-tree allreduce: K phases of groups of about P^(1/K) PEs, the final root in the middle.

WaferLLM's all-reduce (arXiv 2502.04563, section 6): a chain's depth falls from P stages to about
K P^(1/K) / 2, because in each phase two half-chains meet in the middle of a group, for one more
set of routes per phase. The sum may then be multicast back along the line.

A half-chain alternates two colours, each phase has two half-chains, the broadcast takes one
colour: at most 4 K + 1, and at most 2 K input queues at the root.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import jax
import jax.numpy as jnp

from wafer_jax.arguments import shown
from wafer_jax.builder import ProgramBuilder, RoleBuilder, ThreadBuilder
from wafer_jax.collectives import broadcast as flood
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.lines import Lines, line_length
from wafer_jax.collectives.parts import Part, add_roles, nothing
from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.collectives.tree import (
    Group,
    Phases,
    Step,
    check_colors,
    check_queues,
    emit,
    final_root,
    paint,
)
from wafer_jax.collectives.tree import needs as tree_needs
from wafer_jax.collectives.tree_bulk import Op, reduce_tree
from wafer_jax.collectives.tree_cost import tree_cycles
from wafer_jax.errors import WaferError
from wafer_jax.events import Tile
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES, HardwareSpec
from wafer_jax.program import Program

MAX_PHASES = 16
"""Pairs over so many phases are 65,536 PEs, more than a line has."""


@lru_cache(maxsize=1024)
def phases_of(length: int, k: int = 2, groups: tuple[int, ...] | None = None) -> Phases:
    """Cut a line of ``length`` PEs for K phases.

    Groups differ by at most one member, the larger ones at the ends of the line, and their number
    is odd, so that one is in the middle: then words of the next phase, which run towards the
    middle, only enter groups that are done with this one. A group's root is the member nearest to
    the middle of the group, of two the one nearer to the middle of the line.

    Args:
      length: PEs of the line.
      k: Phases.
      groups: Number of groups in each phase but the last, which has one; by default the odd
        number for which a group has about P^(1/K) members.

    Raises:
      WaferError: k below 1 or over `MAX_PHASES`, or ``groups`` that do not fit.
    """
    if not 1 <= k <= MAX_PHASES:
        raise WaferError(f"a K-tree of {shown(k)} phases: choose k >= 1, at most {MAX_PHASES}")
    if groups is not None and len(groups) != k - 1:
        raise WaferError(
            f"groups={groups}: a K-tree with k={k} takes {k - 1} numbers, the last phase is 1 group"
        )
    line, phases = list(range(length)), []
    for left in range(k, 0, -1):
        count = 2 * int(len(line) ** ((left - 1) / left) / 2 + 1e-9) + 1
        if groups is not None and left > 1:
            count = groups[k - left]
        if not 1 <= count <= len(line):
            raise WaferError(f"groups={groups}: cannot cut {len(line)} members into {count} groups")
        phase, roots, start = [], [], 0
        for size in _balanced(len(line), count):
            part = line[start : start + size]
            root = min(range(size), key=lambda i, part=part: _off_middle(part, i, length))
            phase.append(Group(size, root))
            roots.append(part[root])
            start += size
        phases.append(tuple(phase))
        line = roots
    return tuple(phases)


def _balanced(length: int, count: int) -> list[int]:
    """Sizes that differ by at most one, larger ones outside."""
    size, larger = divmod(length, count)
    left = -(-larger // 2)
    return [size + 1] * left + [size] * (count - larger) + [size + 1] * (larger - left)


def _off_middle(part: list[int], i: int, length: int) -> tuple[int, int]:
    """Twice the distance of a member from the middle of its group, and of the line."""
    return abs(2 * part[i] - part[0] - part[-1]), abs(2 * part[i] - length + 1)


@lru_cache(maxsize=1024)
def needs(length: int, k: int = 2, groups: tuple[int, ...] | None = None) -> tuple[int, int]:
    """Colours, and input queues of a PE, that `program` takes on a line of ``length`` PEs.

    Raises:
      WaferError: As for `phases_of`.
    """
    if length == 1:
        return 0, 0
    phases = phases_of(length, k, groups)
    colors, heard = tree_needs(phases, length)
    root = final_root(phases, length)  # which alone does not listen to the broadcast
    return colors + 1, max(n + (i != root) for i, n in enumerate(heard))


def root_of(length: int, k: int = 2, groups: tuple[int, ...] | None = None) -> int:
    """Position that has the sum first (and alone, without the broadcast)."""
    return final_root(phases_of(length, k, groups), length)


@checked
def program(
    hw: HardwareSpec,
    words: int,
    k: int = 2,
    axis: Axis = "x",
    broadcast: bool = True,
    groups: tuple[int, ...] | None = None,
    dtype: str = "float32",
) -> Program:
    """Sum tile x along every line, in place, on every PE or (without broadcast) at `root_of`.

    Without broadcast the groups' roots hold partial sums afterwards, other PEs their own x.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE; x is [words] float32, or [2 words] of a 16-bit type.
      k: Phases.
      axis: Lines are rows ("x") or columns ("y").
      broadcast: Multicast the sum back.
      groups: Number of groups per phase but the last, see `phases_of`.
      dtype: Element type.

    Raises:
      WaferError: Too few colours or input queues for k; tiles over the SRAM budget.
    """
    builder = ProgramBuilder(hw, f"K-tree allreduce of {words} words along {axis}, k={k}")
    x = builder.tile("x", (words * (WORD_BYTES // DTYPE_BYTES[dtype]),), dtype)
    add_to(builder, x, phases_of(line_length(hw, axis), k, groups), axis, broadcast)
    return builder.build(inputs=("x",), outputs=("x",))


def add_to(
    builder: ProgramBuilder,
    tile: Tile,
    phases: Phases,
    axis: Axis,
    broadcast: bool,
    before: Callable[[ThreadBuilder], object] = nothing,
) -> None:
    """Add the allreduce of ``tile`` to a program: routes, and one role per position on a line.

    Args:
      builder: The program, with no other roles.
      tile: What is summed, in place.
      phases: The tree.
      axis: Lines are rows ("x") or columns ("y").
      broadcast: Multicast the sum back.
      before: Appends what every PE does first.

    Raises:
      WaferError: Too few colours or input queues.
    """
    add_roles(builder, axis, parts_of(builder, tile, phases, axis, broadcast)[0], before)


def parts_of(
    builder: ProgramBuilder,
    tile: Tile,
    phases: Phases,
    axis: Axis,
    broadcast: bool,
    first_color: int = 0,
) -> tuple[list[Part], int]:
    """Paint the routes of `add_to`; what the positions do, and the next free colour."""
    hw, lines = builder.hw, Lines(builder, axis)
    tree = paint(lines, hw, phases, first_color, builder.name)
    broadcast = broadcast and lines.length > 1
    if broadcast:
        check_colors(hw, tree.next_color + 1, builder.name)
        flood.paint(lines, tree.next_color, tree.root)
    heard = (len({s.color_in for s in steps} - {None}) for steps in tree.positions)
    check_queues(hw, max(heard), builder.name)

    def emit_steps(role: RoleBuilder, steps: Sequence[Step], at_root: bool) -> None:
        thread = role.thread()
        emit(thread, steps, tile)
        if broadcast and at_root:
            thread.send(tree.next_color, tile)
        elif broadcast:
            thread.receive(tree.next_color, tile)

    parts = []
    for i, (steps, positions) in enumerate(tree.positions.items()):
        at_root = tree.root in positions
        name = "root" if at_root else f"member {i}"
        parts.append(Part(name, positions, partial(emit_steps, steps=steps, at_root=at_root)))
    return parts, tree.next_color + broadcast


def apply(
    tiles: jax.Array,
    k: int = 2,
    axis: Axis = "x",
    broadcast: bool = True,
    groups: tuple[int, ...] | None = None,
    op: Op = "add",
) -> jax.Array:
    """Bulk level: the same additions in the same order.

    Args:
      tiles: [..., Y, X].
      k: Phases.
      axis: Lines are rows ("x") or columns ("y").
      broadcast: Give every PE the sum.
      groups: Number of groups per phase but the last, see `phases_of`.
      op: "add" or "max".

    Returns:
      [..., Y, X] with broadcast, else the root's tiles [..., Y, 1] (axis "x") or [..., 1, X].

    Raises:
      WaferError: k < 1, unfit groups, an unknown axis or op.
    """
    phases = phases_of(tiles.shape[axis_index(axis)], k, groups)
    total = reduce_tree(tiles, phases, axis, op)
    return jnp.broadcast_to(total, tiles.shape) if broadcast else total


@checked
def cost(
    hw: HardwareSpec,
    words: int,
    k: int = 2,
    axis: Axis = "x",
    broadcast: bool = True,
    groups: tuple[int, ...] | None = None,
) -> int:
    """Cycles; ``tree_cost`` follows the critical path through groups of any size and says when
    it may miss some cycles (not with k <= 3 and the default groups).

    With groups of one odd size S = 2 m + 1 per phase, roots D apart, s the stream set-up, R the
    ramp's and h the hop's latency, B words, a phase takes
    ``s + m (2 R + 1 + h D) + B + q + s + B``: a half-chain of m stages, then the root's two sides
    one after the other. ``q = min(B - 1, depth + R)``: the two sides share the root's RAMP, and
    the second side's words fill its input queue while the first side's pass. The broadcast adds
    ``s + 2 R + 1 + h d + B`` over the distance d from the root to the far end.

    Raises:
      WaferError: Too few input queues for k.
    """
    length = line_length(hw, axis)
    phases = phases_of(length, k, groups)
    if length == 1:
        return 0
    check_queues(hw, needs(length, k, groups)[1], f"a K-tree allreduce with k={k}")
    total = tree_cycles(hw, phases, length, words)
    if broadcast:
        root = final_root(phases, length)
        total += hw.stream_setup_cycles + flood.flood_cycles(hw, words, length, root)
    return total
