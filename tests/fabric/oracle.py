"""The fabric level once more, as slow and plain as possible, written from docs/semantics.md alone.

One Python object per PE, thread and FIFO; a word in a FIFO carries the cycle in which it becomes
ready. Nothing here is packed, vectorised or shared with `wafer_jax.step`: the two must agree in
every cycle because they read the same page, not because they read each other.
"""

import operator
from collections import Counter
from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

import numpy as np
import oracle_memory
import oracle_router
import oracle_routes
import oracle_snapshot
from oracle_jitter import Jitter, event_stall, start_stall
from oracle_state import (
    ELEMENT,
    POISON,
    Fifo,
    Pe,
    Thread,
    Word,
    read_tile,
    signed,
    write_tile,
)

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
    Send,
    SendControl,
    SetRegister,
    Signal,
    Wait,
    event_slice,
    event_words,
    is_wide,
    receive_color,
    send_color,
)
from wafer_jax.faults import Fault
from wafer_jax.hardware import RAMP
from wafer_jax.program import Program

STREAMS = (Send, SendControl, Receive, Forward)
RELATION = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, ">=": operator.ge}


class Oracle:
    """Executes a program cycle by cycle.

    Args:
      program: What to execute.
      tiles: Name -> [*shape, Y, X], loaded wherever a PE's role has a tile of that name.
      values: False drops SRAM and payloads, like ``values="none"``.
      jitter: Makes PEs start later and stall before events.
      watchdog_cycles: How long a thread may be blocked; 0 is for ever.
      packet_words: Words that travel as one packet, which is then what "word" means here.

    Raises:
      WaferError: A kernel writes registers, and there are no values; or packets of several words
        and values.

    Attributes:
      now: The cycle that the next `step` executes.
      stuck: Whether the last `step` found that nothing can happen any more.
      starved: Whether the last `step` found a thread that is blocked too long.
      seen: How often what happened ("multicast", "lost_link", "slot_contention", "jump", ...).
    """

    def __init__(
        self,
        program: Program,
        tiles: Mapping[str, np.ndarray] | None = None,
        values: bool = True,
        jitter: Jitter | None = None,
        watchdog_cycles: int = 0,
        packet_words: int = 1,
    ) -> None:
        if not values and any(map(_writes_registers, oracle_snapshot.all_events(program))):
            raise WaferError(f"{program.name}: its kernels write registers: run it with values")
        if values and packet_words > 1:
            raise WaferError(f"packet_words={packet_words} in a run with values: use values=False")
        self.program = program
        self.hw = program.hw
        self.values = values
        self.jitter = jitter
        self.watchdog_cycles = watchdog_cycles
        self.packet_words = packet_words
        self.now = 0
        self.stuck = False
        self.starved = False
        self.seen: Counter[str] = Counter()
        height, width = self.hw.mesh
        self.pes = {
            (y, x): self._make_pe(y, x, tiles or {}) for y in range(height) for x in range(width)
        }

    # ---- construction ----------------------------------------------------------------------

    def _make_pe(self, y: int, x: int, tiles: Mapping[str, np.ndarray]) -> Pe:
        program, colors = self.program, range(len(self.program.colors))
        role = program.role_at(y, x)
        tables = role.threads + ((),) * (program.num_threads - len(role.threads))
        pe = Pe(
            number=y * self.hw.mesh[1] + x,
            at=(y, x),
            threads=[Thread(number, events) for number, events in enumerate(tables)],
            sram=np.full(program.sram_words if self.values else 0, POISON, np.uint32),
            tables=[
                [oracle_routes.routes_of(segment, c, y, x) for c in colors]
                for segment in program.segments
            ],
            router=[Fifo() for _ in colors],
            queue=[Fifo() for _ in colors],
        )
        oracle_routes.enter(self, pe, 0)
        for name, tile in role.tiles.items():
            if self.values and name in tiles:
                write_tile(pe.sram, tile, tiles[name][..., y, x])
        for thread in pe.threads:
            if thread.events:
                self._load(pe, thread, 0, 0)
            else:
                thread.halted = True
            if not thread.halted:
                thread.ready_at += start_stall(self.jitter, pe.number)
        return pe

    # ---- one cycle (section 2) ---------------------------------------------------------------

    def step(self) -> bool:
        """Execute one cycle and move ``now`` on; False when the run is at its end."""
        if self.starved:
            return False
        departures = [
            (pe, c, oracle_router.targets(self, pe, c))
            for pe in self.pes.values()
            for c in oracle_router.arbitrate(self, pe)
        ]
        issues = [(pe, thread) for pe in self.pes.values() for thread in self._choose(pe)]
        starving = self._starving([thread for _, thread in issues])
        # Every decision is made: from here on the state may change. Routes and latencies do so
        # last, since all words of a cycle move by those of the snapshot.
        commands = []
        for pe, c, targets in departures:
            word = pe.router[c].pop()
            oracle_routes.check_mixed(self, pe, c, word)
            for fifo in targets:
                self._push(fifo, word)
            pe.link_free.update(dict.fromkeys(pe.routes[c][1], self.now + self.packet_words))
            self.seen["multicast"] += len(targets) > 1
            if word.command is not None:
                self.seen["control_ends"] += not targets
                commands.append((pe, c, word.command))
        changes = []
        for pe, thread in issues:
            if isinstance(thread.event, Reconfigure):
                changes.append((pe, thread.event.segment))
            self._issue(pe, thread)
        for pe, c, command in commands:
            oracle_routes.obey(self, pe, c, command)
        for pe, segment in changes:
            oracle_routes.reconfigure(self, pe, segment)
        for pe in starving:
            self.fault(pe, Fault.STARVED)
        self.starved = bool(starving)
        return self._advance(moved=bool(departures or issues)) and not self.starved

    def _advance(self, moved: bool) -> bool:
        """Sections 4 and 5: the next cycle, a jump, or stuck (``now`` then stays)."""
        if moved:
            self.now += 1
            return True
        pending = [t.ready_at for t in self._threads() if not t.halted]
        pending += [ready_at for fifo in self._fifos() for ready_at, _ in fifo.words]
        for pe in self.pes.values():
            pending += [pe.slot_free, *pe.link_free.values()]
        later = [cycle for cycle in pending if cycle > self.now]
        self.stuck = not later
        if later:
            self.seen["jump"] += min(later) > self.now + 1
            self.now = min(later)
        return not self.stuck

    def _starving(self, issuing: list[Thread]) -> list[Pe]:
        """PEs with a thread that the watchdog finds blocked too long in this cycle (section 4)."""
        return [
            pe
            for pe in self.pes.values()
            for t in pe.threads
            if self.watchdog_cycles
            and not t.halted
            and not any(t is other for other in issuing)
            and self.now - max(t.ready_at, t.idle_from) >= self.watchdog_cycles
        ]

    def _push(self, fifo: Fifo, word: Word) -> None:
        self.seen["held_up"] += fifo.push(word, self.now)

    # ---- threads (section 2.2) ---------------------------------------------------------------

    def _choose(self, pe: Pe) -> list[Thread]:
        """The threads that issue in this cycle; moves the thread pointer."""
        count = len(pe.threads)
        order = [(pe.thread_pointer + i) % count for i in range(count)]
        requests = [t for t in order if self._requests(pe, pe.threads[t])]
        if not requests:
            return []
        if self.now < pe.slot_free:
            self.seen["busy_slot"] += 1
            return []
        self.seen["slot_contention"] += len(requests) > 1
        chosen, first = requests[:1], pe.threads[requests[0]]
        if self._is_wide(first):
            fits = [t for t in requests[1:] if self._may_join(pe.threads[t], first)]
            chosen += fits[:1]
            self.seen["two_pushes"] += len(fits) < sum(
                self._is_wide(pe.threads[t]) for t in requests[1:]
            )
        self.seen["pair"] += len(chosen) == 2
        pe.thread_pointer = (chosen[-1] + 1) % count
        return [pe.threads[t] for t in chosen]

    def _is_wide(self, thread: Thread) -> bool:
        return is_wide(thread.event) and thread.words >= 1

    def _may_join(self, thread: Thread, first: Thread) -> bool:
        """A wide thread may issue behind another if the two do not push two words."""
        both_push = None not in (send_color(thread.event), send_color(first.event))
        return self._is_wide(thread) and not both_push

    def _requests(self, pe: Pe, thread: Thread) -> bool:
        if thread.halted or self.now < thread.ready_at:
            return False
        event = thread.event
        if isinstance(event, Wait):
            return pe.semaphores[event.semaphore] > 0
        if thread.words < 1:
            return True
        into, out_of = send_color(event), receive_color(event)
        return (into is None or self._has_room(pe, self._axis(into))) and (
            out_of is None or pe.queue[self._axis(out_of)].has_head(self.now)
        )

    def _has_room(self, pe: Pe, c: int) -> bool:
        return pe.routes[c][0] == RAMP and pe.router[c].has_room()

    def _issue(self, pe: Pe, thread: Thread) -> None:
        event, cycles = thread.event, 1
        match event:
            case Send() | Receive() | Forward() if thread.words < 1:
                self.seen["empty"] += 1
            case Send() | Receive() | Forward():
                self._stream(pe, thread, event)
                cycles = self._occupy_slot(pe)
            case SendControl(color=color, command=command):
                self._send(pe, color, Word(0, pe.segment, command))
                cycles = self._occupy_slot(pe)
            case Compute():
                cycles = min(max(pe.value(event.cycles), 1), 100_000_000)
                oracle_memory.compute(self, pe, event, cycles)
            case Signal(semaphore=s):
                pe.semaphores[s] += 1
            case Wait(semaphore=s):
                pe.semaphores[s] -= 1
            case SetRegister(register=r, value=value):
                pe.registers[r] = signed(value)
            case AddToRegister(register=r, value=value):
                pe.registers[r] = signed(pe.registers[r] + value)
        self.seen[type(event).__name__.lower()] += 1
        thread.idle_from = self.now + 1
        thread.left -= 1
        if thread.left == 0:
            self._load(pe, thread, self._successor(pe, thread), self.now + cycles)

    def _successor(self, pe: Pe, thread: Thread) -> int:
        """The event behind the current one; a loop counts the jumps that it made."""
        event = thread.event
        if isinstance(event, Branch):
            taken = RELATION[event.relation](pe.registers[event.register], event.value)
            self.seen["branch_taken"] += taken
            return event.target if taken else thread.pc + 1
        if isinstance(event, Loop):
            if thread.loop_counters[event.level] < event.count - 1:
                thread.loop_counters[event.level] += 1
                return event.first
            thread.loop_counters[event.level] = 0
        return thread.pc + 1

    def _load(self, pe: Pe, thread: Thread, pc: int, ready_at: int) -> None:
        thread.pc = pc
        event = thread.event
        thread.halted = isinstance(event, Halt)
        if thread.halted:
            thread.left, thread.ready_at = 0, ready_at
            return
        thread.words = pe.value(event_words(event))
        thread.left = max(ceil(thread.words / self.packet_words), 1)
        setup = self.hw.stream_setup_cycles if isinstance(event, STREAMS) else 0
        stall = event_stall(self.jitter, pe.number, thread.number, thread.loaded)
        thread.ready_at = ready_at + setup + stall
        thread.loaded += 1
        self.seen["stall"] += stall > 0
        self.seen["length"] += isinstance(event_words(event), Register)

    def _occupy_slot(self, pe: Pe) -> int:
        """A word takes the issue slot; for how many cycles (section 7)."""
        pe.slot_free = self.now + self.packet_words
        return self.packet_words

    def _stream(self, pe: Pe, thread: Thread, event: Send | Receive | Forward) -> None:
        """One word of a stream event (the table of section 2.2)."""
        into, out_of = send_color(event), receive_color(event)
        word = 0
        if out_of is not None:
            word = pe.queue[self._axis(out_of)].pop().data
            pe.received[self._axis(out_of)] += 1
        if self.values and event_slice(event) is not None:
            word = oracle_memory.touch(self, pe, thread, event, word)
        if into is not None:
            self._send(pe, into, Word(word, pe.segment))

    def _send(self, pe: Pe, color: int, word: Word) -> None:
        self._push(pe.router[self._axis(color)], word)
        pe.sent[self._axis(color)] += 1

    # ---- whole runs ----------------------------------------------------------------------------

    def run(self, max_cycles: int = 100_000) -> "Oracle":
        """Step until stuck or starved, or until ``now`` reaches ``max_cycles``; then `finish`."""
        while self.now < max_cycles and self.step():
            pass
        return self.finish()

    def finish(self) -> "Oracle":
        """Set the bits that exist only at the end of a run; they happened in no cycle."""
        if not self.stuck:
            return self
        quiescent = all(t.halted for t in self._threads())
        for pe in self.pes.values():
            left_over = any(f.words for f in (*pe.router, *pe.queue))
            if quiescent and left_over:
                pe.faults |= Fault.UNDELIVERED
            if not all(t.halted for t in pe.threads):
                pe.faults |= Fault.DEADLOCK
        return self

    @property
    def cycles(self) -> int:
        """Largest finish cycle; ``now`` where some thread has not halted."""
        if all(t.halted for t in self._threads()):
            return max(t.ready_at for t in self._threads())
        return self.now

    def tile(self, name: str) -> np.ndarray:
        """A tile as [*shape, Y, X]; zeros on PEs that lack it."""
        owners = [role.tiles[name] for role in self.program.roles if name in role.tiles]
        out = np.zeros((*owners[0].shape, *self.hw.mesh), ELEMENT[owners[0].dtype])
        for (y, x), pe in self.pes.items():
            if (tile := self.program.role_at(y, x).tiles.get(name)) is not None:
                out[..., y, x] = read_tile(pe.sram, tile)
        return out

    def fault(self, pe: Pe, fault: Fault) -> None:
        """Raise a fault on a PE in this cycle."""
        pe.faults |= fault
        if pe.fault_cycle < 0:
            pe.fault_cycle = self.now

    def _axis(self, color: int) -> int:
        return self.program.colors.index(color)

    def _threads(self) -> Iterator[Thread]:
        return (thread for pe in self.pes.values() for thread in pe.threads)

    def _fifos(self) -> Iterator[Fifo]:
        return (f for pe in self.pes.values() for f in (*pe.router, *pe.queue))

    def snapshot(self) -> dict[str, Any]:
        """The state at the start of cycle ``now`` (see `oracle_snapshot`)."""
        return oracle_snapshot.snapshot(self)


def _writes_registers(event: Event) -> bool:
    return isinstance(event, Compute) and any(isinstance(o, Register) for o in event.outputs)
