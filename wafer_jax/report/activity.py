"""What every thread of every PE does in a cycle, read off the states before and after it.

Axes: C colours, D delivered colours, T threads, n lanes (see lowering.py).
"""

from dataclasses import dataclass
from enum import IntEnum

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.hardware import RAMP
from wafer_jax.mesh_state import WaferState
from wafer_jax.step import fifo as f
from wafer_jax.step.dynamic import current_routes
from wafer_jax.step_spec import Code, StepSpec

COLOR_BITS = 5
"""A code is ``activity << COLOR_BITS | colour index``; there are fewer than 30 colours."""


class Activity(IntEnum):
    """What a thread does in a cycle; a PE does the greatest of what its threads do."""

    HALTED = 0
    NEEDS_SIGNAL = 1
    NEEDS_ROOM = 2
    NEEDS_WORD = 3
    NEEDS_SLOT = 4
    STARTING = 5
    CONTROL = 6
    FORWARDING = 7
    RECEIVING = 8
    SENDING = 9
    COMPUTING = 10


MEANING = {
    Activity.HALTED: "halted",
    Activity.NEEDS_SIGNAL: "waits for a signal",
    Activity.NEEDS_ROOM: "waits for room",
    Activity.NEEDS_WORD: "waits for a word",
    Activity.NEEDS_SLOT: "waits for the issue slot",
    Activity.STARTING: "sets up or stalls",
    Activity.CONTROL: "control event",
    Activity.FORWARDING: "forwards",
    Activity.RECEIVING: "receives",
    Activity.SENDING: "sends",
    Activity.COMPUTING: "computes",
}
WAITS = (Activity.NEEDS_SIGNAL, Activity.NEEDS_ROOM, Activity.NEEDS_WORD)
COLORED = (
    Activity.NEEDS_ROOM,
    Activity.NEEDS_WORD,
    Activity.FORWARDING,
    Activity.RECEIVING,
    Activity.SENDING,
)


@dataclass(frozen=True)
class Observation:
    """One cycle.

    Attributes:
      threads: T arrays [n] uint16, code of each thread.
      taken: C arrays [n] int32, the transmit set that the head left through, 0 if it stayed.
      busy_until: T arrays [n] int32, end of the last kernel of each thread.
    """

    threads: list[jax.Array]
    taken: list[jax.Array]
    busy_until: tuple[jax.Array, ...]

    @property
    def pe(self) -> jax.Array:
        """[n] uint16: code of each PE."""
        out = self.threads[0]
        for code in self.threads[1:]:
            out = jnp.maximum(out, code)
        return out


def observe(
    spec: StepSpec,
    code: Code,
    before: WaferState,
    after: WaferState,
    busy_until: tuple[jax.Array, ...],
) -> Observation:
    """Say what happened between two states that are one cycle apart.

    Args:
      spec: Static part.
      code: Arrays.
      before: The state of a cycle.
      after: ``cycle(before)``.
      busy_until: As in the observation of the cycle before, zeros at first.
    """
    fifo = spec.fifo
    router = [f.tick(fifo, q) for q in before.router]
    inputs = [f.tick(fifo, q) for q in before.input]
    available = _mask(
        (c, f.ready(fifo, q) > 0) for c, q in zip(spec.delivered, inputs, strict=True)
    )
    signalled = _mask((spec.colors + s, n > 0) for s, n in enumerate(before.semaphores))
    routes = current_routes(spec, code, before)
    full = _mask((c, ~_has_room(spec, routes[c], router[c])) for c in spec.sending)
    issued = [
        (a != b) | (c != d)
        for a, b, c, d in zip(after.left, before.left, after.ready_at, before.ready_at, strict=True)
    ]
    if before.compute_cycles is not None and after.compute_cycles is not None:
        duration = after.compute_cycles - before.compute_cycles
        busy_until = tuple(
            jnp.where(i & (duration > 0), before.now + duration, b)
            for i, b in zip(issued, busy_until, strict=True)
        )
    missing = ~(available | signalled)
    threads = []
    for t in range(spec.threads):
        need_in = before.need_in[t].astype(jnp.int32)
        need_out = before.need_out[t].astype(jnp.int32)
        activity = _idle(spec, before, t, need_in & missing, need_out & full)
        activity = jnp.where(issued[t], _issue(spec, need_in, need_out), activity)
        activity = jnp.where(busy_until[t] > before.now, Activity.COMPUTING << COLOR_BITS, activity)
        threads.append(activity.astype(jnp.uint16))
    taken = [
        left * (route & 31).astype(jnp.int32)
        for left, route in zip(popped(spec, before.router, after.router), routes, strict=True)
    ]
    threads, taken = lax.optimization_barrier((threads, taken))
    return Observation(threads, taken, busy_until)


def popped(
    spec: StepSpec, before: tuple[jax.Array, ...], after: tuple[jax.Array, ...]
) -> list[jax.Array]:
    """Per queue [n] int32: 1 where its head left between two states a cycle apart."""
    return [
        f.ready(spec.fifo, f.tick(spec.fifo, q)).astype(jnp.int32)
        - f.ready(spec.fifo, r).astype(jnp.int32)
        for q, r in zip(before, after, strict=True)
    ]


def _mask(bits) -> jax.Array:
    out = jnp.int32(0)
    for bit, plane in bits:
        out = out | plane.astype(jnp.int32) << bit
    return out


def _has_room(spec: StepSpec, routes: jax.Array, router: jax.Array) -> jax.Array:
    """[n] bool: the router FIFO takes a word from a thread."""
    capacity = routes >> 8 & ((1 << spec.fifo.count_bits) - 1)
    return (routes >> 5 & 7 == RAMP + 1) & (f.total(spec.fifo, router) < capacity)


def _color(spec: StepSpec, mask: jax.Array) -> jax.Array:
    """[n] int32: index of the only colour in a mask, 0 if there is none."""
    out = jnp.zeros_like(mask)
    for c in range(1, spec.colors):
        out += c * (mask >> c & 1)
    return out


def _issue(spec: StepSpec, need_in: jax.Array, need_out: jax.Array) -> jax.Array:
    """[n] int32: code of an issue with these needs."""
    colors = (1 << spec.colors) - 1
    pops, pushes = need_in & colors, need_out & colors
    activity = jnp.where(
        pops != 0,
        jnp.where(pushes != 0, Activity.FORWARDING, Activity.RECEIVING),
        jnp.where(pushes != 0, Activity.SENDING, Activity.CONTROL),
    )
    color = _color(spec, jnp.where(pops != 0, pops, pushes))
    return activity.astype(jnp.int32) << COLOR_BITS | color


def _idle(
    spec: StepSpec, state: WaferState, t: int, no_word: jax.Array, no_room: jax.Array
) -> jax.Array:
    """[n] int32: code of a thread that does not issue, given what it lacks."""
    colors = (1 << spec.colors) - 1
    activity = jnp.where(no_room & colors != 0, Activity.NEEDS_ROOM, Activity.NEEDS_SLOT)
    activity = jnp.where(no_word & colors != 0, Activity.NEEDS_WORD, activity)
    activity = jnp.where(no_word & ~colors != 0, Activity.NEEDS_SIGNAL, activity)
    activity = jnp.where(state.ready_at[t] > state.now, Activity.STARTING, activity)
    halted = state.need_in[t] & spec.halt_bit != 0
    activity = jnp.where(halted, Activity.HALTED, activity).astype(jnp.int32)
    waits = (activity == Activity.NEEDS_WORD) | (activity == Activity.NEEDS_ROOM)
    color = _color(spec, jnp.where(activity == Activity.NEEDS_WORD, no_word, no_room) & colors)
    return activity << COLOR_BITS | jnp.where(waits, color, 0)
