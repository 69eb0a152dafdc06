"""The same one-dimensional algorithm on every row or every column of the mesh at once.

Positions count along the axis: x for rows (axis "x"), y for columns (axis "y"). *Forward* is the
direction in which they grow (E or S), *back* the other (W or N).
"""

from collections.abc import Sequence

from wafer_jax.builder import Index, ProgramBuilder, RoleBuilder
from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.errors import WaferError
from wafer_jax.hardware import E, HardwareSpec, N, S, W


class Lines:
    """Lines of a mesh along one axis, painted alike: all, or those at ``across``.

    Attributes:
      length: PEs of a line.
      forward: Direction of growing positions, E or S.
      back: The opposite direction, W or N.
    """

    def __init__(self, builder: ProgramBuilder, axis: Axis, across: Index = slice(None)) -> None:
        self.length = line_length(builder.hw, axis)
        self.forward, self.back = (E, W) if axis == "x" else (S, N)
        self._builder = builder
        self._axis = axis
        self._across = across

    def route(self, color: int, positions: Sequence[int], rx: int, tx: int | Sequence[int]) -> None:
        """Set a colour's route at some positions of every line."""
        self._builder.route(color, *self._at(positions), rx, tx)

    def switch(
        self, color: int, positions: Sequence[int], *switch_positions: tuple[int, int]
    ) -> None:
        """Make a colour's router a switch, with its (rx, tx) in order, at some positions."""
        self._builder.switch(color, *self._at(positions), *switch_positions)

    def role(self, name: str, positions: Sequence[int]) -> RoleBuilder:
        """A new role for some positions of every line."""
        return self._builder.role(name, at=self._at(positions))

    def _at(self, positions: Sequence[int]) -> tuple[Index, Index]:
        across = self._across
        return (across, positions) if self._axis == "x" else (positions, across)


def line_length(hw: HardwareSpec, axis: Axis) -> int:
    """PEs of one line along an axis."""
    return hw.mesh[axis_index(axis)]


def check_position(position: int, length: int, what: str) -> None:
    """Raise ``WaferError`` unless a position lies on a line."""
    if not 0 <= position < length:
        raise WaferError(f"{what} {position} is not on a line of {length} PEs (0 .. {length - 1})")
