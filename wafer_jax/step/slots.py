"""What travels with the words of a FIFO: marks, and payloads of carried colours.

[slots, n] arrays, the head in row 0; a pop moves every row up by one.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp

from wafer_jax.hardware import RAMP
from wafer_jax.mesh_state import WaferState
from wafer_jax.step import dynamic, routers
from wafer_jax.step import fifo as f
from wafer_jax.step.halo import Edges
from wafer_jax.step.issue import Issue
from wafer_jax.step.routers import Moves
from wafer_jax.step_spec import StepSpec


def shift(slots: jax.Array, popped: jax.Array) -> jax.Array:
    """Drop the heads where ``popped`` [n] holds."""
    following = jnp.concatenate([slots[1:], slots[-1:]])
    return jnp.where(popped[None], following, slots)


def put(slots: jax.Array, place: jax.Array, word: jax.Array, here: jax.Array) -> jax.Array:
    """Write ``word`` [n] in row ``place`` [n] where ``here`` [n] holds."""
    rows = jnp.arange(slots.shape[0], dtype=place.dtype)[:, None]
    here = (rows == place[None]) & here[None]
    return jnp.where(here, word.astype(slots.dtype)[None], slots)


def heads(spec: StepSpec, state: WaferState) -> list[tuple[int, jax.Array]]:
    """(colour, [n]) of all that travels with the heads of router FIFOs."""
    words = () if state.memory is None else state.memory.router_words
    return [
        *((c, marks[0]) for c, marks in zip(spec.dynamic, state.marks, strict=True)),
        *((c, slots[0]) for c, slots in zip(spec.carried, words, strict=True)),
    ]


def move(
    spec: StepSpec,
    state: WaferState,
    router: list[jax.Array],
    inputs: dict[int, jax.Array],
    moves: Moves,
    issue: Issue,
    pushed: list[tuple[Issue, jax.Array]],
) -> WaferState:
    """Let marks and payloads follow the words of this cycle.

    Args:
      spec: Static part.
      state: Marks and payloads as the cycle began.
      router: C arrays [n], router FIFOs before anything moved.
      inputs: The same of the input queues.
      moves: What the routers decided.
      issue: What the threads decided.
      pushed: Who sends, with the payloads [n] uint32; empty without values.
    """
    marked = [(issue, dynamic.sent_mark(spec, state, issue))]
    controls = dynamic.control_heads(spec, state)
    edges, count = moves.carried_edges, len(spec.dynamic)
    marks = tuple(
        _through_router(spec, slots, c, router[c], moves, beyond, marked)
        for c, slots, beyond in zip(spec.dynamic, state.marks, edges[:count], strict=True)
    )
    if state.memory is None or not pushed:
        return replace(state, marks=marks)
    memory = state.memory
    heads = {c: words[0] for c, words in zip(spec.carried, memory.router_words, strict=True)}
    input_words = []
    for c, slots in zip(spec.carried_inputs, memory.input_words, strict=True):
        popped = issue.pops >> c & 1
        place = f.total(spec.fifo, inputs[c]) - popped.astype(spec.fifo.dtype)
        delivered = moves.taken[c] >> RAMP & 1 == 1
        if c in controls:
            delivered &= ~controls[c]
        input_words.append(put(shift(slots, popped != 0), place, heads[c], delivered))
    router_words = tuple(
        _through_router(spec, slots, c, router[c], moves, beyond, pushed)
        for c, slots, beyond in zip(spec.carried, memory.router_words, edges[count:], strict=True)
    )
    memory = replace(memory, router_words=router_words, input_words=tuple(input_words))
    return replace(state, marks=marks, memory=memory)


def _through_router(
    spec: StepSpec,
    slots: jax.Array,
    color: int,
    router: jax.Array,
    moves: Moves,
    beyond: Edges,
    sent: list[tuple[Issue, jax.Array]],
) -> jax.Array:
    """Slots of a router FIFO after the head left, and a word came from a link or a thread."""
    taken = moves.taken[color]
    place = f.total(spec.fifo, router) - (taken != 0).astype(spec.fifo.dtype)
    arrived = routers.arriving_words(spec, moves, slots[0], beyond, color)
    here = moves.arriving[color] != 0
    for issue, word in sent if color in spec.sending else ():
        sends = issue.pushes >> color & 1 == 1
        arrived = jnp.where(sends, word.astype(slots.dtype), arrived)
        here |= sends
    return put(shift(slots, taken != 0), place, arrived, here)
