"""Words and control wavelets on their way through switches, without time.

The routers of the colours that carry control wavelets, with unbounded FIFOs: a word goes on as soon
as all of its targets listen (docs/semantics.md, section 2.1). Words of several senders meet at a
switch in the order that its positions impose, so the result does not depend on who is moved first.
A word that had to wait for a position depends on the control wavelet that brought it about.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass

from wafer_jax.events import Command
from wafer_jax.hardware import OPPOSITE, RAMP, STEP_YX
from wafer_jax.program import NO_ROUTE, Program
from wafer_jax.report.audit_mark import START, Mark

Place = tuple[int, int]
"""Flat PE index and colour index."""
_TORN = -1


@dataclass(frozen=True)
class _Load:
    """Some words of one stream, or a control wavelet."""

    words: int
    command: Command | None
    mark: Mark
    sender: int
    hops: int


class SwitchedRoutes:
    """Routers of all PEs for some colours.

    Args:
      program: Whose routes.
      alpha: Cycles of a hop.
      deliver: Called with (PE, colour index, words, mark) of what leaves a router over its RAMP.
      changed: Called with (PE, colour index) when a route has changed.

    Attributes:
      passed: Senders of the words that left each router.
      delivered: Senders of the words that were delivered to each PE.
      longest_trip: Most links between a sender and a PE that got its words.
    """

    def __init__(
        self,
        program: Program,
        alpha: int,
        deliver: Callable[[int, int, int, Mark], None],
        changed: Callable[[int, int], None],
    ) -> None:
        self._segments, self._mesh = program.segments, program.hw.mesh
        self._alpha, self._deliver, self._changed = alpha, deliver, changed
        self._segment: dict[Place, int] = defaultdict(int)
        self._position: dict[Place, int] = defaultdict(int)
        self._since: dict[Place, Mark] = defaultdict(lambda: START)
        self._listens_since: dict[Place, Mark] = defaultdict(lambda: START)
        self._queues: dict[Place, deque[_Load]] = defaultdict(deque)
        self.passed: dict[Place, set[int]] = defaultdict(set)
        self.delivered: dict[Place, set[int]] = defaultdict(set)
        self.longest_trip = 0

    def takes(self, pe: int, color: int) -> Mark | None:
        """What a thread must have waited for to send here; None if the router does not listen."""
        listens = self._route(pe, color)[0] == RAMP
        return self._listens_since[pe, color] if listens else None

    def push(self, pe: int, color: int, words: int, command: Command | None, mark: Mark) -> None:
        """A thread sends words, or a control wavelet."""
        self._queues[pe, color].append(_Load(words, command, mark, pe, 0))
        self._move(deque([(pe, color)]))

    def reconfigure(self, pe: int, colors: set[int], segment: int, mark: Mark) -> None:
        """A PE goes to a segment, all colours to their first position."""
        work: deque[Place] = deque()
        for color in colors:
            self._set(pe, color, 0, mark, work, segment)
        self._move(work)

    def _move(self, work: deque[Place]) -> None:
        """Move whatever can move at some places, and at those that follow from it."""
        while work:
            pe, color = work.popleft()
            queue = self._queues[pe, color]
            while queue and (targets := self._targets(pe, color)) is not None:
                self._leave(pe, color, queue.popleft(), targets, work)

    def _leave(
        self, pe: int, color: int, load: _Load, targets: list[int], work: deque[Place]
    ) -> None:
        self.passed[pe, color].add(load.sender)
        listen = (self._listens_since[q, color] for q in targets)
        mark = max(load.mark, self._since[pe, color], *listen)
        onward = Mark(mark.cycles + self._alpha, mark.hops + 1, mark.stages)
        for q in targets:
            self._queues[q, color].append(
                _Load(load.words, load.command, onward, load.sender, load.hops + 1)
            )
            work.append((q, color))
        if load.command is not None:
            self._apply(pe, color, load.command, mark, work)
        elif self._route(pe, color)[1] >> RAMP & 1:
            self.delivered[pe, color].add(load.sender)
            self.longest_trip = max(self.longest_trip, load.hops)
            self._deliver(pe, color, load.words, mark)

    def _apply(self, pe: int, color: int, command: Command, mark: Mark, work: deque[Place]) -> None:
        y, x = divmod(pe, self._mesh[1])
        segment = self._segments[self._segment[pe, color]]
        positions = int(segment.positions[color, y, x])
        if positions < 2 or command == "none":
            return
        if command == "advance":
            position = self._position[pe, color] + 1
            if position == positions:
                position = 0 if segment.ring[color, y, x] else positions - 1
        else:
            position = 0 if command == "reset" else _TORN
        self._set(pe, color, position, mark, work)

    def _set(
        self,
        pe: int,
        color: int,
        position: int,
        mark: Mark,
        work: deque[Place],
        segment: int | None = None,
    ) -> None:
        listened = self._route(pe, color)[0]
        self._position[pe, color] = position
        if segment is not None:
            self._segment[pe, color] = segment
        self._since[pe, color] = max(self._since[pe, color], mark)
        if self._route(pe, color)[0] != listened:
            self._listens_since[pe, color] = self._since[pe, color]
        work.append((pe, color))
        work.extend((q, color) for d in range(4) if (q := self._neighbour(pe, d)) is not None)
        self._changed(pe, color)

    def _route(self, pe: int, color: int) -> tuple[int, int]:
        position = self._position[pe, color]
        if position == _TORN:
            return NO_ROUTE, 0
        y, x = divmod(pe, self._mesh[1])
        segment = self._segments[self._segment[pe, color]]
        return int(segment.rx[position, color, y, x]), int(segment.tx[position, color, y, x])

    def _targets(self, pe: int, color: int) -> list[int] | None:
        """Neighbours that a head goes to; None while one of them does not listen."""
        _, tx = self._route(pe, color)
        if tx == 0:
            return None
        targets = []
        for d in (d for d in range(4) if tx >> d & 1):
            q = self._neighbour(pe, d)
            if q is None or self._route(q, color)[0] != OPPOSITE[d]:
                return None
            targets.append(q)
        return targets

    def _neighbour(self, pe: int, direction: int) -> int | None:
        y, x = divmod(pe, self._mesh[1])
        y, x = y + STEP_YX[direction][0], x + STEP_YX[direction][1]
        inside = 0 <= y < self._mesh[0] and 0 <= x < self._mesh[1]
        return y * self._mesh[1] + x if inside else None
