"""Packets: several words as one, for speed where streams are long (semantics, section 7)."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from wafer_jax.mesh_state import WaferState
from wafer_jax.step.issue import Issue
from wafer_jax.step.routers import Moves
from wafer_jax.step_spec import StepSpec


def count(state: WaferState, words: jax.Array) -> jax.Array:
    """Packets of a stream of ``words`` >= 1."""
    assert state.packet_words is not None
    return (words - 1) // state.packet_words + 1


def busy_links(state: WaferState) -> jax.Array | None:
    """[n] uint8: bit d set while a packet occupies the link in direction d."""
    if not state.link_free:
        return None
    busy = jnp.zeros_like(state.link_free[0], jnp.uint8)
    for d, free in enumerate(state.link_free):
        busy |= (free > state.now).astype(jnp.uint8) << d
    return busy


def streamed(spec: StepSpec, issue: Issue) -> jax.Array:
    """[n] bool: the winner moves a packet."""
    colors = (1 << spec.colors) - 1
    return (issue.pops | issue.pushes) & colors != 0


def occupied(spec: StepSpec, state: WaferState, issue: Issue, duration: jax.Array) -> jax.Array:
    """[n] int32: cycles from the winner's issue to the first in which its next event may issue."""
    cycles = jnp.maximum(duration, 1)
    if state.packet_words is None:
        return cycles
    return jnp.where(streamed(spec, issue), state.packet_words, cycles)


def occupy(spec: StepSpec, state: WaferState, moves: Moves, issue: Issue) -> WaferState:
    """Mark what the packets of this cycle occupy."""
    if state.packet_words is None or state.slot_free is None:
        return state
    until = state.now + state.packet_words
    taken = jnp.zeros(spec.lanes, jnp.uint8)
    for links in moves.taken:
        taken |= links
    return replace(
        state,
        slot_free=jnp.where(streamed(spec, issue), until, state.slot_free),
        link_free=tuple(
            jnp.where(taken >> d & 1 == 1, until, free) for d, free in enumerate(state.link_free)
        ),
    )
