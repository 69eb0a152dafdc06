"""The PE's threads: who issues, and what the finished events lead to (semantics, section 2.2)."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from wafer_jax.lowering import Code, StepSpec
from wafer_jax.mesh_state import WaferState
from wafer_jax.step import fifo as f


@dataclass(frozen=True)
class Issue:
    """The thread that issues on each PE in a cycle.

    Attributes:
      wins: T arrays [n] bool, at most one of them holds per lane.
      pops: [n] mask of the colours and semaphores popped.
      pushes: [n] mask of those pushed.
      issued: [n] bool.
      finished: [n] bool, the issue was the event's last.
      pointer: [n] int16, next issue slot pointer, or None.
    """

    wins: list[jax.Array]
    pops: jax.Array
    pushes: jax.Array
    issued: jax.Array
    finished: jax.Array
    pointer: jax.Array | None


def select(wins: list[jax.Array], planes: tuple[jax.Array, ...]) -> jax.Array:
    """[n]: the winner's value, 0 where nobody issues."""
    out = jnp.where(wins[0], planes[0], 0)
    for win, plane in zip(wins[1:], planes[1:], strict=True):
        out = jnp.where(win, plane, out)
    return out


def decide(
    spec: StepSpec,
    code: Code,
    state: WaferState,
    router: list[jax.Array],
    inputs: dict[int, jax.Array],
) -> Issue:
    """Choose the thread that issues, on the snapshot after the delay lines advanced."""
    available, room = _resources(spec, code, state, router, inputs)
    requests = [
        (state.ready_at[t] <= state.now)
        & (((state.need_in[t] & ~available) | (state.need_out[t] & ~room)) == 0)
        for t in range(spec.threads)
    ]
    wins, pointer = _grant(spec, requests, state.thread_pointer)
    left = select(wins, state.left)
    return Issue(
        wins=wins,
        pops=select(wins, state.need_in),
        pushes=select(wins, state.need_out),
        issued=left > 0,
        finished=left == 1,
        pointer=pointer,
    )


def _resources(
    spec: StepSpec,
    code: Code,
    state: WaferState,
    router: list[jax.Array],
    inputs: dict[int, jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """Masks [n]: colours with a ready word and positive semaphores; colours with room."""
    dtype, fifo = spec.mask_dtype, spec.fifo
    available = jnp.zeros(spec.lanes, dtype)
    room = jnp.full(spec.lanes, ((1 << spec.semaphores) - 1) << spec.colors, dtype)
    for c in spec.delivered:
        available |= (f.ready(fifo, inputs[c]) > 0).astype(dtype) << c
    for s, count in enumerate(state.semaphores):
        available |= (count > 0).astype(dtype) << (spec.colors + s)
    for c in spec.sending:
        capacity = code.routes[c] >> 8 & ((1 << fifo.count_bits) - 1)
        room |= (f.total(fifo, router[c]) < capacity).astype(dtype) << c
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


def load_next(
    spec: StepSpec, code: Code, state: WaferState, issue: Issue
) -> tuple[dict, jax.Array, dict[str, jax.Array]]:
    """Advance the threads that finished an event.

    Returns:
      The changed fields of the state; the finished event's position in the table [n]; and the
      loaded event's fields [n].
    """
    done, wins, table = issue.finished, issue.wins, code.table
    thread_start = select(wins, tuple(jnp.int32(t * spec.events) for t in range(spec.threads)))
    start = code.role + thread_start
    pc = select(wins, state.pc)
    old = start + pc
    following, counters = _jump(spec, table, state, issue, old, pc)
    duration = table["duration"][old] if spec.computes else jnp.int32(0)
    new = start + following
    row = {name: column[new] for name, column in table.items()}
    ready_at = state.now + jnp.maximum(duration, 1) + row["setup"]

    def update(planes: tuple[jax.Array, ...], value: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(
            jnp.where(w & done, value.astype(p.dtype), p) for w, p in zip(wins, planes, strict=True)
        )

    words = jnp.where(done, table["words"][old], 0)
    changed = {
        "pc": update(state.pc, following),
        "left": update(state.left, row["words"]),
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
    return changed, old, row


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
