"""The fabric executor: every PE runs its event table, routers move wavelets, cycle by cycle.

One cycle, phase by phase as in docs/semantics.md, section 2:

  advance   delay lines tick                     reads router, input
  decide    routers.decide, threads.decide       read the snapshot only
  apply     queues, pointers, semaphores, memory
  load      threads that finished an event load the next; kernels start
  skip      `now` moves to the next cycle in which anything can happen
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.faults import Fault
from wafer_jax.hardware import RAMP
from wafer_jax.lowering import Code, StepSpec, lower
from wafer_jax.mesh_state import FIRST_FAULT_SHIFT, WaferState
from wafer_jax.program import Program
from wafer_jax.step import fifo as f
from wafer_jax.step import kernels, memory, registers, routers, threads
from wafer_jax.step.halo import earliest
from wafer_jax.step.issue import Issue, select
from wafer_jax.step.reduce import or_lanes

NEVER = int(jnp.iinfo(jnp.int32).max)

_ACTIVE, _FINISHED, _STREAMED = 1, 2, 4


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def advance(
    spec: StepSpec, code: Code, state: WaferState, until: jax.Array, max_steps: jax.Array
) -> WaferState:
    """Execute cycles until stuck, until ``now >= until``, or ``max_steps`` were executed.

    Args:
      spec: Static part of the lowered program.
      code: Its arrays.
      state: Donated.
      until: [] int32, cycle at which to stop.
      max_steps: [] int32, cycles to execute at most, skipped ones not counted.
    """

    def more(carry):
        state, steps = carry
        return ~state.stuck & (state.now < until) & (steps < max_steps)

    def body(carry):
        state, steps = carry
        return cycle(spec, code, state), steps + 1

    return lax.while_loop(more, body, (state, jnp.int32(0)))[0]


def step(program: Program, state: WaferState) -> WaferState:
    """Execute one cycle of a program, and move ``now`` to the next in which anything can happen."""
    return run(program, state, max_steps=1)


def run(
    program: Program, state: WaferState, *, until: int = NEVER, max_steps: int = NEVER
) -> WaferState:
    """Execute cycles until stuck, until cycle ``until``, or ``max_steps`` of them.

    The state is donated: use the returned one.
    """
    spec, code = lower(program, values=state.memory is not None, jitter=state.jitter is not None)
    return advance(spec, code, state, jnp.int32(until), jnp.int32(max_steps))


def cycle(spec: StepSpec, code: Code, state: WaferState) -> WaferState:
    """Execute one cycle."""
    with jax.named_scope("advance"):
        router = [f.tick(spec.fifo, q) for q in state.router]
        inputs = {c: f.tick(spec.fifo, q) for c, q in zip(spec.delivered, state.input, strict=True)}
        router, inputs = lax.optimization_barrier((router, inputs))
    with jax.named_scope("decide"):
        moves = routers.decide(spec, code, router, inputs, state.color_pointer)
        issue = threads.decide(spec, code, state, router, inputs)
        if spec.can_be_unrouted:
            state = _record_unrouted(spec, code, state, router)
    with jax.named_scope("apply"):
        router, inputs = _move_words(spec, router, inputs, moves, issue)
        router, inputs, issue = lax.optimization_barrier((router, inputs, _as_tuple(issue)))
        issue = Issue(*issue)
        flags = or_lanes(spec, _flags(spec, router, inputs, moves, issue))
        state = replace(
            state,
            router=tuple(router),
            input=tuple(inputs[c] for c in spec.delivered),
            color_pointer=moves.pointer,
            thread_pointer=issue.pointer,
            left=tuple(
                n - w.astype(jnp.int32) for n, w in zip(state.left, issue.wins, strict=True)
            ),
            semaphores=_count_semaphores(spec, state, issue),
        )
        if spec.values:
            state = lax.cond(
                flags & _STREAMED != 0,
                lambda s: _stream(spec, code, s, issue),
                lambda s: s,
                state,
            )
    with jax.named_scope("load"):
        state = lax.cond(
            flags & _FINISHED != 0, lambda s: _load(spec, code, s, issue), lambda s: s, state
        )
    with jax.named_scope("skip"):
        return _next_cycle(spec, state, flags & _ACTIVE != 0)


def _as_tuple(issue: Issue) -> tuple:
    return (issue.wins, issue.pops, issue.pushes, issue.issued, issue.finished, issue.pointer)


def _move_words(
    spec: StepSpec,
    router: list[jax.Array],
    inputs: dict[int, jax.Array],
    moves: routers.Moves,
    issue: Issue,
) -> tuple[list[jax.Array], dict[int, jax.Array]]:
    """Pop and push all FIFOs."""
    fifo, inputs, out = spec.fifo, dict(inputs), []
    for c, q in enumerate(router):
        q = f.pop(fifo, q, (moves.taken[c] != 0).astype(fifo.dtype))
        q = f.push(fifo, q, moves.arriving[c].astype(fifo.dtype), spec.hop_cycles)
        if c in spec.sending:
            sent = (issue.pushes >> c & 1).astype(fifo.dtype)
            q = f.push(fifo, q, sent, 1 + spec.ramp_cycles)
        out.append(q)
    for c in spec.delivered:
        popped = (issue.pops >> c & 1).astype(fifo.dtype)
        delivered = (moves.taken[c] >> RAMP & 1).astype(fifo.dtype)
        inputs[c] = f.pop(fifo, inputs[c], popped)
        inputs[c] = f.push(fifo, inputs[c], delivered, spec.ramp_cycles)
    return out, inputs


def _flags(
    spec: StepSpec,
    router: list[jax.Array],
    inputs: dict[int, jax.Array],
    moves: routers.Moves,
    issue: Issue,
) -> jax.Array:
    """[n] uint8: bits that say what happened, reduced once per cycle."""
    active = issue.issued
    for taken in moves.taken:
        active |= taken != 0
    for q in (*router, *inputs.values()):
        active |= f.pending(spec.fifo, q)
    colors = (1 << spec.colors) - 1
    streamed = (issue.pops | issue.pushes) & colors != 0
    return (
        jnp.where(active, _ACTIVE, 0)
        | jnp.where(issue.finished, _FINISHED, 0)
        | jnp.where(streamed, _STREAMED, 0)
    ).astype(jnp.uint8)


def _count_semaphores(spec: StepSpec, state: WaferState, issue: Issue) -> tuple[jax.Array, ...]:
    return tuple(
        n + (issue.pushes >> b & 1).astype(jnp.int32) - (issue.pops >> b & 1).astype(jnp.int32)
        for b, n in enumerate(state.semaphores, start=spec.colors)
    )


def _load(spec: StepSpec, code: Code, state: WaferState, issue: Issue) -> WaferState:
    old = threads.finished_rows(spec, code, state, issue)
    duration = threads.durations(spec, code, state, old)
    if spec.registers:
        state = registers.operate(code, state, issue, old)
    if spec.kernels:
        state, faults = kernels.start(spec, code, state, issue, old, duration)
        state = _record(spec, state, faults, _where(spec, state, issue))
    changed, row = threads.load_next(spec, code, state, issue, old, duration)
    if state.memory is not None:
        received = dict(zip(spec.delivered, changed["received"], strict=True))
        sent = dict(zip(spec.sending, changed["sent"], strict=True))
        changed["memory"] = memory.load_event(
            spec, code, state.memory, issue, row, (received, sent)
        )
    return replace(state, **changed)


def _stream(spec: StepSpec, code: Code, state: WaferState, issue: Issue) -> WaferState:
    assert state.memory is not None
    store, faults = memory.stream(spec, code, state.now, state.memory, issue)
    return _record(spec, replace(state, memory=store), faults, _where(spec, state, issue))


def _where(spec: StepSpec, state: WaferState, issue: Issue) -> jax.Array:
    """[n] int32: thread << 16 | event of the winner."""
    number = tuple(jnp.int32(t << 16) for t in range(spec.threads))
    return select(issue.wins, number) | select(issue.wins, state.pc)


def _record(spec: StepSpec, state: WaferState, bits: jax.Array, where: jax.Array) -> WaferState:
    """Add fault bits; the first fault of a PE keeps its cycle and place."""
    first = (state.fault == 0) & (bits != 0)
    return replace(
        state,
        fault=state.fault | bits,
        fault_cycle=jnp.where(first, state.now, state.fault_cycle),
        fault_where=jnp.where(first, where | bits << FIRST_FAULT_SHIFT, state.fault_where),
    )


def _record_unrouted(
    spec: StepSpec, code: Code, state: WaferState, router: list[jax.Array]
) -> WaferState:
    bits = color = jnp.zeros(spec.lanes, jnp.int32)
    for c, bad in reversed(list(enumerate(routers.unrouted_heads(spec, code, router)))):
        bits = jnp.where(bad, int(Fault.UNROUTED), bits)
        color = jnp.where(bad, c, color)
    return _record(spec, state, bits, color)


def _next_cycle(spec: StepSpec, state: WaferState, active: jax.Array) -> WaferState:
    """The next cycle in which anything can happen; none: the run is stuck."""

    def wake(state: WaferState) -> jax.Array:
        due = jnp.full(spec.lanes, NEVER, jnp.int32)
        for ready_at, need in zip(state.ready_at, state.need_in, strict=True):
            waits = (ready_at > state.now) & (need & spec.halt_bit == 0)
            due = jnp.minimum(due, jnp.where(waits, ready_at, NEVER))
        return jnp.min(due)

    # Whoever wakes up does so after now + 1, so the earliest is right if only some are active.
    following = earliest(spec, lax.cond(active, lambda s: s.now + 1, wake, state))
    stuck = following == NEVER
    return replace(state, now=jnp.where(stuck, state.now, following), stuck=stuck)
