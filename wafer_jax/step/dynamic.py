"""Routes that change in a run: segments, switches, control wavelets (semantics, 1 and 2.1).

Only the colours of `StepSpec.dynamic` have such routes; the compiled step of a program without
them holds nothing of this file.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.event_table import COMMANDS
from wafer_jax.faults import Fault
from wafer_jax.mesh_state import WaferState
from wafer_jax.step import registers
from wafer_jax.step.issue import Issue, select
from wafer_jax.step.reduce import any_lane
from wafer_jax.step.routers import Moves
from wafer_jax.step_spec import COMMAND_SHIFT, RING, SEGMENT_MASK, TORN_DOWN, Code, StepSpec

_ADVANCE, _RESET, _TEAR_DOWN = (1 + COMMANDS.index(c) for c in ("advance", "reset", "tear down"))


def current_routes(spec: StepSpec, code: Code, state: WaferState) -> list[jax.Array]:
    """C arrays [n], packed as `Code.routes`."""
    routes = [code.routes[c] for c in range(spec.colors)]
    for c, plane in zip(spec.dynamic, state.routes, strict=True):
        routes[c] = plane
    return routes


def control_heads(spec: StepSpec, state: WaferState) -> dict[int, jax.Array]:
    """Per dynamic colour [n] bool: the word at the head, if any, is a control wavelet."""
    if not spec.controls:
        return {}
    return {
        c: marks[0] >> COMMAND_SHIFT != 0
        for c, marks in zip(spec.dynamic, state.marks, strict=True)
    }


def sent_mark(spec: StepSpec, state: WaferState, issue: Issue) -> jax.Array:
    """[n] uint8: mark of the word that the winner pushes."""
    mark = jnp.zeros(spec.lanes, jnp.uint8) if state.segment is None else state.segment
    if spec.controls:
        mark |= select(issue.wins, state.control).astype(jnp.uint8) << COMMAND_SHIFT
    return mark


def mixed_segments(
    spec: StepSpec, code: Code, state: WaferState, moves: Moves
) -> tuple[jax.Array, jax.Array]:
    """Words that leave under other routes than those of their segment.

    Returns:
      Fault bits [n] int32, and the first such colour [n] int32.
    """
    bits = color = jnp.zeros(spec.lanes, jnp.int32)
    if state.segment is None:
        return bits, color
    segment = state.segment
    for k, c in reversed(list(enumerate(spec.dynamic))):
        tag = state.marks[k][0] & SEGMENT_MASK
        other = (moves.taken[c] != 0) & (tag != segment)
        classes = code.route_classes[k]

        def look(other, tag=tag, classes=classes):
            return other & (_at(spec, classes, tag) != _at(spec, classes, segment))

        mixed = lax.cond(any_lane(spec, other), look, lambda other: other, other)
        bits = jnp.where(mixed, int(Fault.MIXED_SEGMENT), bits)
        color = jnp.where(mixed, c, color)
    return bits, color


def count_passed(spec: StepSpec, state: WaferState, moves: Moves) -> tuple[jax.Array, ...]:
    """5 arrays [n] int32: words of dynamic colours that left in each direction so far."""
    return tuple(
        count + sum((moves.taken[c] >> d & 1).astype(jnp.int32) for c in spec.dynamic)
        for d, count in enumerate(state.passed)
    )


def apply_commands(spec: StepSpec, code: Code, state: WaferState, moves: Moves) -> WaferState:
    """Move the switches that control wavelets leave in this cycle."""
    if not spec.controls:
        return state
    acting = [
        (moves.taken[c] != 0) & (marks[0] >> COMMAND_SHIFT >= _ADVANCE)
        for c, marks in zip(spec.dynamic, state.marks, strict=True)
    ]
    anywhere = acting[0]
    for acts in acting[1:]:
        anywhere |= acts

    def apply(state: WaferState) -> WaferState:
        positions, routes = [], []
        for k, acts in enumerate(acting):
            switch = _at(spec, code.switches[k], _segment(spec, state))
            acts &= switch & (RING - 1) > 1
            command = state.marks[k][0] >> COMMAND_SHIFT
            moved = _moved(state.position[k], switch, command)
            positions.append(jnp.where(acts, moved, state.position[k]))
            new = _routes_at(spec, code, k, _segment(spec, state), positions[k])
            routes.append(jnp.where(acts, new, state.routes[k]))
        return replace(state, position=tuple(positions), routes=tuple(routes))

    return lax.cond(any_lane(spec, anywhere), apply, lambda s: s, state)


def _moved(position: jax.Array, switch: jax.Array, command: jax.Array) -> jax.Array:
    """[n] uint8: the position after a command."""
    last = (switch & (RING - 1)) - 1
    beyond = jnp.where(switch & RING != 0, 0, last).astype(jnp.uint8)
    advanced = jnp.where(position >= last, beyond, position + 1)
    moved = jnp.where(command == _ADVANCE, advanced, position)
    moved = jnp.where(command == _RESET, 0, moved)
    return jnp.where(command == _TEAR_DOWN, TORN_DOWN, moved).astype(jnp.uint8)


def reconfigure(
    spec: StepSpec, code: Code, state: WaferState, issue: Issue, old: jax.Array
) -> tuple[WaferState, jax.Array]:
    """Install the segments that `Reconfigure` events ask for.

    Args:
      spec: Static part.
      code: Arrays.
      state: With the commands of this cycle applied.
      issue: The winners.
      old: [n] int32, position in the table of the finished event.

    Returns:
      The state, and fault bits [n] int32.
    """
    table = code.table
    target = table["segment"][old] - 1
    asks = issue.finished & (target >= 0)
    if state.registers is not None:
        register = table["segment_from"][old]
        held = registers.read(state.registers, register)
        target = jnp.where(register >= 0, held, target)
        asks |= issue.finished & (register >= 0)
    exists = (target >= 0) & (target < spec.segments)
    goes = asks & exists

    def install(state: WaferState) -> WaferState:
        segment = jnp.where(goes, target.astype(jnp.uint8), _segment(spec, state))
        start = jnp.zeros(spec.lanes, jnp.uint8)
        routes = [
            jnp.where(goes, _routes_at(spec, code, k, segment, start), plane)
            for k, plane in enumerate(state.routes)
        ]
        return replace(
            state,
            segment=None if state.segment is None else segment,
            position=tuple(jnp.where(goes, start, p) for p in state.position),
            routes=tuple(routes),
        )

    state = lax.cond(any_lane(spec, goes), install, lambda s: s, state)
    return state, jnp.where(asks & ~exists, int(Fault.NO_SUCH_SEGMENT), 0)


def _segment(spec: StepSpec, state: WaferState) -> jax.Array:
    return jnp.zeros(spec.lanes, jnp.uint8) if state.segment is None else state.segment


def _routes_at(
    spec: StepSpec, code: Code, k: int, segment: jax.Array, position: jax.Array
) -> jax.Array:
    """[n]: packed routes of the k-th dynamic colour; none where it was torn down."""
    row = segment.astype(jnp.int32) * spec.positions
    row += jnp.minimum(position, spec.positions - 1).astype(jnp.int32)
    return jnp.where(position == TORN_DOWN, 0, _at(spec, code.route_table[k], row))


def _at(spec: StepSpec, rows: jax.Array, row: jax.Array) -> jax.Array:
    """[n]: of a table [rows * n] the entry of each lane in its row."""
    lane = jnp.arange(spec.lanes, dtype=jnp.int32)
    return rows.at[row.astype(jnp.int32) * spec.lanes + lane].get(mode="promise_in_bounds")
