"""The PE's threads: who issues, and what the finished events lead to (semantics, section 2.2)."""

import jax
import jax.numpy as jnp

from wafer_jax.hardware import RAMP
from wafer_jax.jitter import stall
from wafer_jax.mesh_state import WaferState
from wafer_jax.step import fifo as f
from wafer_jax.step import packets, registers
from wafer_jax.step.halo import pe_numbers
from wafer_jax.step.issue import Issue, select
from wafer_jax.step_spec import Code, StepSpec
from wafer_jax.validation import MAX_KERNEL_CYCLES


def decide(
    spec: StepSpec,
    routes: list[jax.Array],
    state: WaferState,
    router: list[jax.Array],
    inputs: dict[int, jax.Array],
) -> tuple[Issue, Issue | None]:
    """Choose who issues, on the snapshot after the delay lines advanced.

    Returns:
      The thread that takes the slot; where some streams are wide, the one that shares it.
    """
    asking = requests(spec, routes, state, router, inputs)
    wins, pointer = _grant(spec, asking, state.thread_pointer)
    first = _issue(state, wins, pointer)
    if not spec.pairs:
        return first, None
    half = first.pushes & spec.pair_bit != 0
    colors = (1 << spec.colors) - 1
    ramp_free = first.pushes & colors == 0
    asking = [
        ask & half & ~win & (needs & spec.pair_bit != 0) & (ramp_free | (needs & colors == 0))
        for ask, win, needs in zip(asking, wins, state.need_out, strict=True)
    ]
    return first, _issue(state, *_grant(spec, asking, pointer))


def _issue(state: WaferState, wins: list[jax.Array], pointer: jax.Array | None) -> Issue:
    left = select(wins, state.left)
    return Issue(
        wins=wins,
        pops=select(wins, state.need_in),
        pushes=select(wins, state.need_out),
        issued=left > 0,
        finished=left == 1,
        pointer=pointer,
    )


def requests(
    spec: StepSpec,
    routes: list[jax.Array],
    state: WaferState,
    router: list[jax.Array],
    inputs: dict[int, jax.Array],
) -> list[jax.Array]:
    """T arrays [n] bool: the thread requests the issue slot."""
    available, room = _resources(spec, routes, state, router, inputs)
    asking = [
        (state.ready_at[t] <= state.now)
        & (((state.need_in[t] & ~available) | (state.need_out[t] & ~room)) == 0)
        for t in range(spec.threads)
    ]
    if state.slot_free is not None:
        asking = [request & (state.slot_free <= state.now) for request in asking]
    return asking


def _resources(
    spec: StepSpec,
    routes: list[jax.Array],
    state: WaferState,
    router: list[jax.Array],
    inputs: dict[int, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """Masks [n]: colours with a ready word and positive semaphores; colours with room."""
    dtype, fifo = spec.mask_dtype, spec.fifo
    available = jnp.zeros(spec.lanes, dtype)
    always = ((1 << spec.semaphores) - 1) << spec.colors | spec.pair_bit
    room = jnp.full(spec.lanes, always, dtype)
    for c in spec.delivered:
        available |= (f.ready(fifo, inputs[c]) > 0).astype(dtype) << c
    for s, count in enumerate(state.semaphores):
        available |= (count > 0).astype(dtype) << (spec.colors + s)
    for c in spec.sending:
        capacity = routes[c] >> 8 & ((1 << fifo.count_bits) - 1)
        free = f.total(fifo, router[c]) < capacity
        if c in spec.dynamic:
            free &= routes[c] >> 5 & 7 == RAMP + 1
        room |= free.astype(dtype) << c
    return available, room


def _grant(
    spec: StepSpec, requests: list[jax.Array], pointer: jax.Array | None
) -> tuple[list[jax.Array], jax.Array | None]:
    """Give the slot to the first requesting thread in cyclic order from the pointer."""
    if pointer is None:
        return requests, None
    count = spec.threads
    everyone = (1 << count) - 1
    wide = [r.astype(jnp.int32) << t for t, r in enumerate(requests)]
    asked = sum(wide[1:], wide[0])
    turn = pointer.astype(jnp.int32)
    rotated = (asked >> turn | asked << (count - turn)) & everyone
    first = rotated & -rotated
    winner = (first << turn | first >> (count - turn)) & everyone
    wins = [(winner >> t & 1) == 1 for t in range(count)]
    for t, win in enumerate(wins):
        pointer = jnp.where(win, jnp.int16((t + 1) % count), pointer)
    return wins, pointer


def finished_rows(spec: StepSpec, code: Code, state: WaferState, issue: Issue) -> jax.Array:
    """[n] int32: position in the table of the event that the winner issued."""
    return _table_start(spec, code, issue) + select(issue.wins, state.pc)


def _table_start(spec: StepSpec, code: Code, issue: Issue) -> jax.Array:
    starts = tuple(jnp.int32(t * spec.events) for t in range(spec.threads))
    return code.role + select(issue.wins, starts)


def durations(spec: StepSpec, code: Code, state: WaferState, old: jax.Array) -> jax.Array:
    """[n] int32: cycles of the kernel that the winner issued, 0 for other events."""
    if not spec.computes:
        return jnp.int32(0)
    cycles = code.table["duration"][old]
    if state.registers is None:
        return cycles
    register = code.table["cycles_from"][old]
    held = jnp.clip(registers.read(state.registers, register), 1, MAX_KERNEL_CYCLES)
    return jnp.where(register >= 0, held, cycles)


def load_next(
    spec: StepSpec,
    code: Code,
    state: WaferState,
    issue: Issue,
    old: jax.Array,
    duration: jax.Array,
) -> tuple[dict, dict[str, jax.Array]]:
    """Advance the threads that finished an event; the registers have changed already.

    Args:
      spec: Static part.
      code: Arrays.
      state: Before the event's successor is loaded.
      issue: The winners.
      old: [n] int32, position in the table of the finished event.
      duration: [n] int32, see `durations`.

    Returns:
      The changed fields of the state, and the loaded event's fields [n].
    """
    done, wins, table = issue.finished, issue.wins, code.table
    start, pc = _table_start(spec, code, issue), select(wins, state.pc)
    following, counters = _jump(spec, table, state, issue, old, pc)
    if state.registers is not None:
        following = registers.branch(table, state.registers, old, following)
    new = start + following
    row = {name: column[new] for name, column in table.items()}
    length = row["words"]
    if spec.dynamic_lengths:
        row, length = _read_length(state, row)
    if spec.packets:
        length = packets.count(state, length)
    ready_at = state.now + packets.occupied(spec, state, issue, duration) + row["setup"]
    if spec.jitter:
        ready_at += _stall(spec, state, issue, row)

    def update(planes: tuple[jax.Array, ...], value: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(
            jnp.where(w & done, value.astype(p.dtype), p) for w, p in zip(wins, planes, strict=True)
        )

    moved = select(wins, state.length) if spec.dynamic_lengths else table["words"][old]
    if spec.packets and not spec.dynamic_lengths:
        moved = packets.count(state, moved)
    words = jnp.where(done, moved, 0)
    changed = {
        "pc": update(state.pc, following),
        "left": update(state.left, length),
        "ready_at": update(state.ready_at, ready_at),
        "need_in": update(state.need_in, row["need_in"]),
        "need_out": update(state.need_out, row["need_out"]),
        "loop_counters": counters,
        "sent": _count(spec.sending, state.sent, issue.pushes, words),
        "received": _count(spec.delivered, state.received, issue.pops, words),
    }
    if spec.computes:
        assert state.compute_cycles is not None
        changed["compute_cycles"] = state.compute_cycles + jnp.where(done, duration, 0)
    if spec.dynamic_lengths:
        changed["length"] = update(state.length, length)
    if spec.controls:
        changed["control"] = update(state.control, row["control"])
    if spec.jitter:
        changed["loads"] = tuple(
            n + (w & done).astype(jnp.int32) for n, w in zip(state.loads, wins, strict=True)
        )
    return changed, row


def _read_length(
    state: WaferState, row: dict[str, jax.Array]
) -> tuple[dict[str, jax.Array], jax.Array]:
    """The loaded event with its length from a register; without words it needs nothing."""
    assert state.registers is not None
    dynamic = row["words_from"] >= 0
    held = registers.read(state.registers, row["words_from"])
    empty = dynamic & (held <= 0)
    nothing = {name: jnp.where(empty, 0, row[name]) for name in ("need_in", "need_out", "mode")
               if name in row}  # fmt: skip
    return row | nothing, jnp.where(dynamic, jnp.maximum(held, 1), row["words"])


def _stall(spec: StepSpec, state: WaferState, issue: Issue, row: dict[str, jax.Array]) -> jax.Array:
    """[n] int32: cycles that the loaded event is late."""
    assert state.jitter is not None
    thread = select(issue.wins, tuple(jnp.int32(t) for t in range(spec.threads)))
    ordinal = select(issue.wins, state.loads)
    late = stall(state.jitter[0], pe_numbers(spec), thread, ordinal, state.jitter[2])
    return jnp.where(row["need_in"] & spec.halt_bit != 0, 0, late)


def _count(
    colors: tuple[int, ...], counts: tuple[jax.Array, ...], mask: jax.Array, words: jax.Array
) -> tuple[jax.Array, ...]:
    return tuple(
        n + jnp.where(mask >> c & 1 == 1, words, 0) for c, n in zip(colors, counts, strict=True)
    )


def _jump(
    spec: StepSpec,
    table: dict[str, jax.Array],
    state: WaferState,
    issue: Issue,
    old: jax.Array,
    pc: jax.Array,
) -> tuple[jax.Array, tuple]:
    """The index of the next event, and the loop counters after it."""
    if not spec.levels:
        return pc + 1, state.loop_counters
    count, level = table["count"][old], table["level"][old]
    looping = issue.finished & (count > 0)
    again = jnp.zeros(spec.lanes, bool)
    counters = []
    for l, planes in enumerate(state.loop_counters):
        here = looping & (level == l)
        rounds = select(issue.wins, planes) + 1
        repeat = here & (rounds < count)
        again |= repeat
        kept = jnp.where(repeat, rounds, 0)
        counters.append(
            tuple(jnp.where(w & here, kept, p) for w, p in zip(issue.wins, planes, strict=True))
        )
    return jnp.where(again, table["first"][old], pc + 1), tuple(counters)
