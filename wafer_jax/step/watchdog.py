"""The watchdog: threads that are blocked for long end the run (semantics, section 4)."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from wafer_jax.faults import Fault
from wafer_jax.mesh_state import WaferState
from wafer_jax.step.issue import Issue
from wafer_jax.step.reduce import any_lane
from wafer_jax.step_spec import StepSpec


def starving(spec: StepSpec, state: WaferState, issue: Issue) -> tuple[jax.Array, jax.Array]:
    """Threads blocked for ``watchdog`` cycles.

    Returns:
      Fault bits [n] int32, and thread << 16 | event of the first such thread [n] int32.
    """
    assert state.watchdog is not None
    bits = where = jnp.zeros(spec.lanes, jnp.int32)
    for t in reversed(range(spec.threads)):
        blocked = state.now - jnp.maximum(state.ready_at[t], state.since[t])
        alive = state.need_in[t] & spec.halt_bit == 0
        bad = alive & ~issue.wins[t] & (blocked >= state.watchdog)
        bits = jnp.where(bad, int(Fault.STARVED), bits)
        where = jnp.where(bad, t << 16 | state.pc[t], where)
    return bits, where


def watch(spec: StepSpec, state: WaferState, issue: Issue, bits: jax.Array) -> WaferState:
    """Note who issued, and whether anyone starves."""
    since = tuple(
        jnp.where(win, state.now + 1, s) for win, s in zip(issue.wins, state.since, strict=True)
    )
    return replace(state, since=since, starved=any_lane(spec, bits != 0))
