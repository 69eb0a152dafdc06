"""Kernels: pure per-PE functions on tiles, run for the PEs that start one in a cycle.

Few PEs: their operands are gathered, the body runs on the small arrays, results are scattered.
Many PEs: the body runs on all lanes and the results are masked, which needs no gather.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.faults import Fault
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES
from wafer_jax.lowering import Code, KernelKind, StepSpec
from wafer_jax.mesh_state import POISON, MemoryState
from wafer_jax.step.threads import Issue

BATCH = 64
"""PEs whose operands are gathered at a time."""
DENSE_SHARE = 8
"""Run on all lanes if at least one in this many starts the same kernel."""


def start(
    spec: StepSpec,
    code: Code,
    now: jax.Array,
    memory: MemoryState,
    issue: Issue,
    old: jax.Array,
) -> tuple[MemoryState, jax.Array]:
    """Run the kernels whose events were issued in this cycle.

    Args:
      old: [n] int32, position in the table of the finished event.

    Returns:
      The memory, and fault bits [n] int32.
    """
    instance = jnp.where(issue.finished, code.table["kernel"][old], -1)
    until = now + code.table["duration"][old]
    running = list(memory.running)
    running_until = list(memory.running_until)
    for k, t in enumerate(spec.kernel_threads):
        starts = issue.wins[t] & (instance >= 0)
        running[k] = jnp.where(starts, instance, running[k])
        running_until[k] = jnp.where(starts, until, running_until[k])
    sram, faults = _run(spec, code, memory.sram, instance)
    return replace(
        memory, sram=sram, running=tuple(running), running_until=tuple(running_until)
    ), faults


def _run(
    spec: StepSpec, code: Code, sram: jax.Array, instance: jax.Array
) -> tuple[jax.Array, jax.Array]:
    assert code.kernel_kind is not None
    assert code.kernel_offsets is not None
    kinds, offsets = code.kernel_kind, code.kernel_offsets

    def body(carry):
        sram, faults, instance = carry
        number = jnp.max(instance)
        here = instance == number
        many = jnp.sum(here) * DENSE_SHARE >= spec.lanes
        result = (sram, jnp.zeros(spec.lanes, bool), here)
        for k, kind in enumerate(spec.kernels):
            run = partial(_run_gathered, spec, kind, here=here, offsets=offsets[number])
            result = _once((kinds[number] == k) & ~many, run, result)
            check = partial(_poisoned, spec, kind, here=here, offsets=offsets[number])
            run = partial(_run_dense, spec, kind, here=here, offsets=offsets[number])
            chosen = (kinds[number] == k) & many
            bad = lax.cond(chosen, check, lambda sram, bad: bad, *result[:2])
            result = _once(chosen, run, (result[0], bad, here))
        sram, bad, done = result
        faults |= jnp.where(bad, int(Fault.UNWRITTEN_READ), 0)
        return sram, faults, jnp.where(done, -1, instance)

    faults = jnp.zeros(spec.lanes, jnp.int32)
    sram, faults, _ = lax.while_loop(
        lambda carry: jnp.any(carry[2] >= 0), body, (sram, faults, instance)
    )
    return sram, faults


def _once(condition: jax.Array, body: Callable, operand):
    """``lax.cond(condition, body, identity, operand)``, in place.

    A loop of at most one round: XLA updates the carry of a loop in place, but copies the whole
    SRAM into a branch of a conditional.
    """
    return lax.while_loop(
        lambda carry: carry[0],
        lambda carry: (jnp.bool_(False), body(carry[1])),
        (condition, operand),
    )[1]


def _poisoned(
    spec: StepSpec, kind: KernelKind, sram: jax.Array, bad: jax.Array, *, here, offsets
) -> jax.Array:
    """[n] bool: an operand holds poison.

    Looked up before anything is written, or XLA would keep a copy of the old SRAM.
    """
    for m, form in enumerate(kind.inputs):
        bad |= here & jnp.any(_rows(spec, sram, offsets[m], _words(*form)) == POISON, axis=0)
    return bad


def _run_dense(spec: StepSpec, kind: KernelKind, result, *, here: jax.Array, offsets: jax.Array):
    """All lanes at once; only the lanes of ``here`` keep the results."""
    sram, bad, _ = result
    inputs = [
        _decode(_rows(spec, sram, offsets[m], _words(*form)), *form)
        for m, form in enumerate(kind.inputs)
    ]
    for m, words in enumerate(_apply(kind, inputs), start=len(inputs)):
        kept = _rows(spec, sram, offsets[m], words.shape[0])
        new = jnp.where(here[None], words, kept).reshape(-1)
        sram = lax.dynamic_update_slice(sram, new, (offsets[m] * spec.lanes,))
    return sram, bad, here


def _rows(spec: StepSpec, sram: jax.Array, offset: jax.Array, words: int) -> jax.Array:
    """[words, n] of the SRAM."""
    flat = lax.dynamic_slice(sram, (offset * spec.lanes,), (words * spec.lanes,))
    return flat.reshape(words, spec.lanes)


def _run_gathered(spec: StepSpec, kind: KernelKind, result, *, here: jax.Array, offsets: jax.Array):
    """The first BATCH lanes of ``here``."""
    n, sram = spec.lanes, result[0]
    lanes = jnp.nonzero(here, size=BATCH, fill_value=n)[0].astype(jnp.int32)
    lane = jnp.minimum(lanes, n - 1)
    inputs, poisoned = [], jnp.zeros(BATCH, bool)
    for m, (shape, dtype) in enumerate(kind.inputs):
        rows = (offsets[m] + jnp.arange(_words(shape, dtype), dtype=jnp.int32)) * n
        words = sram.at[rows[:, None] + lane[None]].get(mode="promise_in_bounds")
        poisoned |= jnp.any(words == POISON, axis=0)
        inputs.append(_decode(words, shape, dtype))
    for m, words in enumerate(_apply(kind, inputs), start=len(inputs)):
        rows = (offsets[m] + jnp.arange(words.shape[0], dtype=jnp.int32)) * n
        place = jnp.where(lanes[None] < n, rows[:, None] + lane[None], sram.size)
        sram = sram.at[place].set(words, mode="drop")
    nowhere = jnp.zeros(n, bool)
    bad = nowhere.at[lanes].set(poisoned, mode="drop")
    return sram, bad, nowhere.at[lanes].set(True, mode="drop")


def _words(shape: tuple[int, ...], dtype: str) -> int:
    return -(-math.prod(shape) * DTYPE_BYTES[dtype] // WORD_BYTES)


def _decode(words: jax.Array, shape: tuple[int, ...], dtype: str) -> jax.Array:
    """[words, lanes] uint32 to [*shape, lanes]."""
    lanes = words.shape[1]
    if DTYPE_BYTES[dtype] == WORD_BYTES:
        return lax.bitcast_convert_type(words, jnp.dtype(dtype)).reshape(*shape, lanes)
    halves = lax.bitcast_convert_type(words, jnp.dtype(dtype))  # [words, lanes, 2]
    flat = jnp.moveaxis(halves, -1, 1).reshape(-1, lanes)
    return flat[: math.prod(shape)].reshape(*shape, lanes)


def _encode(value: jax.Array, shape: tuple[int, ...], dtype: str) -> jax.Array:
    """[*shape, lanes] to [words, lanes] uint32."""
    lanes = value.shape[-1]
    flat = value.astype(jnp.dtype(dtype)).reshape(-1, lanes)
    if DTYPE_BYTES[dtype] == WORD_BYTES:
        return lax.bitcast_convert_type(flat, jnp.uint32)
    flat = jnp.pad(flat, ((0, flat.shape[0] % 2), (0, 0)))
    return lax.bitcast_convert_type(jnp.moveaxis(flat.reshape(-1, 2, lanes), 1, -1), jnp.uint32)


def _apply(kind: KernelKind, inputs: list[jax.Array]) -> list[jax.Array]:
    """Outputs as words [words, lanes] uint32."""
    outputs = jax.vmap(kind.fn, in_axes=-1, out_axes=-1)(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [_encode(o, *form) for o, form in zip(outputs, kind.outputs, strict=True)]
