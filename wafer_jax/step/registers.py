"""Registers: set, add, branch (docs/semantics.md, section 2.2)."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from wafer_jax.event_table import ADD, BRANCHES, SET
from wafer_jax.mesh_state import WaferState
from wafer_jax.step.issue import Issue
from wafer_jax.step_spec import Code


def read(registers: jax.Array, index: jax.Array) -> jax.Array:
    """[n] int32: of [G, n] registers the one at ``index`` [n], 0 where that is negative."""
    out = jnp.zeros(registers.shape[1], jnp.int32)
    for g, values in enumerate(registers):
        out = jnp.where(index == g, values, out)
    return out


def operate(code: Code, state: WaferState, issue: Issue, old: jax.Array) -> WaferState:
    """Set or add, where the winner issued such an event."""
    assert state.registers is not None
    table = code.table
    operation, value = table["operation"][old], table["value"][old]
    target = jnp.where(issue.finished, table["register"][old], -1)
    new = jnp.where(operation == SET, value, read(state.registers, target) + value)
    changes = (operation == SET) | (operation == ADD)
    numbers = jnp.arange(state.registers.shape[0])[:, None]
    here = (numbers == target[None]) & changes[None]
    return replace(state, registers=jnp.where(here, new[None], state.registers))


def branch(
    table: dict[str, jax.Array], registers: jax.Array, old: jax.Array, following: jax.Array
) -> jax.Array:
    """[n] int32: the next event, a branch taken where the winner issued one that holds."""
    held, value = read(registers, table["register"][old]), table["value"][old]
    relation = {"==": held == value, "!=": held != value, "<": held < value, ">=": held >= value}
    operation = table["operation"][old]
    for k, name in enumerate(BRANCHES, start=ADD + 1):
        taken = (operation == k) & relation[name]
        following = jnp.where(taken, table["target"][old], following)
    return following
