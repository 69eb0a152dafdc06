"""Conditions that stop a run, evaluated in the compiled loop.

They are a table of a fixed size that the loop takes as an argument, so that a new breakpoint
compiles nothing. Axes: B breakpoints, C colours, T threads, n lanes.
"""

from enum import IntEnum
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.mesh_state import WaferState
from wafer_jax.report.activity import popped
from wafer_jax.step_spec import StepSpec

MAX_BREAKPOINTS = 32
ANYWHERE = -1
RELATIONS = ("==", "!=", "<", ">=")


class Kind(IntEnum):
    """What a breakpoint looks at."""

    UNUSED = 0
    EVENT = 1
    LEAVES = 2
    RECEIVED = 3
    REGISTER = 4
    FAULT = 5


class Breakpoint(NamedTuple):
    """A condition: of kind EVENT, thread ``number`` of a PE loads event ``value``; of LEAVES and
    RECEIVED, a word of colour ``number``; of REGISTER, ``number`` comes into a relation to
    ``value``; of FAULT, any new one.
    """

    kind: Kind
    text: str
    lane: int = ANYWHERE
    number: int = 0
    value: int = 0
    relation: int = 0


def breakpoint_table(points: list[Breakpoint]) -> jax.Array:
    """[5, B] int32: kind, lane, number, value, relation."""
    rows = [(p.kind, p.lane, p.number, p.value, p.relation) for p in points]
    table = np.zeros((5, MAX_BREAKPOINTS), np.int32)
    table[:, : len(rows)] = np.array(rows, np.int32).reshape(-1, 5).T
    return jnp.asarray(table)


def hits(spec: StepSpec, before: WaferState, after: WaferState, table: jax.Array) -> jax.Array:
    """[B] bool: breakpoints whose condition came about between two states a cycle apart."""
    kind, lane, number, value, relation = table
    at = jnp.maximum(lane, 0)
    pick = jnp.arange(at.shape[0])

    def of_thread(planes: tuple[jax.Array, ...]) -> jax.Array:
        there = jnp.stack([plane[at] for plane in planes])
        return there[jnp.clip(number, 0, spec.threads - 1), pick]

    loaded = of_thread(before.ready_at) != of_thread(after.ready_at)
    hit = (kind == Kind.EVENT) & loaded & (of_thread(after.pc) == value)
    faulty = jnp.any(after.fault != before.fault)
    hit |= (kind == Kind.FAULT) & faulty
    if before.registers is not None and after.registers is not None:
        held, holds = (
            _relation(r[jnp.clip(number, 0, spec.registers - 1), at], relation, value)
            for r in (before.registers, after.registers)
        )
        hit |= (kind == Kind.REGISTER) & holds & ~held
    if spec.colors:
        on_color = (kind == Kind.LEAVES) | (kind == Kind.RECEIVED)
        moved = lax.cond(
            jnp.any(on_color),
            lambda _: _moved(spec, before, after, table),
            lambda _: jnp.zeros(kind.shape, bool),
            None,
        )
        hit |= on_color & moved
    return hit


def _relation(held: jax.Array, relation: jax.Array, value: jax.Array) -> jax.Array:
    outcomes = jnp.stack([held == value, held != value, held < value, held >= value])
    return outcomes[relation, jnp.arange(relation.shape[0])]


def _moved(spec: StepSpec, before: WaferState, after: WaferState, table: jax.Array) -> jax.Array:
    """[B] bool: a word of the breakpoint's colour moved at its PE, or at any."""
    kind, lane, number, _, _ = table
    left = popped(spec, before.router, after.router)
    received = popped(spec, before.input, after.input)
    out = jnp.zeros(kind.shape, bool)
    planes = [(Kind.LEAVES, c, p) for c, p in enumerate(left)]
    planes += [(Kind.RECEIVED, c, p) for c, p in zip(spec.delivered, received, strict=True)]
    for which, c, plane in planes:
        here = jnp.where(lane == ANYWHERE, jnp.any(plane != 0), plane[jnp.maximum(lane, 0)] != 0)
        out |= (kind == which) & (number == c) & here
    return out
