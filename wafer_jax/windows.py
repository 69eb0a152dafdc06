"""Rows without activity are left out: the step runs on a window of rows around the active ones.

A PE can only do something while it has words in a FIFO, or a thread that could issue. A window
holds all rows with such PEs and a margin; nothing outside changes before a word reaches the
window's edge or a thread outside wakes up, and there the window ends. So the results are those of
the whole wafer, in the time of a part of it.

Axes: n lanes of the wafer, m lanes of the window.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.blocks import FLAT_FIELDS, SHARED_FIELDS, field_name
from wafer_jax.compilation import compiled
from wafer_jax.mesh_state import WaferState
from wafer_jax.step import NEVER, advance_until_edge, dynamic, threads
from wafer_jax.step import fifo as f
from wafer_jax.step_spec import Code, StepSpec

MIN_LANES = 1 << 16
"""Smaller wafers are not worth the second compilation."""
SHARES = (16, 4)
"""A window has one in so many rows of the wafer."""
SOON_CYCLES = 64
"""A thread that wakes up within so many cycles counts as active."""
STEPS_BETWEEN_LOOKS = 128
MARGIN = 2
"""Rows on either side of the active ones at least."""

Tree = TypeVar("Tree", Code, WaferState)


class Activity(NamedTuple):
    """Where anything can happen.

    Attributes:
      first: [] int32, first active row; the number of rows if there is none.
      last: [] int32, last active row, or -1.
      wake: [] int32, the cycle in which the first thread of an inactive row wakes up, or NEVER.
    """

    first: jax.Array
    last: jax.Array
    wake: jax.Array


def are_worth_it(spec: StepSpec) -> bool:
    """Whether a run should look for windows: large, on one device, without a watchdog.

    The watchdog looks at blocked threads everywhere.
    """
    tall = spec.mesh[0] >= 2 * max(SHARES)
    return spec.lanes >= MIN_LANES and tall and spec.blocks is None and not spec.watchdog


@partial(jax.jit, static_argnums=0)
def activity(spec: StepSpec, code: Code, state: WaferState) -> Activity:
    """Find the active rows of a state."""
    height = spec.mesh[0]
    soon = state.now + SOON_CYCLES
    router = [f.tick(spec.fifo, q) for q in state.router]
    inputs = {c: f.tick(spec.fifo, q) for c, q in zip(spec.delivered, state.input, strict=True)}
    routes = dynamic.current_routes(spec, code, state)
    active = jnp.zeros(spec.lanes, bool)
    for q in (*router, *inputs.values()):
        active |= f.total(spec.fifo, q) > 0
    for free in (*state.link_free, *(() if state.slot_free is None else (state.slot_free,))):
        active |= free > state.now
    for request in threads.requests(spec, routes, state, router, inputs):
        active |= request
    wakes = jnp.full(spec.lanes, NEVER, jnp.int32)
    for ready_at, need in zip(state.ready_at, state.need_in, strict=True):
        sleeps = (ready_at > state.now) & (need & spec.halt_bit == 0)
        active |= sleeps & (ready_at <= soon)
        wakes = jnp.minimum(wakes, jnp.where(sleeps, ready_at, NEVER))
    rows = active.reshape(height, spec.row).any(axis=1)
    wakes = wakes.reshape(height, spec.row).min(axis=1)
    number = jnp.arange(height, dtype=jnp.int32)
    return Activity(
        first=jnp.min(jnp.where(rows, number, height)),
        last=jnp.max(jnp.where(rows, number, -1)),
        wake=jnp.min(jnp.where(rows, NEVER, wakes)),
    )


def window_rows(spec: StepSpec, active: int) -> int | None:
    """Rows of the smallest window for so many active rows, or None if it would be too large."""
    sizes = (math.ceil(spec.mesh[0] / share) for share in SHARES)
    return next((size for size in sizes if active + 2 * MARGIN <= size), None)


def advance_where_active(
    spec: StepSpec,
    whole: Callable[..., WaferState],
    code: Code,
    state: WaferState,
    until: jax.Array,
    max_steps: jax.Array,
) -> WaferState:
    """`step.advance`, on windows where possible; the state is donated.

    Args:
      spec: Static part of the lowered program.
      whole: The compiled `step.advance` of the whole wafer.
      code: Arrays of the lowered program.
      state: Donated.
      until: [] int32, cycle at which to stop.
      max_steps: [] int32, about so many cycles to execute, skipped ones not counted.
    """
    look, _ = compiled("where the wafer is active", activity, (spec,), code, state)
    for _ in range(max(1, int(max_steps) // STEPS_BETWEEN_LOOKS)):
        if bool(state.stuck) or state.now >= until:
            break
        found = look(code, state)
        first, last = int(found.first), int(found.last)
        rows = window_rows(spec, max(last - first + 1, 1))
        if rows is None or last < 0:
            state = whole(code, state, until, jnp.int32(STEPS_BETWEEN_LOOKS))
        else:
            top = (first + last + 1 - rows) // 2
            top = min(max(top, 0), spec.mesh[0] - rows)
            state = _advance_window(spec, rows, code, state, jnp.int32(top), until, found.wake)
    return state


def _advance_window(
    spec: StepSpec,
    rows: int,
    code: Code,
    state: WaferState,
    top: jax.Array,
    until: jax.Array,
    wake: jax.Array,
) -> WaferState:
    arguments = (code, state, top, until, wake)
    run, _ = compiled(
        f"the step for a window of {rows} rows", _run_window, (spec, rows), *arguments
    )
    return run(*arguments)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _run_window(
    spec: StepSpec,
    rows: int,
    code: Code,
    state: WaferState,
    top: jax.Array,
    until: jax.Array,
    wake: jax.Array,
) -> WaferState:
    """Run rows ``top .. top + rows - 1`` until a word reaches an inner edge, or ``wake``."""
    inner = replace(spec, mesh=(rows, spec.mesh[1]))
    edges = jnp.stack([top > 0, top + rows < spec.mesh[0]])
    window = advance_until_edge(
        inner,
        _take(spec, rows, code, top),
        _with_key_of(spec, _take(spec, rows, state, top), top),
        until,
        wake,
        edges,
    )
    window = replace(window, jitter=state.jitter)
    return _put(spec, rows, state, window, top)


def _with_key_of(spec: StepSpec, window: WaferState, top: jax.Array) -> WaferState:
    """Stalls are hashes of key + PE * an odd number, so the PEs above go into the key."""
    if window.jitter is None:
        return window
    above = top.astype(jnp.uint32) * jnp.uint32(spec.mesh[1])
    return replace(window, jitter=window.jitter.at[0].add(above * jnp.uint32(0x9E3779B1)))


_WHOLE_FIELDS = SHARED_FIELDS | {"log"}
"""Payloads are found by their place in the log, wherever their sender is."""


def _take(spec: StepSpec, rows: int, tree: Tree, top: jax.Array) -> Tree:
    """The lanes of some rows of all planes."""

    def take(path, leaf: jax.Array) -> jax.Array:
        name = field_name(path)
        if name in _WHOLE_FIELDS:
            return leaf
        plane = leaf.reshape(-1, spec.lanes) if name in FLAT_FIELDS else leaf
        part = lax.dynamic_slice_in_dim(plane, top * spec.row, rows * spec.row, axis=-1)
        return part.reshape(-1) if name in FLAT_FIELDS else part

    return jax.tree_util.tree_map_with_path(take, tree)


def _put(
    spec: StepSpec, rows: int, state: WaferState, window: WaferState, top: jax.Array
) -> WaferState:
    """Write the planes of a window back."""

    def put(path, leaf: jax.Array, part: jax.Array) -> jax.Array:
        name = field_name(path)
        if name in _WHOLE_FIELDS:
            return part
        if name in FLAT_FIELDS:
            leaf, part = leaf.reshape(-1, spec.lanes), part.reshape(-1, rows * spec.row)
        out = lax.dynamic_update_slice_in_dim(leaf, part, top * spec.row, axis=-1)
        return out.reshape(-1) if name in FLAT_FIELDS else out

    return jax.tree_util.tree_map_with_path(put, state, window)
