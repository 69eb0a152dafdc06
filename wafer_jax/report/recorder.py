"""Run a program and keep what every PE of a region does in every cycle of a window.

Axes: C colours, L pairs (colour, direction), T threads, K causes, R rows, n lanes, r lanes of the
region.
A row is one executed cycle and the skipped ones behind it, in which nothing changes.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.arguments import whole
from wafer_jax.compilation import compiled
from wafer_jax.diagnosis import diagnose
from wafer_jax.errors import WaferError
from wafer_jax.execute import MAX_CYCLES, Tiles, start
from wafer_jax.jitter import Jitter
from wafer_jax.lowering import lower
from wafer_jax.mesh_state import WaferState
from wafer_jax.program import Program
from wafer_jax.report.activity import COLOR_BITS, Activity, observe
from wafer_jax.report.recording import Cause, Recording
from wafer_jax.result import Result
from wafer_jax.snapshot import snapshot
from wafer_jax.step import NEVER, cycle
from wafer_jax.step import fifo as f
from wafer_jax.step_spec import Code, StepSpec, from_lanes

CHUNK_BYTES = 1 << 24
"""Rows kept on the device between two looks at them."""
MAX_BYTES = 256 << 20


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Watch:
    """A run under observation.

    Attributes:
      state: Of the wafer.
      busy_until: T arrays [n] int32, end of the last kernel of each thread.
      stuck_at: [] int32, the first cycle in which nothing could happen, or -1.
      ended: [] bool, nothing can happen and no kernel runs any more.
      totals: [K, n] int32, cycles per cause.
      words: [L, n] int32, words that left each router per colour and direction in use.
      count: [] int32, rows since the last look.
      rows: Buffers of rows, the last one is overwritten when they are full.
    """

    state: WaferState
    busy_until: tuple[jax.Array, ...]
    stuck_at: jax.Array
    ended: jax.Array
    totals: jax.Array
    words: jax.Array
    count: jax.Array
    rows: dict[str, jax.Array]


def record(
    program: Program,
    tiles: Tiles | None = None,
    *,
    region: tuple[slice, slice] | None = None,
    window: tuple[int, int] | None = None,
    values: Literal["full", "none"] = "full",
    jitter: Jitter | None = None,
    max_cycles: int = MAX_CYCLES,
    max_bytes: int = MAX_BYTES,
) -> Recording:
    """Run a program and record it.

    Cycles per state and cause, and words per link, are counted for all PEs over the whole run;
    what each PE does in each cycle is kept for the region and the window.

    Args:
      program: Built by a collective or by `ProgramBuilder`.
      tiles: As for `run`.
      region: Rows and columns, such as ``np.s_[0:4, 2:8]``; all PEs if not given.
      window: First cycle, and the one after the last. If not given, as many cycles from the
        first on as ``max_bytes`` hold.
      values: As for `run`.
      jitter: As for `run`.
      max_cycles: As for `run`.
      max_bytes: Bound of what is kept.

    Raises:
      WaferError: As for `run`; a region off the mesh; more than ``max_bytes``.
    """
    max_cycles, max_bytes = whole(max_cycles, "max_cycles"), whole(max_bytes, "max_bytes")
    if not 0 < max_cycles <= MAX_CYCLES:
        raise WaferError(f"max_cycles={max_cycles} is not in 1 .. {MAX_CYCLES}")
    pes = _region(program, region)
    first, last = _window(window)
    state = start(program, tiles, values=values, jitter=jitter)
    spec, code = lower(program, values=values == "full", jitter=jitter is not None)
    row_bytes = _row_bytes(spec, pes.size)
    needed = row_bytes * (1 if window is None else min(last, max_cycles) - first)
    if needed > max_bytes:
        raise WaferError(
            f"{program.name}: {pes.size} PEs over {last - first if window else 1} cycles may take "
            f"{needed / 2**20:,.0f} MiB, the limit is {max_bytes / 2**20:,.0f}: give a smaller "
            f"region, a shorter window or a larger max_bytes"
        )
    causes = _causes(spec)
    capacity = max(1, min(1024, CHUNK_BYTES // row_bytes))
    watch = _first(spec, state, pes, len(causes), capacity)
    lanes = jnp.asarray(pes.reshape(-1) // program.hw.mesh[1] + pes.reshape(-1), jnp.int32)
    call, compile_s = compiled(
        f"the recorder for {program.name!r}", observe_cycles, (spec, causes),
        code, watch, lanes, jnp.int32(0), jnp.int32(capacity),
    )  # fmt: skip
    kept: list[dict[str, np.ndarray]] = []
    room, began = max_bytes // row_bytes, time.perf_counter()
    for until, keep in ((first, False), (min(last, max_cycles), True), (max_cycles, False)):
        while not bool(watch.ended) and int(watch.state.now) < until and (room or not keep):
            steps = min(capacity, room) if keep else NEVER
            watch = call(code, watch, lanes, jnp.int32(until), jnp.int32(steps))
            rows = int(watch.count)
            if keep and rows:
                # Copies: the buffers are donated to the next call.
                kept.append({name: np.asarray(a)[:rows].copy() for name, a in watch.rows.items()})
                room -= rows
    seconds = time.perf_counter() - began, compile_s
    return _recording(program, spec, watch, pes, kept, seconds)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def observe_cycles(
    spec: StepSpec,
    causes: tuple[Cause, ...],
    code: Code,
    watch: Watch,
    lanes: jax.Array,
    until: jax.Array,
    max_rows: jax.Array,
) -> Watch:
    """Execute and observe cycles until the end, until cycle ``until``, or for so many rows.

    Args:
      spec: Static part of the lowered program.
      causes: What is counted.
      code: Its arrays.
      watch: Donated.
      lanes: [r] int32, PEs whose rows are kept.
      until: [] int32.
      max_rows: [] int32.
    """

    def more(watch: Watch) -> jax.Array:
        return ~watch.ended & (watch.state.now < until) & (watch.count < max_rows)

    def body(watch: Watch) -> Watch:
        before = watch.state
        after = lax.optimization_barrier(cycle(spec, code, before))
        seen = observe(spec, code, before, after, watch.busy_until)
        now, ended = _next_cycle(before, after, seen.busy_until, until)
        stuck_at = jnp.where(after.stuck & (watch.stuck_at < 0), before.now, watch.stuck_at)
        span = now - before.now
        row = {
            "start": before.now[None],
            "span": span[None],
            "threads": jnp.stack([c[lanes] for c in seen.threads]),
            "left": _bits([taken != 0 for taken in seen.taken], spec.lanes)[lanes],
            "links": _union(seen.taken, spec.lanes)[lanes],
            "router": _fill(spec, before.router, lanes),
            "input": _fill(spec, before.input, lanes),
        }
        at = jnp.minimum(watch.count, watch.rows["start"].shape[0] - 1)
        rows = {
            name: lax.dynamic_update_index_in_dim(a, row[name].reshape(a.shape[1:]), at, 0)
            for name, a in watch.rows.items()
        }
        words = [
            total + (seen.taken[c] >> d & 1)
            for total, (c, d) in zip(watch.words, _links(spec), strict=True)
        ]
        return Watch(
            state=replace(after, now=now, stuck=ended),
            busy_until=seen.busy_until,
            stuck_at=stuck_at,
            ended=ended,
            totals=watch.totals + span * _matches(causes, seen.pe),
            words=jnp.stack(words) if words else watch.words,
            count=watch.count + (~ended).astype(jnp.int32),
            rows=rows,
        )

    return lax.while_loop(more, body, replace(watch, count=jnp.int32(0)))


def _next_cycle(
    before: WaferState, after: WaferState, busy_until: tuple[jax.Array, ...], until: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The next cycle to look at, and whether none is left.

    Idle cycles are skipped no further than to the window's edge, or to the end of a kernel: what
    a PE does changes there. Nothing else depends on ``now``, so the run stays the same.
    """

    def skip(_):
        end = jnp.int32(NEVER)
        for busy in busy_until:
            end = jnp.minimum(end, jnp.min(jnp.where(busy > before.now, busy, NEVER)))
        target = jnp.where(after.stuck, end, jnp.minimum(end, after.now))
        ended = target == NEVER
        return jnp.where(ended, before.now, jnp.minimum(target, until)), ended

    def one(_):
        return after.now, jnp.bool_(False)

    return lax.cond(after.now == before.now + 1, one, skip, None)


def _matches(causes: tuple[Cause, ...], pe: jax.Array) -> jax.Array:
    """[K, n] int32: 1 where a PE's code falls under a cause."""
    pe = pe.astype(jnp.int32)
    shift = jnp.array([[0 if c.color is not None else COLOR_BITS] for c in causes], jnp.int32)
    wanted = jnp.array([[c.activity if c.color is None else c.code] for c in causes], jnp.int32)
    return ((pe[None] >> shift) == wanted).astype(jnp.int32)


def _bits(planes: list[jax.Array], lanes: int) -> jax.Array:
    out = jnp.zeros(lanes, jnp.uint32)
    for c, plane in enumerate(planes):
        out |= plane.astype(jnp.uint32) << c
    return out


def _union(sets: list[jax.Array], lanes: int) -> jax.Array:
    out = jnp.zeros(lanes, jnp.uint8)
    for taken in sets:
        out |= taken.astype(jnp.uint8)
    return out


def _links(spec: StepSpec) -> list[tuple[int, int]]:
    """Pairs (colour index, direction) that some PE may transmit."""
    return [(c, d) for c, directions in enumerate(spec.links) for d in directions]


def _fill(spec: StepSpec, queues: tuple[jax.Array, ...], lanes: jax.Array) -> jax.Array:
    """[queues, r] uint8: words in each queue."""
    if not queues:
        return jnp.zeros((0, *lanes.shape), jnp.uint8)
    return jnp.stack([f.total(spec.fifo, q[lanes]) for q in queues]).astype(jnp.uint8)


def _causes(spec: StepSpec) -> tuple[Cause, ...]:
    """What the cycles of a PE can go to; waits for words and for room colour by colour."""
    colors = {Activity.NEEDS_WORD: spec.delivered, Activity.NEEDS_ROOM: spec.sending}
    return tuple(
        Cause(activity, color)
        for activity in Activity
        if activity is not Activity.NEEDS_SLOT
        for color in (colors[activity] if activity in colors else (None,))
    )


def _region(program: Program, region: tuple[slice, slice] | None) -> np.ndarray:
    """[y, x] int64: flat numbers of the PEs of a region."""
    height, width = program.hw.mesh
    numbers = np.arange(height * width).reshape(height, width)
    if region is None:
        return numbers
    well = isinstance(region, tuple) and len(region) == 2
    if not well or not all(isinstance(s, slice) for s in region):
        raise WaferError(f"region={region!r}: give rows and columns, such as np.s_[0:4, 2:8]")
    for cut, size in zip(region, (height, width), strict=True):
        if cut.step is not None and whole(cut.step, "step of the region") == 0:
            raise WaferError(f"region={region!r}: a step of 0 leads nowhere")
        for edge in (cut.start, cut.stop):
            if edge is not None and not 0 <= whole(edge, "edge of the region") <= size:
                raise WaferError(f"region={region!r} reaches beyond the {height}x{width} mesh")
    pes = numbers[region]
    if not pes.size:
        raise WaferError(f"region={region!r} holds no PE of the {height}x{width} mesh")
    return pes


def _window(window: tuple[int, int] | None) -> tuple[int, int]:
    if window is None:
        return 0, MAX_CYCLES
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise WaferError(f"window={window!r}: give two cycles, such as (0, 5000)")
    first, last = (whole(edge, "edge of the window") for edge in window)
    if last > MAX_CYCLES:
        raise WaferError(f"window={window}: too large: at most {MAX_CYCLES:,}")
    if not 0 <= first < last:
        raise WaferError(f"window={window}: give a first cycle and a later one after the last")
    return first, last


def _row_bytes(spec: StepSpec, pes: int) -> int:
    return 8 + pes * (2 * spec.threads + 5 + spec.colors + len(spec.delivered))


def _first(spec: StepSpec, state: WaferState, pes: np.ndarray, causes: int, capacity: int) -> Watch:
    n, shape = spec.lanes, (capacity,)
    return Watch(
        state=state,
        busy_until=tuple(jnp.zeros(n, jnp.int32) for _ in range(spec.threads)),
        stuck_at=jnp.int32(-1),
        ended=jnp.bool_(False),
        totals=jnp.zeros((causes, n), jnp.int32),
        words=jnp.zeros((len(_links(spec)), n), jnp.int32),
        count=jnp.int32(0),
        rows={
            "start": jnp.zeros(shape, jnp.int32),
            "span": jnp.zeros(shape, jnp.int32),
            "threads": jnp.zeros((*shape, spec.threads, pes.size), jnp.uint16),
            "left": jnp.zeros((*shape, pes.size), jnp.uint32),
            "links": jnp.zeros((*shape, pes.size), jnp.uint8),
            "router": jnp.zeros((*shape, spec.colors, pes.size), jnp.uint8),
            "input": jnp.zeros((*shape, len(spec.delivered), pes.size), jnp.uint8),
        },
    )


def _recording(
    program: Program,
    spec: StepSpec,
    watch: Watch,
    pes: np.ndarray,
    kept: list[dict[str, np.ndarray]],
    seconds: tuple[float, float],
) -> Recording:
    mesh, stuck_at = program.hw.mesh, int(watch.stuck_at)
    cycles = int(watch.state.now)
    state = watch.state
    if stuck_at >= 0:
        state = replace(state, now=jnp.int32(stuck_at), stuck=jnp.bool_(True))
    snap = snapshot(program, state)

    def joined(name: str) -> np.ndarray:
        if not kept:
            return np.asarray(watch.rows[name])[:0]
        return np.concatenate([rows[name] for rows in kept])

    def on_region(name: str) -> np.ndarray:
        flat = joined(name)
        return flat.reshape(*flat.shape[:-1], *pes.shape)

    router = on_region("router")
    inputs = np.zeros_like(router)
    inputs[:, list(spec.delivered)] = on_region("input")
    link_words = np.zeros((spec.colors, 5, *mesh), np.int64)
    for (c, d), words in zip(_links(spec), from_lanes(np.asarray(watch.words), mesh), strict=True):
        link_words[c, d] = words
    return Recording(
        program=program,
        result=Result(
            program=program, state=state, diagnosis=diagnose(program, state), run_s=seconds[0],
            compile_s=seconds[1],
        ),
        cycles=cycles,
        causes=_causes(spec),
        totals=from_lanes(np.asarray(watch.totals), mesh).astype(np.int64),
        link_words=link_words,
        changing=spec.dynamic,
        rx=snap["rx"],
        tx=snap["tx"],
        ys=pes[:, 0] // mesh[1],
        xs=pes[0] % mesh[1],
        start=joined("start").astype(np.int64),
        span=joined("span").astype(np.int64),
        threads=on_region("threads"),
        left=on_region("left"),
        links_used=on_region("links"),
        router_words=router,
        input_words=inputs,
    )  # fmt: skip
