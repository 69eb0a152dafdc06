"""The compiled loop under the debugger: cycles until a breakpoint is hit.

Axes: B breakpoints, W watched words.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.mesh_state import WaferState
from wafer_jax.report.breakpoints import MAX_BREAKPOINTS, hits
from wafer_jax.report.watches import MAX_WATCHES, watched_words
from wafer_jax.step import cycle
from wafer_jax.step_spec import Code, StepSpec

CHANGES = 1024
"""Places for changes of watched values between two stops; the last ones stay."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Session:
    """A run that may stop.

    Attributes:
      state: Of the wafer.
      hit: [B] bool, breakpoints that stopped it.
      steps: [] int32, executed cycles.
      words: [W] uint32, watched words.
      changes: [] int32, how often they changed.
      cycles: [CHANGES] int32, a ring: cycles in which they had changed.
      values: [CHANGES, W] uint32, a ring.
    """

    state: WaferState
    hit: jax.Array
    steps: jax.Array
    words: jax.Array
    changes: jax.Array
    cycles: jax.Array
    values: jax.Array


@partial(jax.jit, static_argnums=0, donate_argnums=2)
def run_until(
    spec: StepSpec,
    code: Code,
    session: Session,
    points: jax.Array,
    watches: jax.Array,
    until: jax.Array,
    max_steps: jax.Array,
) -> Session:
    """Execute cycles until a breakpoint is hit, the run is stuck, or a limit is reached.

    Args:
      spec: Static part of the lowered program.
      code: Its arrays.
      session: Donated.
      points: [5, B] int32, from `breakpoint_table`.
      watches: [3, W] int32, from `watch_table`.
      until: [] int32, cycle.
      max_steps: [] int32.
    """

    def more(s: Session) -> jax.Array:
        running = ~s.state.stuck & (s.state.now < until) & (s.steps < max_steps)
        return running & ~jnp.any(s.hit)

    def body(s: Session) -> Session:
        after = lax.optimization_barrier(cycle(spec, code, s.state))
        words = watched_words(spec, after, watches)
        at = s.changes % CHANGES
        return Session(
            state=after,
            hit=hits(spec, s.state, after, points),
            steps=s.steps + 1,
            words=words,
            changes=s.changes + jnp.any(words != s.words).astype(jnp.int32),
            cycles=s.cycles.at[at].set(after.now),
            values=s.values.at[at].set(words),
        )

    return lax.while_loop(more, body, session)


def session(spec: StepSpec, state: WaferState, watches: jax.Array) -> Session:
    """A session that has not moved yet."""
    return Session(
        state=state,
        hit=jnp.zeros(MAX_BREAKPOINTS, bool),
        steps=jnp.int32(0),
        words=watched_words(spec, state, watches),
        changes=jnp.int32(0),
        cycles=jnp.zeros(CHANGES, jnp.int32),
        values=jnp.zeros((CHANGES, MAX_WATCHES), jnp.uint32),
    )
