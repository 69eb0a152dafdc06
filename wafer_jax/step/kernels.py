"""Kernels: pure per-PE functions on tiles, run for the PEs that start one in a cycle.

Few PEs: their operands are gathered, the body runs on the small arrays, results are scattered.
Many PEs: the body runs on all lanes and the results are masked, which needs no gather.
"""

import math
from dataclasses import replace

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
        branches = [
            lambda s, m, o, kind=kind, run=run: run(spec, kind, s, m, o)
            for kind in spec.kernels
            for run in (_run_gathered, _run_dense)
        ]
        many = jnp.sum(here) * DENSE_SHARE >= spec.lanes
        which = kinds[number] * 2 + many.astype(jnp.int32)
        sram, bad, done = lax.switch(which, branches, sram, here, offsets[number])
        faults |= jnp.where(bad, int(Fault.UNWRITTEN_READ), 0)
        return sram, faults, jnp.where(done, -1, instance)

    faults = jnp.zeros(spec.lanes, jnp.int32)
    sram, faults, _ = lax.while_loop(
        lambda carry: jnp.any(carry[2] >= 0), body, (sram, faults, instance)
    )
    return sram, faults


def _run_dense(spec: StepSpec, kind: KernelKind, sram: jax.Array, here: jax.Array, offsets):
    """All lanes at once; only the lanes of ``here`` keep the results."""
    n = spec.lanes
    inputs, bad = [], jnp.zeros(n, bool)
    for m, (shape, dtype) in enumerate(kind.inputs):
        words = lax.dynamic_slice(sram, (offsets[m] * n,), (_words(shape, dtype) * n,))
        words = words.reshape(-1, n)
        bad |= here & jnp.any(words == POISON, axis=0)
        inputs.append(_decode(words, shape, dtype))
    for m, words in enumerate(_apply(kind, inputs), start=len(inputs)):
        at = (offsets[m] * n,)
        kept = lax.dynamic_slice(sram, at, (words.size,))
        new = jnp.where(here[None], words, kept.reshape(words.shape)).reshape(-1)
        sram = lax.dynamic_update_slice(sram, new, at)
    return sram, bad, here


def _run_gathered(spec: StepSpec, kind: KernelKind, sram: jax.Array, here: jax.Array, offsets):
    """The first BATCH lanes of ``here``."""
    n = spec.lanes
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
