"""The longest chain of dependences through a program, from its event tables and routes alone.

The events of all PEs are executed without time: a thread goes on until it lacks a word, a signal,
or a router that listens. FIFOs are unbounded, so what depends on what does not depend on their
capacities. Whatever is passed on carries a *mark*: the hops and the stages of the longest chain
behind it. A message adds its links as hops and its end as a stage, for there a core takes the words
off the fabric and works on them: stores, adds, or passes them on. Of two chains the longer is the
one that takes more cycles, ``alpha hops + beta stages`` (WaferLLM, OSDI'25, section 3;
`wafer_jax.plmr`).
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.events import (
    AddToRegister,
    Branch,
    Compute,
    Event,
    Forward,
    Halt,
    Loop,
    Receive,
    Reconfigure,
    Register,
    Relation,
    Send,
    SendControl,
    SetRegister,
    Signal,
    Wait,
    event_words,
)
from wafer_jax.hardware import RAMP
from wafer_jax.plmr import plmr
from wafer_jax.program import Program
from wafer_jax.report.audit_mark import START, Mark
from wafer_jax.report.audit_switches import SwitchedRoutes
from wafer_jax.routes import sources

MAX_EVENTS = 20_000_000
"""Events that are executed at most, about half a minute."""
_EVENTS_PER_REPORT = 500_000


def followable(program: Program) -> bool:
    """Whether the order of events is a fact of the tables: not where kernels write registers."""
    return not any(
        isinstance(e, Compute) and any(isinstance(o, Register) for o in e.outputs)
        for e in program.events
    )


def switched_colors(program: Program) -> set[int]:
    """Indices of the colours that carry control wavelets, whose routes switches change."""
    return {program.colors.index(e.color) for e in program.events if isinstance(e, SendControl)}


def distances(program: Program, segment: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the words that are delivered to a PE come from, and how far they travel.

    Returns:
      source: [C, Y, X] int64, flat PE index of the sender, or -1 where nothing is delivered.
      hops: [C, Y, X] int64, links between the two, 0 where nothing is delivered.
    """
    routes = program.segments[segment]
    rx, tx = routes.rx[0], routes.tx[0]
    source, routers = sources(rx, tx, np.ones(rx.shape, np.int64))
    delivered = (tx >> RAMP & 1 == 1) & (source >= 0)
    return np.where(delivered, source, -1), np.where(delivered, routers - 1, 0)


@dataclass(frozen=True)
class Execution:
    """What came of the events.

    Attributes:
      chain: The longest chain of dependences.
      switches: The colours of `switched_colors`, after all words went through.
    """

    chain: Mark
    switches: SwitchedRoutes


def execute(program: Program, progress: Callable[[int], None] | None = None) -> Execution:
    """Execute the events of a `followable` program without time.

    A word takes the routes of the segment that its sender is in, which is how every word travels in
    a run without the fault ``mixed_segment``; on colours with control wavelets it goes from router
    to router.

    Args:
      program: Validated.
      progress: Called now and then with the number of events executed.

    Raises:
      WaferError: The program cannot end, or has too many events.
    """
    machine = _Machine(program, progress)
    machine.run()
    return Execution(machine.longest, machine.switches)


@dataclass(eq=False)
class _Thread:
    pe: int
    events: tuple[Event, ...]
    pc: int = 0
    left: int | None = None
    mark: Mark = START
    jumps: dict[int, int] = field(default_factory=dict)


class _Machine:
    """Queues, semaphores and registers of all PEs, and the threads that wait for them."""

    def __init__(self, program: Program, progress: Callable[[int], None] | None) -> None:
        self._program, self._progress = program, progress
        machine = plmr(program.hw)
        self._alpha, self._beta = machine.alpha_cycles, machine.beta_cycles
        self._index = {color: i for i, color in enumerate(program.colors)}
        self._ends = cache(self._receivers)
        self._segment: dict[int, int] = defaultdict(int)
        self._registers: dict[tuple[int, int], int] = defaultdict(int)
        self._inbox: dict[tuple[int, int], deque[tuple[int, Mark]]] = defaultdict(deque)
        self._signals: dict[tuple[int, int], deque[Mark]] = defaultdict(deque)
        self._readers: dict[tuple[int, int], _Thread] = {}
        self._waiters: dict[tuple[int, int], deque[_Thread]] = defaultdict(deque)
        self._senders: dict[tuple[int, int], _Thread] = {}
        self.longest = START
        self._executed = 0
        self._switched = switched_colors(program)
        self.switches = SwitchedRoutes(program, self._alpha, self._arrive, self._route_changed)
        self._steps: dict[type, Callable[[_Thread, Any], bool]] = {
            Send: self._send,
            SendControl: self._send_control,
            Receive: self._receive,
            Forward: self._forward,
            Signal: self._signal,
            Wait: self._wait,
            Loop: self._loop,
            Branch: self._branch,
            Reconfigure: self._reconfigure,
            SetRegister: self._set_register,
            AddToRegister: self._add_to_register,
            Compute: self._next,
        }

    def run(self) -> None:
        roles = self._program.roles
        self._ready = deque(
            _Thread(pe, events)
            for pe, role in enumerate(self._program.role_of.reshape(-1).tolist())
            for events in roles[role].threads
        )
        alive = len(self._ready)
        while self._ready:
            thread = self._ready.popleft()
            while not isinstance(event := thread.events[thread.pc], Halt):
                self._count()
                if not self._steps[type(event)](thread, event):
                    break
            else:
                alive -= 1
        if alive:
            self._stuck()

    def _count(self) -> None:
        self._executed += 1
        if self._executed > MAX_EVENTS:
            raise WaferError(
                f"{self._program.name}: more than {MAX_EVENTS:,} events: audit smaller sizes"
            )
        if self._progress is not None and self._executed % _EVENTS_PER_REPORT == 0:
            self._progress(self._executed)

    def _stuck(self) -> None:
        blocked = [*self._readers.values(), *self._senders.values()]
        blocked += [thread for waiting in self._waiters.values() for thread in waiting]
        thread = min(blocked, key=lambda t: t.pe)
        y, x = divmod(thread.pe, self._program.hw.mesh[1])
        what = type(thread.events[thread.pc]).__name__
        raise WaferError(
            f"{self._program.name}: cannot end: PE (y={y}, x={x}) waits for ever at event "
            f"{thread.pc}, a {what}; wj.run says more"
        )

    def _receivers(self, segment: int) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """(receiver, hops) of each (sender, colour index)."""
        found = defaultdict(list)
        source, hops = distances(self._program, segment)
        for c, y, x in np.argwhere(source >= 0).tolist():
            pe = y * self._program.hw.mesh[1] + x
            found[int(source[c, y, x]), c].append((pe, int(hops[c, y, x])))
        return found

    def _deliver(self, pe: int, color: int, words: int, mark: Mark) -> None:
        """Words leave a PE on a colour index."""
        if color in self._switched:
            self.switches.push(pe, color, words, None, mark)
            return
        for receiver, hops in self._ends(self._segment[pe]).get((pe, color), ()):
            far = Mark(mark.cycles + self._alpha * hops, mark.hops + hops, mark.stages)
            self._arrive(receiver, color, words, far)

    def _arrive(self, pe: int, color: int, words: int, mark: Mark) -> None:
        """Words reach the core of a PE: a stage."""
        arrived = Mark(mark.cycles + self._beta, mark.hops, mark.stages + 1)
        self.longest = max(self.longest, arrived)
        inbox = self._inbox[pe, color]
        if inbox and inbox[-1][1] == arrived:
            words += inbox.pop()[0]
        inbox.append((words, arrived))
        if (reader := self._readers.pop((pe, color), None)) is not None:
            self._ready.append(reader)

    def _route_changed(self, pe: int, color: int) -> None:
        if (sender := self._senders.pop((pe, color), None)) is not None:
            self._ready.append(sender)

    def _may_send(self, thread: _Thread, color: int) -> bool:
        """Whether the router listens to the core; if not, the thread waits for it."""
        if color not in self._switched:
            return True
        since = self.switches.takes(thread.pe, color)
        if since is None:
            self._senders[thread.pe, color] = thread
            return False
        thread.mark = max(thread.mark, since)
        return True

    def _words(self, thread: _Thread, event: Event) -> int:
        words = event_words(event)
        if isinstance(words, Register):
            return max(self._registers[thread.pe, words.index], 0)
        return words

    def _take(self, thread: _Thread, color: int, event: Event) -> Iterator[int]:
        """Runs of words that are there, as far as the event wants them."""
        index = self._index[color]
        inbox = self._inbox[thread.pe, index]
        if thread.left is None:
            thread.left = self._words(thread, event)
        while thread.left and inbox:
            words, mark = inbox[0]
            taken = min(words, thread.left)
            thread.left -= taken
            if taken == words:
                inbox.popleft()
            else:
                inbox[0] = (words - taken, mark)
            thread.mark = max(thread.mark, mark)
            yield taken
        if thread.left:
            self._readers[thread.pe, index] = thread

    def _next(self, thread: _Thread, event: Compute | None = None) -> bool:
        thread.pc += 1
        return True

    def _end_of_stream(self, thread: _Thread) -> bool:
        if thread.left:
            return False
        thread.left = None
        return self._next(thread)

    def _send(self, thread: _Thread, event: Send) -> bool:
        color = self._index[event.color]
        if words := self._words(thread, event):
            if not self._may_send(thread, color):
                return False
            self._deliver(thread.pe, color, words, thread.mark)
        return self._next(thread)

    def _send_control(self, thread: _Thread, event: SendControl) -> bool:
        color = self._index[event.color]
        if not self._may_send(thread, color):
            return False
        self.switches.push(thread.pe, color, 1, event.command, thread.mark)
        return self._next(thread)

    def _receive(self, thread: _Thread, event: Receive) -> bool:
        for _ in self._take(thread, event.color, event):
            pass
        return self._end_of_stream(thread)

    def _forward(self, thread: _Thread, event: Forward) -> bool:
        color = self._index[event.color_out]
        if not self._may_send(thread, color):
            return False
        for words in self._take(thread, event.color_in, event):
            self._deliver(thread.pe, color, words, thread.mark)
        return self._end_of_stream(thread)

    def _signal(self, thread: _Thread, event: Signal) -> bool:
        key = (thread.pe, event.semaphore)
        self._signals[key].append(thread.mark)
        if self._waiters[key]:
            self._ready.append(self._waiters[key].popleft())
        return self._next(thread)

    def _wait(self, thread: _Thread, event: Wait) -> bool:
        key = (thread.pe, event.semaphore)
        if not self._signals[key]:
            self._waiters[key].append(thread)
            return False
        thread.mark = max(thread.mark, self._signals[key].popleft())
        return self._next(thread)

    def _loop(self, thread: _Thread, event: Loop) -> bool:
        jumps = thread.jumps.get(event.level, 0) + 1
        if jumps < event.count:
            thread.jumps[event.level] = jumps
            thread.pc = event.first
            return True
        thread.jumps[event.level] = 0
        return self._next(thread)

    def _branch(self, thread: _Thread, event: Branch) -> bool:
        if _HOLDS[event.relation](self._registers[thread.pe, event.register], event.value):
            thread.pc = event.target
            return True
        return self._next(thread)

    def _reconfigure(self, thread: _Thread, event: Reconfigure) -> bool:
        number = event.segment
        if isinstance(number, Register):
            number = self._registers[thread.pe, number.index]
        if 0 <= number < len(self._program.segments):
            self._segment[thread.pe] = number
            self.switches.reconfigure(thread.pe, self._switched, number, thread.mark)
        return self._next(thread)

    def _set_register(self, thread: _Thread, event: SetRegister) -> bool:
        self._registers[thread.pe, event.register] = event.value
        return self._next(thread)

    def _add_to_register(self, thread: _Thread, event: AddToRegister) -> bool:
        key = (thread.pe, event.register)
        self._registers[key] = (self._registers[key] + event.value + (1 << 31)) % (1 << 32) - (
            1 << 31
        )
        return self._next(thread)


_HOLDS: dict[Relation, Callable[[int, int], bool]] = {
    "==": int.__eq__,
    "!=": int.__ne__,
    "<": int.__lt__,
    ">=": int.__ge__,
}
