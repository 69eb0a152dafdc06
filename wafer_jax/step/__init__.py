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
from wafer_jax.mesh_state import FIRST_FAULT_SHIFT, WaferState, lowered
from wafer_jax.program import Program
from wafer_jax.step import (
    dynamic,
    kernels,
    memory,
    packets,
    registers,
    routers,
    slots,
    threads,
    watchdog,
)
from wafer_jax.step import fifo as f
from wafer_jax.step.halo import agree
from wafer_jax.step.issue import Issue, select, together
from wafer_jax.step.reduce import or_lanes
from wafer_jax.step_spec import Code, StepSpec

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
        ended = state.stuck if state.starved is None else state.stuck | state.starved
        return ~ended & (state.now < until) & (steps < max_steps)

    def body(carry):
        state, steps = carry
        return cycle(spec, code, state), steps + 1

    return lax.while_loop(more, body, (state, jnp.int32(0)))[0]


def advance_until_edge(
    spec: StepSpec,
    code: Code,
    state: WaferState,
    until: jax.Array,
    wake: jax.Array,
    edges: jax.Array,
) -> WaferState:
    """Execute cycles of a part of the wafer as long as they do not concern the rest.

    Args:
      spec: Static part of the lowered program, for the part's mesh.
      code: Its arrays, those of the part's lanes.
      state: The part's.
      until: [] int32, cycle at which to stop.
      wake: [] int32, cycle in which something happens elsewhere, or NEVER.
      edges: [2] bool, the wafer goes on beyond the part's first, and last, row.
    """

    def more(state):
        inside = state.now < jnp.minimum(until, wake)
        return ~state.stuck & inside & ~(_at_edges(spec, state) & edges).any()

    return lax.while_loop(more, lambda state: cycle(spec, code, state, wake), state)


def _at_edges(spec: StepSpec, state: WaferState) -> jax.Array:
    """[2] bool: there are words in the first, and in the last, row."""
    words = jnp.zeros(2, bool)
    for q in (*state.router, *state.input):
        ends = jnp.stack([q[: spec.row], q[-spec.row :]])
        words |= (ends != 0).any(axis=1)
    return words


def step(program: Program, state: WaferState) -> WaferState:
    """Execute one cycle of a program, and move ``now`` to the next in which anything can happen."""
    return run(program, state, max_steps=1)


def run(
    program: Program, state: WaferState, *, until: int = NEVER, max_steps: int = NEVER
) -> WaferState:
    """Execute cycles until stuck, until cycle ``until``, or ``max_steps`` of them.

    The state is donated: use the returned one.
    """
    spec, code = lowered(program, state)
    return advance(spec, code, state, jnp.int32(until), jnp.int32(max_steps))


def cycle(
    spec: StepSpec, code: Code, state: WaferState, wake: jax.Array | int = NEVER
) -> WaferState:
    """Execute one cycle, and go to the next in which anything can happen, at most to ``wake``."""
    with jax.named_scope("advance"):
        router = [f.tick(spec.fifo, q) for q in state.router]
        inputs = {c: f.tick(spec.fifo, q) for c, q in zip(spec.delivered, state.input, strict=True)}
        router, inputs = lax.optimization_barrier((router, inputs))
    with jax.named_scope("decide"):
        routes = dynamic.current_routes(spec, code, state)
        controls = dynamic.control_heads(spec, state)
        carried = slots.heads(spec, state)
        moves = routers.decide(
            spec,
            routes,
            router,
            inputs,
            controls,
            packets.busy_links(state),
            state.color_pointer,
            carried,
        )
        first, second = threads.decide(spec, routes, state, router, inputs)
        issue = together(first, second)
        state = _record_decisions(spec, code, state, router, moves, issue)
    with jax.named_scope("apply"):
        before = router, inputs
        router, inputs = _move_words(spec, router, inputs, moves, issue, controls)
        router, inputs, first, second, issue = _barrier(router, inputs, first, second, issue)
        flags = or_lanes(spec, _flags(spec, moves, issue))
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
        pushed = []
        if spec.values:
            nothing = [jnp.zeros(spec.lanes, jnp.uint32)] * (1 if second is None else 2)
            state, pushed = lax.cond(
                flags & _STREAMED != 0,
                lambda s: _stream(spec, code, s, first, second),
                lambda s: (s, nothing),
                state,
            )
        state = packets.occupy(spec, state, moves, issue)
        if spec.dynamic or spec.carried:
            switched = dynamic.apply_commands(spec, code, state, moves)
            issues = [first] if second is None else [first, second]
            sent = list(zip(issues, pushed, strict=bool(pushed)))
            state = slots.move(spec, switched, *before, moves, issue, sent)
            state = replace(state, passed=dynamic.count_passed(spec, state, moves))
    with jax.named_scope("load"):
        state = lax.cond(
            flags & _FINISHED != 0,
            lambda s: _load(spec, code, s, first, second),
            lambda s: s,
            state,
        )
    with jax.named_scope("skip"):
        return _next_cycle(spec, state, flags & _ACTIVE != 0, wake)


def _barrier(router, inputs, *issues: Issue | None) -> tuple:
    """The arguments, as values that XLA does not look through."""
    fields = [None if i is None else vars(i) for i in issues]
    router, inputs, fields = lax.optimization_barrier((router, inputs, fields))
    return router, inputs, *(None if f is None else Issue(**f) for f in fields)


def _move_words(
    spec: StepSpec,
    router: list[jax.Array],
    inputs: dict[int, jax.Array],
    moves: routers.Moves,
    issue: Issue,
    controls: dict[int, jax.Array],
) -> tuple[list[jax.Array], dict[int, jax.Array]]:
    """Pop and push all FIFOs."""
    fifo, inputs, out = spec.fifo, dict(inputs), []
    for c, q in enumerate(router):
        q = f.pop(fifo, q, (moves.taken[c] != 0).astype(fifo.dtype))
        push = f.push_behind if c in spec.dynamic else f.push
        q = push(fifo, q, moves.arriving[c].astype(fifo.dtype), spec.hop_cycles)
        if c in spec.sending:
            sent = (issue.pushes >> c & 1).astype(fifo.dtype)
            q = push(fifo, q, sent, 1 + spec.ramp_cycles)
        out.append(q)
    for c in spec.delivered:
        popped = (issue.pops >> c & 1).astype(fifo.dtype)
        delivered = (moves.taken[c] >> RAMP & 1).astype(fifo.dtype)
        if c in controls:
            delivered = jnp.where(controls[c], 0, delivered)
        inputs[c] = f.pop(fifo, inputs[c], popped)
        inputs[c] = f.push(fifo, inputs[c], delivered, spec.ramp_cycles)
    return out, inputs


def _flags(spec: StepSpec, moves: routers.Moves, issue: Issue) -> jax.Array:
    """[n] uint8: bits that say what happened, reduced once per cycle."""
    active = issue.issued
    for taken in moves.taken:
        active |= taken != 0
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


def _load(
    spec: StepSpec, code: Code, state: WaferState, first: Issue, second: Issue | None
) -> WaferState:
    state = _load_for(spec, code, state, first)
    if second is None:
        return state
    # It was a stream: no registers, no segment, no kernel.
    old = threads.finished_rows(spec, code, state, second)
    return _load_next(spec, code, state, second, old, jnp.zeros(spec.lanes, jnp.int32))


def _load_for(spec: StepSpec, code: Code, state: WaferState, issue: Issue) -> WaferState:
    old = threads.finished_rows(spec, code, state, issue)
    duration = threads.durations(spec, code, state, old)
    if spec.registers:
        state = registers.operate(code, state, issue, old)
    if "segment" in code.table:
        state, faults = dynamic.reconfigure(spec, code, state, issue, old)
        state = _record(spec, state, faults, _where(spec, state, issue))
    if spec.kernels:
        state, faults = kernels.start(spec, code, state, issue, old, duration)
        state = _record(spec, state, faults, _where(spec, state, issue))
    return _load_next(spec, code, state, issue, old, duration)


def _load_next(
    spec: StepSpec,
    code: Code,
    state: WaferState,
    issue: Issue,
    old: jax.Array,
    duration: jax.Array,
) -> WaferState:
    changed, row = threads.load_next(spec, code, state, issue, old, duration)
    if state.memory is not None:
        received = dict(zip(spec.delivered, changed["received"], strict=True))
        sent = dict(zip(spec.sending, changed["sent"], strict=True))
        changed["memory"] = memory.load_event(
            spec, code, state.memory, issue, row, (received, sent)
        )
    return replace(state, **changed)


def _stream(
    spec: StepSpec, code: Code, state: WaferState, first: Issue, second: Issue | None
) -> tuple[WaferState, list[jax.Array]]:
    """Move the words of this cycle; also the payloads [n] uint32 that each winner pushes."""
    pushed = []
    for issue in (first, second):
        if issue is None:
            continue
        assert state.memory is not None
        store, faults, word = memory.stream(spec, code, state.now, state.memory, issue)
        state = _record(spec, replace(state, memory=store), faults, _where(spec, state, issue))
        pushed.append(word)
    return state, pushed


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


def _record_decisions(
    spec: StepSpec,
    code: Code,
    state: WaferState,
    router: list[jax.Array],
    moves: routers.Moves,
    issue: Issue,
) -> WaferState:
    """Faults that the decisions of the cycle show."""
    if spec.can_be_unrouted or spec.dynamic:
        bits = color = jnp.zeros(spec.lanes, jnp.int32)
        heads = routers.unrouted_heads(spec, code, router, moves)
        for c in sorted(heads, reverse=True):
            bits = jnp.where(heads[c], int(Fault.UNROUTED), bits)
            color = jnp.where(heads[c], c, color)
        state = _record(spec, state, bits, color)
    if spec.segments > 1:
        state = _record(spec, state, *dynamic.mixed_segments(spec, code, state, moves))
    if spec.watchdog:
        bits, where = watchdog.starving(spec, state, issue)
        state = watchdog.watch(spec, _record(spec, state, bits, where), issue, bits)
    return state


def _next_cycle(
    spec: StepSpec, state: WaferState, active: jax.Array, wake: jax.Array | int
) -> WaferState:
    """The next cycle in which anything can happen; none: the run is stuck."""
    following = lax.cond(active, lambda s: s.now + 1, partial(_next_pending, spec), state)
    # What is pending is pending after now + 1, so the earliest is right if only some are active.
    following, starved = agree(spec, following, state.starved)
    following = jnp.minimum(following, wake)
    stuck = following == NEVER
    idle = following - state.now - 1

    def skip(fifos):
        return jax.tree.map(lambda q: f.skip(spec.fifo, q, idle), fifos)

    router, inputs = lax.cond(
        (idle > 0) & ~stuck, skip, lambda fifos: fifos, (state.router, state.input)
    )
    return replace(
        state,
        router=router,
        input=inputs,
        now=jnp.where(stuck, state.now, following),
        stuck=stuck,
        starved=starved,
    )


def _next_pending(spec: StepSpec, state: WaferState) -> jax.Array:
    """[] int32: the first later cycle for which something is pending, or NEVER."""
    due = jnp.full(spec.lanes, NEVER, jnp.int32)
    for ready_at, need in zip(state.ready_at, state.need_in, strict=True):
        waits = (ready_at > state.now) & (need & spec.halt_bit == 0)
        due = jnp.minimum(due, jnp.where(waits, ready_at, NEVER))
    for free in (*state.link_free, *(() if state.slot_free is None else (state.slot_free,))):
        due = jnp.minimum(due, jnp.where(free > state.now, free, NEVER))
    line = jnp.zeros(spec.lanes, spec.fifo.dtype)
    for q in (*state.router, *state.input):
        line |= f.line(spec.fifo, q)
    lines = or_lanes(spec, line).astype(jnp.int32)
    lowest = lax.population_count((lines & -lines) - 1)
    in_line = jnp.where(lines != 0, state.now + 1 + lowest, NEVER)
    return jnp.minimum(jnp.min(due), in_line)
