"""Paint the routes of one segment: routes, paths, multicast trees, switches."""

from collections.abc import Sequence

import numpy as np

from wafer_jax.arguments import is_whole, shown, whole
from wafer_jax.errors import WaferError
from wafer_jax.hardware import (
    DIRECTION_NAMES,
    OPPOSITE,
    RAMP,
    STEP_YX,
    E,
    HardwareSpec,
    N,
    S,
    W,
)
from wafer_jax.program import NO_ROUTE, Segment

Index = int | slice | Sequence[int] | np.ndarray
Route = tuple[int, int | Sequence[int]]
"""Receive direction, and one transmit direction or several."""


class SegmentBuilder:
    """Routes that PEs have while they are in one segment.

    A colour that is painted nowhere in a later segment keeps the routes of the first.

    Args:
      hw: The machine.
      name: Unique within the program.
      number: Place among the program's segments.
      program: The program's name, for messages.
    """

    def __init__(self, hw: HardwareSpec, name: str, number: int, program: str) -> None:
        self.hw = hw
        self.name = name
        self.number = number
        self._program = program
        self._routes: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._switches: dict[int, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}
        self._ring: dict[int, np.ndarray] = {}

    def __repr__(self) -> str:
        return f"SegmentBuilder({self.number}, {self.name!r}, colours {sorted(self._routes)})"

    @property
    def colors(self) -> tuple[int, ...]:
        """Colours that are painted."""
        return tuple(sorted(self._routes))

    def route(self, color: int, ys: Index, xs: Index, rx: int, tx: int | Sequence[int]) -> None:
        """Set the route of a colour on a region: receive from ``rx``, transmit to ``tx``.

        Raises:
          WaferError: A colour that the machine lacks, or a PE that already receives elsewhere.
        """
        self._paint(color, region(self.hw, self._program, ys, xs), rx, tx)

    def route_where(self, color: int, mask: np.ndarray, rx: int, tx: int | Sequence[int]) -> None:
        """Like `route`, for the PEs of a [Y, X] mask."""
        self._paint(color, as_mask(self.hw, self._program, mask), rx, tx)

    def path(self, color: int, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Route a colour from PE ``start`` (y, x) to PE ``end``, first along x, then along y.

        Painted over an existing path with the same start, it makes a multicast tree.
        """
        start, end = (_pe_on_mesh(self.hw, self._program, pe) for pe in (start, end))
        (y, x), rx = start, RAMP
        while (y, x) != end:
            step = (E if end[1] > x else W) if x != end[1] else (S if end[0] > y else N)
            self.route(color, y, x, rx, step)
            y, x, rx = y + STEP_YX[step][0], x + STEP_YX[step][1], OPPOSITE[step]
        self.route(color, y, x, rx, RAMP)

    def switch(
        self, color: int, ys: Index, xs: Index, *positions: Route, ring: bool = False
    ) -> None:
        """Make a switch on a region, with its positions (rx, tx) in order.

        Args:
          color: Colour.
          ys: Rows.
          xs: Columns.
          positions: The first replaces what `route` painted there.
          ring: An advance from the last position goes to the first.

        Raises:
          WaferError: Fewer than two positions, or more than the machine has.
        """
        if not 2 <= len(positions) <= self.hw.switch_positions:
            raise WaferError(
                f"{self._program}: a switch of colour {color} with {len(positions)} positions; "
                f"{self.hw.name} has 2 .. {self.hw.switch_positions}"
            )
        if bad := [p for p in positions if not isinstance(p, tuple | list) or len(p) != 2]:
            raise WaferError(
                f"{self._program}: a switch of colour {color} has position {shown(bad[0])}: give "
                f"(rx, tx)"
            )
        where = region(self.hw, self._program, ys, xs)
        color = self._check_color(color)
        routes = [self._check_route(color, rx, tx) for rx, tx in positions]
        receive, transmit = self._grids(color)
        receive[where], transmit[where] = NO_ROUTE, 0
        self._paint(color, where, *routes[0])
        here = np.zeros(self.hw.mesh, bool)
        here[where] = True
        for p, (rx, targets) in enumerate(routes[1:]):
            stack = self._switches.setdefault(color, [])
            if len(stack) <= p:
                stack.append((receive.copy(), transmit.copy(), np.zeros(self.hw.mesh, bool)))
            stack[p][0][here], stack[p][1][here] = rx, sum(1 << d for d in targets)
        for p, (*_, has) in enumerate(self._switches[color], start=1):
            has[here] = p < len(positions)
        self._ring.setdefault(color, np.zeros(self.hw.mesh, bool))[here] = ring

    def connected(self, color: int, direction: str) -> np.ndarray:
        """[Y, X] bool: some position receives from ("rx"), or transmits to ("tx"), the RAMP."""
        if color not in self._routes:
            return np.zeros(self.hw.mesh, bool)
        receive, transmit = self._routes[color]
        out = receive == RAMP if direction == "rx" else transmit >> RAMP & 1 == 1
        for rx, tx, has in self._switches.get(color, []):
            out = out | (has & (rx == RAMP if direction == "rx" else tx >> RAMP & 1 == 1))
        return out

    def freeze(self, colors: Sequence[int], first: Segment | None) -> Segment:
        """The segment, its axis C in the order of ``colors``; unpainted ones as in ``first``."""
        depth = 1 + max((len(s) for s in self._switches.values()), default=0)
        depth = max(depth, len(first.rx)) if first is not None else depth
        shape = (len(colors), *self.hw.mesh)
        segment = Segment(
            name=self.name,
            rx=np.full((depth, *shape), NO_ROUTE, np.int8),
            tx=np.zeros((depth, *shape), np.uint8),
            positions=np.ones(shape, np.uint8),
            ring=np.zeros(shape, bool),
        )
        for i, color in enumerate(colors):
            if color in self._routes:
                self._freeze_color(segment, i, color)
            elif first is not None:
                count = len(first.rx)
                segment.rx[:count, i], segment.tx[:count, i] = first.rx[:, i], first.tx[:, i]
                segment.positions[i], segment.ring[i] = first.positions[i], first.ring[i]
        return segment

    def _freeze_color(self, segment: Segment, i: int, color: int) -> None:
        segment.rx[0, i], segment.tx[0, i] = self._routes[color]
        for p, (rx, tx, has) in enumerate(self._switches.get(color, []), start=1):
            segment.rx[p, i], segment.tx[p, i] = rx, tx
            segment.positions[i] += has
        if color in self._ring:
            segment.ring[i] = self._ring[color]

    def _grids(self, color: int) -> tuple[np.ndarray, np.ndarray]:
        if color not in self._routes:
            self._routes[color] = (
                np.full(self.hw.mesh, NO_ROUTE, np.int8),
                np.zeros(self.hw.mesh, np.uint8),
            )
        return self._routes[color]

    def _check_color(self, color: int) -> int:
        color = whole(color, f"{self._program}: a colour")
        if not 0 <= color < self.hw.colors:
            raise WaferError(
                f"{self._program}: colour {color} does not exist, {self.hw.name} has 0 .. "
                f"{self.hw.colors - 1}"
            )
        return color

    def _check_route(self, color: int, rx: int, tx: int | Sequence[int]) -> tuple[int, list[int]]:
        """The receive direction, and the transmit directions as a list."""
        targets = list(tx) if isinstance(tx, Sequence | np.ndarray) and not is_whole(tx) else [tx]
        if not (is_whole(rx) and int(rx) == NO_ROUTE):
            rx = self._check_direction(color, rx)
        return int(rx), [self._check_direction(color, d) for d in targets]

    def _check_direction(self, color: int, d: object) -> int:
        if not is_whole(d) or not N <= int(d) <= RAMP:
            raise WaferError(
                f"{self._program}: colour {color}: {shown(d)} is none of N, E, S, W, RAMP = 0 .. 4"
            )
        return int(d)

    def _paint(self, color: int, where, rx: int, tx: int | Sequence[int]) -> None:
        color = self._check_color(color)
        rx, targets = self._check_route(color, rx, tx)
        receive, transmit = self._grids(color)
        clash = (receive[where] != NO_ROUTE) & (receive[where] != rx)
        if clash.any():
            y, x = _first(where, clash, self.hw.mesh)
            raise WaferError(
                f"{self._program}: PE (y={y}, x={x}) would receive colour {color} from "
                f"{DIRECTION_NAMES[receive[y, x]]} and {DIRECTION_NAMES[rx]}: use another colour"
            )
        receive[where] = rx
        for d in targets:
            transmit[where] |= np.uint8(1 << d)


def region(hw: HardwareSpec, program: str, ys: Index, xs: Index):
    """Rows and columns as an index into [Y, X].

    Raises:
      WaferError: PEs off the mesh.
    """
    height, width = hw.mesh
    try:
        y, x = _selected(ys, height), _selected(xs, width)
    except IndexError:
        raise WaferError(
            f"{program}: rows {shown(ys)}, columns {shown(xs)} reach beyond the {height}x{width} "
            f"mesh"
        ) from None
    except WaferError as error:
        raise WaferError(f"{program}: {error}") from None
    return np.ix_(y, x)


def as_mask(hw: HardwareSpec, program: str, where: np.ndarray) -> np.ndarray:
    """[Y, X] bool of PEs.

    Raises:
      WaferError: Another shape.
    """
    try:
        mask = np.array(where, bool)
    except (TypeError, ValueError):
        raise WaferError(f"{program}: {shown(where)} is no mask of PEs") from None
    if mask.shape != hw.mesh:
        raise WaferError(f"{program}: a mask has shape {mask.shape}, not {hw.mesh}")
    return mask


def _pe_on_mesh(hw: HardwareSpec, program: str, pe: tuple[int, int]) -> tuple[int, int]:
    if not isinstance(pe, tuple | list) or len(pe) != 2:
        raise WaferError(f"{program}: {shown(pe)} is no PE: give (y, x)")
    y, x = (whole(place, f"{program}: a coordinate of a PE") for place in pe)
    height, width = hw.mesh
    if not (0 <= y < height and 0 <= x < width):
        raise WaferError(f"{program}: PE (y={y}, x={x}) is not on the {height}x{width} mesh")
    return y, x


def _selected(index: Index, length: int) -> np.ndarray:
    """Rows or columns that an index selects.

    Raises:
      IndexError: Beyond ``length``.
      WaferError: No index.
    """
    if isinstance(index, slice):
        parts = (index.start, index.stop, index.step)
        start, stop, step = (None if p is None else whole(p, "a part of a slice") for p in parts)
        if step == 0:
            raise WaferError(f"{shown(index)} has step 0")
        selected = np.arange(length)[index]
        # A computed slice may well be empty, between the ends of a line of two PEs, say.
        if not selected.size and max(start or 0, stop or 0) > length:
            raise IndexError
        return selected
    try:
        array = np.asarray(index)
    except ValueError:
        array = np.asarray(None)
    if array.dtype == bool and array.shape != (length,):
        raise WaferError(f"a mask of shape {array.shape} for {length} rows or columns")
    if array.ndim > 1 or not (array.dtype.kind in "iub" or array.size == 0):
        raise WaferError(f"{shown(index)} is no index of rows or columns: give whole numbers")
    return np.atleast_1d(np.arange(length)[array if array.size else slice(0)])


def _first(where, clash: np.ndarray, mesh: tuple[int, int]) -> tuple[int, int]:
    marked = np.zeros(mesh, bool)
    marked[where] = clash
    return tuple(int(v) for v in np.argwhere(marked)[0])  # pyright: ignore[reportReturnType]
