"""What the positions of a line do in a collective, so that one collective can follow another."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from wafer_jax.builder import ProgramBuilder, RoleBuilder, ThreadBuilder
from wafer_jax.collectives.lines import Lines
from wafer_jax.collectives.tiles import Axis


class Part(NamedTuple):
    """What some positions of every line do.

    Attributes:
      name: Unique among the parts of a collective.
      positions: Who does it.
      emit: Appends the events to a role. Thread 0 is done with them when the collective's result
        is in the tile, other threads are idle again by then; so events of thread 0 may follow.
    """

    name: str
    positions: Sequence[int]
    emit: Callable[[RoleBuilder], object]


def nothing(thread: ThreadBuilder) -> None:
    """Append no events."""


def add_roles(
    builder: ProgramBuilder,
    axis: Axis,
    parts: Sequence[Part],
    before: Callable[[ThreadBuilder], object] = nothing,
) -> None:
    """One role per part, which first does what ``before`` appends to its thread 0."""
    lines = Lines(builder, axis)
    for part in parts:
        role = lines.role(part.name, part.positions)
        before(role.thread())
        part.emit(role)
