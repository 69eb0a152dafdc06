"""Segments and switches in the oracle (docs/semantics.md, sections 1 and 2.1)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oracle_state import Fifo, Pe, Word

from wafer_jax.events import Command, Register
from wafer_jax.faults import Fault
from wafer_jax.hardware import RAMP
from wafer_jax.program import NO_ROUTE, Program, Segment

if TYPE_CHECKING:
    from oracle import Oracle

TORN_DOWN = 4
NOWHERE = (NO_ROUTE, ())


@dataclass(frozen=True)
class Routes:
    """Routes (rx, tx) of a (PE, colour) in one segment; two or more make it a switch."""

    positions: tuple[tuple[int, tuple[int, ...]], ...]
    ring: bool

    @property
    def is_switch(self) -> bool:
        return len(self.positions) > 1


def routes_of(segment: Segment, c: int, y: int, x: int) -> Routes:
    """Routes of a (PE, colour); only a switch can be a ring."""
    count = int(segment.positions[c, y, x])
    masks = [(int(segment.rx[p, c, y, x]), int(segment.tx[p, c, y, x])) for p in range(count)]
    positions = tuple((rx, tuple(d for d in range(5) if tx >> d & 1)) for rx, tx in masks)
    return Routes(positions, ring=count > 1 and bool(segment.ring[c, y, x]))


def enter(oracle: "Oracle", pe: Pe, segment: int) -> None:
    """Install a segment on a PE, every colour at position 0."""
    pe.segment = segment
    for c in range(len(oracle.program.colors)):
        turn(oracle, pe, c, 0)


def turn(oracle: "Oracle", pe: Pe, c: int, position: int) -> None:
    """Put a (PE, colour) into a position; its FIFOs keep their words."""
    pe.positions[c] = position
    table = pe.tables[pe.segment][c]
    pe.routes[c] = NOWHERE if position == TORN_DOWN else table.positions[position]
    rx, tx = pe.routes[c]
    if rx != NO_ROUTE:
        _measure(oracle, pe.router[c], *_router_size(oracle.program, pe, c, rx))
    if RAMP in tx:
        hw = oracle.program.hw
        depth = _depth(oracle.program, pe, c, "input")
        _measure(oracle, pe.queue[c], depth + hw.ramp_cycles, hw.ramp_cycles)


def _router_size(program: Program, pe: Pe, c: int, rx: int) -> tuple[int, int]:
    """Capacity and latency."""
    hw = program.hw
    if rx != RAMP:
        return hw.router_depth + hw.hop_cycles, hw.hop_cycles
    latency = 1 + hw.ramp_cycles
    return hw.router_depth + _depth(program, pe, c, "output") + latency, latency


def _depth(program: Program, pe: Pe, c: int, end: str) -> int:
    """Depth of the queue that is bound to a colour in the PE's segment; 0 without."""
    binding = getattr(program.role_at(*pe.at).bound(pe.segment), end)
    queue = binding.get(program.colors[c])
    return 0 if queue is None else getattr(program.hw, f"{end}_queue_depths")[queue]


def _measure(oracle: "Oracle", fifo: Fifo, capacity: int, latency: int) -> None:
    if fifo.latency not in (0, latency) and fifo.in_flight(oracle.now):
        oracle.seen["latency_change"] += 1
    fifo.capacity, fifo.latency = capacity, latency
    oracle.seen["over_full"] += len(fifo.words) > capacity


def obey(oracle: "Oracle", pe: Pe, c: int, command: Command) -> None:
    """A control wavelet left the (PE, colour)."""
    table = pe.tables[pe.segment][c]
    oracle.seen["control"] += 1
    if not table.is_switch:
        oracle.seen["control_passes"] += 1
        return
    oracle.seen[command] += 1
    match command:
        case "advance":
            last = pe.positions[c] == len(table.positions) - 1
            oracle.seen["ring_wrap"] += last and table.ring
            oracle.seen["past_last"] += last and not table.ring
            stay = 0 if table.ring else pe.positions[c]
            turn(oracle, pe, c, stay if last else pe.positions[c] + 1)
        case "reset":
            turn(oracle, pe, c, 0)
        case "tear down":
            turn(oracle, pe, c, TORN_DOWN)
            oracle.seen["torn_down_with_words"] += bool(pe.router[c].words)


def reconfigure(oracle: "Oracle", pe: Pe, target: int | Register) -> None:
    """Go to a segment, or raise the fault if there is none of that number."""
    segment = pe.value(target)
    oracle.seen["by_register"] += isinstance(target, Register)
    if not 0 <= segment < len(oracle.program.segments):
        oracle.fault(pe, Fault.NO_SUCH_SEGMENT)
        return
    oracle.seen["segment_change"] += segment != pe.segment
    oracle.seen["segment_again"] += segment == pe.segment
    enter(oracle, pe, segment)


def check_mixed(oracle: "Oracle", pe: Pe, c: int, word: Word) -> None:
    """A word that leaves must find the routes of its own segment."""
    if pe.tables[pe.segment][c] != pe.tables[word.segment][c]:
        oracle.fault(pe, Fault.MIXED_SEGMENT)
