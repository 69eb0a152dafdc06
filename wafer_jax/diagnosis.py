"""Why a run ended as it did: faults with their places, and who waits for whom."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from wafer_jax.blocks import row_lanes
from wafer_jax.events import Event, Forward, Halt, Signal, Wait, receive_color, send_color
from wafer_jax.faults import REMEDY, Fault
from wafer_jax.hardware import DIRECTION_NAMES, OPPOSITE, RAMP, STEP_YX
from wafer_jax.mesh_state import FIRST_FAULT_SHIFT, WaferState
from wafer_jax.program import NO_ROUTE, Program, direction_set
from wafer_jax.routes import capacities, neighbour, sources, unrouted_heads
from wafer_jax.snapshot import snapshot

PE = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class FaultRecord:
    """One fault of one PE.

    Attributes:
      kind: The bit.
      y: Row.
      x: Column.
      cycle: When it was first seen.
      what: Colour or event, in words.
    """

    kind: Fault
    y: int
    x: int
    cycle: int
    what: str

    def __str__(self) -> str:
        name = (self.kind.name or "").lower()
        return (
            f"{name} at PE (y={self.y}, x={self.x}), cycle {self.cycle}: {self.what}; "
            f"{REMEDY[self.kind]}"
        )


@dataclass(frozen=True)
class Diagnosis:
    """End of a run.

    Attributes:
      bits: [Y, X] int64, fault bits, `undelivered` and `deadlock` included.
      records: The faults, in the order of their cycles.
      chain: PEs (y, x) that wait, each for the next and the last for the first, if there is a
        deadlock or a starved thread; one alone waits for what will not come.
      waiting: The same in words.
    """

    bits: np.ndarray
    records: tuple[FaultRecord, ...]
    chain: tuple[PE, ...] = ()
    waiting: tuple[str, ...] = ()


def diagnose(program: Program, state: WaferState) -> Diagnosis:
    """Read the faults of a state, and add those that only the end of a run shows."""
    snap = snapshot(program, state)
    bits = np.array(snap["faults"])
    records = list(_recorded(program, state, snap))
    chain: list[tuple[PE, str]] = []
    waiting: tuple[str, ...] = ()
    alive = ~snap["halted"].all(axis=0)
    if state.starved is not None and bool(state.starved):
        starved = bits & Fault.STARVED != 0
        chain, waiting = _waiting_chain(program, snap, alive, starved)
    if bool(state.stuck):
        if alive.any():
            bits[alive] |= Fault.DEADLOCK
            chain, waiting = _waiting_chain(program, snap, alive, alive)
            records += [
                FaultRecord(kind=Fault.DEADLOCK, y=y, x=x, cycle=snap["now"], what=what)
                for (y, x), what in chain
            ]
        else:
            leftover = snap["router_total"] + snap["input_total"]
            bits[leftover.any(axis=0)] |= Fault.UNDELIVERED
            records += [
                FaultRecord(
                    kind=Fault.UNDELIVERED, y=int(y), x=int(x), cycle=snap["now"],
                    what=_leftover(program, snap, int(c), int(y), int(x)),
                )
                for c, y, x in np.argwhere(leftover)
            ]  # fmt: skip
    records = tuple(sorted(records, key=lambda r: r.cycle))
    return Diagnosis(bits, records, tuple(pe for pe, _ in chain), waiting)


def _leftover(program: Program, snap: dict, c: int, y: int, x: int) -> str:
    """How many words were left, and which neighbour does not listen, if that is why."""
    words = int(snap["router_total"][c, y, x] + snap["input_total"][c, y, x])
    what = f"{words} word{'s'[: words > 1]} of colour {program.colors[c]} left"
    for d in range(4):
        side = int(neighbour(snap["rx"], d, NO_ROUTE)[c, y, x])
        if snap["tx"][c, y, x] >> d & 1 and side not in (NO_ROUTE, OPPOSITE[d]):
            return (
                f"{what}: they go {DIRECTION_NAMES[d]}, where the neighbour listens to its "
                f"{DIRECTION_NAMES[side]}"
            )
    return what


def _recorded(program: Program, state: WaferState, snap: dict) -> Iterator[FaultRecord]:
    """Faults that the executor found. Only the first of a PE has its place in the state."""
    width = program.hw.mesh[1]
    where = np.asarray(state.fault_where).reshape(-1, row_lanes(width))
    dead_ends = unrouted_heads(snap["rx"], snap["tx"]) & (snap["router_ready"] > 0)
    for y, x in np.argwhere(snap["faults"]).tolist():
        first = Fault(int(where[y, x]) >> FIRST_FAULT_SHIFT)
        place = int(where[y, x]) & ((1 << FIRST_FAULT_SHIFT) - 1)
        for kind in Fault(int(snap["faults"][y, x])):
            if kind is Fault.UNROUTED:
                # With fixed routes such a head never leaves, so the final state still holds it.
                color = place if kind in first else int(np.argmax(dead_ends[:, y, x]))
                what = _unrouted(program, snap, color, y, x)
            elif kind is Fault.MIXED_SEGMENT and kind in first:
                what = (
                    f"a word of colour {program.colors[place]} that was sent under another segment "
                    f"left when the PE had gone on to other routes"
                )
            elif kind in first:
                thread, event = place >> 16, place & 0xFFFF
                text = " ".join(program.role_at(y, x).describe(thread, event).split())
                what = f"thread {thread}, event {event}: {text}"
            else:
                what = "after the first fault of this PE"
            cycle = int(snap["fault_cycle"][y, x])
            yield FaultRecord(kind=kind, y=y, x=x, cycle=cycle, what=what)


def _unrouted(program: Program, snap: dict, color: int, y: int, x: int) -> str:
    ways = direction_set(int(snap["tx"][color, y, x]))
    return f"a word of colour {program.colors[color]} goes {ways}, where nobody takes it"


@dataclass(frozen=True)
class _Wait:
    """Why a thread does not issue, and the PE that could change it."""

    text: str
    blocker: PE | None


def _waiting_chain(
    program: Program, snap: dict, alive: np.ndarray, starts: np.ndarray
) -> tuple[list[tuple[PE, str]], tuple[str, ...]]:
    """Follow the waits from each PE of ``starts`` until they close a cycle or end.

    Args:
      program: What ran.
      snap: The state.
      alive: [Y, X] bool, PEs with a thread that has not halted.
      starts: [Y, X] bool, some of them.

    Returns:
      The PEs of the cycle (or of the chain that ends at a word nobody sends) with what each
      waits for; and the same as lines of text.
    """
    source, _ = sources(snap["rx"], snap["tx"], np.zeros(program.rx.shape, np.int64))
    best: list[tuple[PE, _Wait]] = []
    seen: set[PE] = set()
    for y, x in np.argwhere(starts):
        chain, at = [], (int(y), int(x))
        while at not in seen:
            seen.add(at)
            wait = _wait_of(program, snap, source, at)
            chain.append((at, wait))
            if wait.blocker is None or not alive[wait.blocker]:
                break
            at = wait.blocker
        places = [pe for pe, _ in chain]
        if at in places:
            cycle = chain[places.index(at) :]
            if chain[-1][1].blocker == at:
                best = cycle
                break
        if not best and chain:
            best = chain[-1:]
    lines = tuple(f"PE (y={pe[0]}, x={pe[1]}) {wait.text}" for pe, wait in best)
    return [(pe, wait.text) for pe, wait in best], lines


def _wait_of(program: Program, snap: dict, source: np.ndarray, pe: PE) -> _Wait:
    """The first live thread's reason to wait."""
    y, x = pe
    role = program.role_at(y, x)
    for t, events in enumerate(role.threads):
        number = int(snap["pc"][t, y, x])
        event = events[number]
        if isinstance(event, Halt):
            continue
        here = f"thread {t}, event {number} ({' '.join(role.describe(t, number).split())})"
        if isinstance(event, Wait):
            owners = [
                u for u, es in enumerate(role.threads) if Signal(event.semaphore) in es and u != t
            ]
            if owners and all(snap["halted"][u, y, x] for u in owners):
                return _Wait(f"{here} waits for a SIGNAL that was never given", None)
            if len(owners) == 1:
                continue
            return _Wait(f"{here} waits for a SIGNAL", pe)
        wait = _stream_wait(program, snap, source, pe, event, here)
        if wait is not None:
            return wait
    return _Wait("waits for a SIGNAL of its own threads", pe)


def _stream_wait(
    program: Program, snap: dict, source: np.ndarray, pe: PE, event: Event, here: str
) -> _Wait | None:
    y, x = pe
    width = program.hw.mesh[1]
    color = receive_color(event)
    if color is not None:
        c = program.colors.index(color)
        if snap["input_ready"][c, y, x] == 0:
            stopped = _blocked_upstream(program, snap, c, pe)
            if stopped is not None:
                return _Wait(f"{here} waits for a word held up at PE {_at(stopped)}", stopped)
            origin = int(source[c, y, x])
            if origin < 0:
                return _Wait(f"{here} waits for a word, but no PE sends on this way", None)
            sender = divmod(origin, width)
            if not _will_send(program, snap, sender, color):
                return _Wait(f"{here} waits for a word that PE {_at(sender)} never sends", None)
            return _Wait(f"{here} waits for a word from PE {_at(sender)}", sender)
    color = send_color(event)
    if color is not None:
        c = program.colors.index(color)
        holder = _blocked_downstream(program, snap, c, pe)
        if holder is None:
            return _Wait(f"{here} has no room, and its words have no way on", None)
        return _Wait(f"{here} waits for PE {_at(holder)} to receive colour {color}", holder)
    if isinstance(event, Forward):
        return _Wait(f"{here} waits", pe)
    return None


def _at(pe: PE) -> str:
    return f"(y={pe[0]}, x={pe[1]})"


def _will_send(program: Program, snap: dict, pe: PE, color: int) -> bool:
    """Whether a thread of the PE has an event on the colour at or after its current one."""
    y, x = pe
    for t, events in enumerate(program.role_at(y, x).threads):
        if snap["halted"][t, y, x]:
            continue
        if any(send_color(e) == color for e in events):
            return True
    return False


def _blocked_upstream(program: Program, snap: dict, c: int, pe: PE) -> PE | None:
    """Who keeps words of a colour from moving on towards ``pe``."""
    for y, x in _upstream(program, snap, c, pe):
        if snap["router_ready"][c, y, x] > 0:
            return _blocked_downstream(program, snap, c, (y, x))
    return None


def _under_way(program: Program, snap: dict, c: int, pe: PE) -> PE | None:
    """The nearest PE with words of a colour that come to ``pe``, if nobody keeps them there."""
    if _blocked_upstream(program, snap, c, pe) is not None:
        return None
    for y, x in _upstream(program, snap, c, pe):
        if snap["router_total"][c, y, x] > 0 or ((y, x) == pe and snap["input_total"][c, y, x] > 0):
            return y, x
    return None


def _upstream(program: Program, snap: dict, c: int, pe: PE) -> Iterator[PE]:
    """A PE and those on the way that a colour takes to it, back to the source."""
    for _ in range(program.hw.num_pes):
        yield pe
        d = int(snap["rx"][c, pe[0], pe[1]])
        if d < 0 or d == RAMP:
            return
        pe = (pe[0] + STEP_YX[d][0], pe[1] + STEP_YX[d][1])
        if not (0 <= pe[0] < program.hw.mesh[0] and 0 <= pe[1] < program.hw.mesh[1]):
            return
        if not snap["tx"][c, pe[0], pe[1]] >> OPPOSITE[d] & 1:
            return


def _blocked_downstream(program: Program, snap: dict, c: int, pe: PE) -> PE | None:
    """The PE whose thread would have to receive for the head at ``pe`` to move."""
    frontier, seen = [pe], set()
    while frontier:
        y, x = pe = frontier.pop()
        if pe in seen:
            continue
        seen.add(pe)
        tx = int(snap["tx"][c, y, x])
        if tx >> RAMP & 1 and snap["input_total"][c, y, x] > 0:
            return pe
        for d in range(4):
            ny, nx = y + STEP_YX[d][0], x + STEP_YX[d][1]
            on_mesh = 0 <= ny < program.hw.mesh[0] and 0 <= nx < program.hw.mesh[1]
            if tx >> d & 1 and on_mesh and snap["rx"][c, ny, nx] == OPPOSITE[d]:
                frontier.append((ny, nx))
    return None


def thread_status(program: Program, snap: dict, pe: PE, thread: int) -> str:
    """What a thread is at in the cycle of a snapshot, and why it does not issue, in words."""
    y, x = pe
    role = program.role_at(y, x)
    if thread >= len(role.threads) or snap["halted"][thread, y, x]:
        return f"thread {thread} has halted"
    number = int(snap["pc"][thread, y, x])
    event = role.threads[thread][number]
    here = f"thread {thread}, event {number} ({' '.join(role.describe(thread, number).split())})"
    if (ready_at := int(snap["ready_at"][thread, y, x])) > snap["now"]:
        return f"{here} may issue from cycle {ready_at} on: set-up, a kernel or a stall"
    if isinstance(event, Wait) and snap["semaphores"][event.semaphore, y, x] <= 0:
        return f"{here} waits for a SIGNAL"
    source, _ = sources(snap["rx"], snap["tx"], np.zeros(program.rx.shape, np.int64))
    color = receive_color(event)
    if color is not None and snap["input_ready"][program.colors.index(color), y, x] == 0:
        place = _under_way(program, snap, program.colors.index(color), pe)
        if place is not None:
            return f"{here} waits for a word that is on its way, at PE {_at(place)}"
        wait = _stream_wait(program, snap, source, pe, event, here)
        return wait.text if wait is not None else here
    color = send_color(event)
    if color is not None:
        c = program.colors.index(color)
        if snap["rx"][c, y, x] != RAMP:
            return f"{here} waits for its router to take colour {color} from the RAMP"
        capacity = capacities(program)[0][snap["segment"][y, x], snap["position"][c, y, x], c, y, x]
        if snap["router_total"][c, y, x] >= capacity:
            holder = _blocked_downstream(program, snap, c, pe)
            reason = "" if holder is None else f" until PE {_at(holder)} receives"
            return f"{here} waits for room on colour {color}{reason}"
    return f"{here} asks for the issue slot"
