"""Kernels: pure per-PE functions on tiles, run for the PEs that start one in a cycle.

Few PEs: their operands are gathered, the body runs on the small arrays, results are scattered.
Many PEs: the body runs on all lanes and the results are masked, which needs no gather.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.faults import Fault
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES
from wafer_jax.mesh_state import POISON, WaferState
from wafer_jax.step.issue import Issue
from wafer_jax.step_spec import REGISTER, Code, KernelKind, StepSpec

BATCH = 64
"""PEs whose operands are gathered at a time."""
DENSE_SHARE = 8
"""Run on all lanes if at least one in this many starts the same kernel."""


def start(
    spec: StepSpec,
    code: Code,
    state: WaferState,
    issue: Issue,
    old: jax.Array,
    duration: jax.Array,
) -> tuple[WaferState, jax.Array]:
    """Run the kernels whose events were issued in this cycle.

    Args:
      spec: Static part.
      code: Arrays.
      state: With registers as the issues of this cycle left them.
      issue: The winners.
      old: [n] int32, position in the table of the finished event.
      duration: [n] int32, cycles of the kernel.

    Returns:
      The state with memory and registers changed, and fault bits [n] int32.
    """
    memory = state.memory
    assert memory is not None
    instance = jnp.where(issue.finished, code.table["kernel"][old], -1)
    running = list(memory.running)
    running_until = list(memory.running_until)
    for k, t in enumerate(spec.kernel_threads):
        starts = issue.wins[t] & (instance >= 0)
        running[k] = jnp.where(starts, instance, running[k])
        running_until[k] = jnp.where(starts, state.now + duration, running_until[k])
    stores, faults = _run(spec, code, Stores(memory.sram, state.registers), instance)
    memory = replace(
        memory, sram=stores.sram, running=tuple(running), running_until=tuple(running_until)
    )
    return replace(state, memory=memory, registers=stores.registers), faults


class Stores(NamedTuple):
    """What kernels read and write: SRAM [words * n] uint32 and registers [G, n] int32 or None."""

    sram: jax.Array
    registers: jax.Array | None


class Batch(NamedTuple):
    """One kernel instance in one cycle.

    Attributes:
      here: [n] bool, lanes that start it.
      offsets: [operands] int32, see `Code.kernel_offsets`.
    """

    here: jax.Array
    offsets: jax.Array


def _run(
    spec: StepSpec, code: Code, stores: Stores, instance: jax.Array
) -> tuple[Stores, jax.Array]:
    assert code.kernel_kind is not None
    assert code.kernel_offsets is not None
    kinds, offsets = code.kernel_kind, code.kernel_offsets
    nowhere = jnp.zeros(spec.lanes, bool)

    def body(carry):
        stores, faults, instance = carry
        number = jnp.max(instance)
        batch = Batch(instance == number, offsets[number])
        many = jnp.sum(batch.here) * DENSE_SHARE >= spec.lanes
        result = (stores, nowhere, batch.here)
        for k, kind in enumerate(spec.kernels):
            chosen = kinds[number] == k
            result = _once(chosen & ~many, partial(_run_gathered, spec, kind, batch), result)
            result = _once(chosen & many, partial(_run_dense, spec, kind, batch), result)
        stores, bad, done = result
        faults |= jnp.where(bad, int(Fault.UNWRITTEN_READ), 0)
        return stores, faults, jnp.where(done, -1, instance)

    faults = jnp.zeros(spec.lanes, jnp.int32)
    stores, faults, _ = lax.while_loop(
        lambda carry: jnp.any(carry[2] >= 0), body, (stores, faults, instance)
    )
    return stores, faults


def _once(condition: jax.Array, body: Callable, operand):
    """``lax.cond(condition, body, identity, operand)``, in place.

    A loop of at most one round: XLA updates the carry of a loop in place, but copies the whole
    SRAM into a branch of a conditional. ``body`` gets the condition, too (see `_before_writes`).
    """
    return lax.while_loop(
        lambda carry: carry[0],
        lambda carry: (jnp.bool_(False), body(*carry)),
        (condition, operand),
    )[1]


def _before_writes(condition: jax.Array, read: Callable, stores: Stores):
    """``read(stores)``, done before anything is written.

    XLA would fuse the reads with what uses them, behind the first write, and keep a copy of the
    old SRAM for them. It fuses nothing across a conditional whose condition it does not know.
    """
    shapes = jax.eval_shape(read, stores)

    def nothing(stores: Stores):
        return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    return lax.cond(condition, read, nothing, stores)


def _run_dense(spec: StepSpec, kind: KernelKind, batch: Batch, condition: jax.Array, result):
    """All lanes at once; only the lanes of the batch keep the results."""

    def read(stores: Stores):
        inputs, bad = [], jnp.zeros(spec.lanes, bool)
        for m, (shape, dtype) in enumerate(kind.inputs):
            at = batch.offsets[m]
            if dtype == REGISTER:
                inputs.append(_register(stores, at))
                continue
            rows = _rows(spec, stores.sram, at, _words(shape, dtype))
            bad |= batch.here & jnp.any(rows == POISON, axis=0)
            inputs.append(_decode(rows, shape, dtype))
        return _apply(kind, inputs), bad

    sram, registers = result[0]
    outputs, bad = _before_writes(condition, read, result[0])
    for m, (value, (_, dtype)) in enumerate(
        zip(outputs, kind.outputs, strict=True), len(kind.inputs)
    ):
        at = batch.offsets[m]
        if dtype == REGISTER:
            registers = registers.at[at].set(jnp.where(batch.here, value, registers[at]))
            continue
        kept = _rows(spec, sram, at, value.shape[0])
        new = jnp.where(batch.here[None], value, kept).reshape(-1)
        sram = lax.dynamic_update_slice(sram, new, (at * spec.lanes,))
    return Stores(sram, registers), bad, batch.here


def _register(stores: Stores, index: jax.Array) -> jax.Array:
    assert stores.registers is not None
    return stores.registers[index]


def _rows(spec: StepSpec, sram: jax.Array, offset: jax.Array, words: int) -> jax.Array:
    """[words, n] of the SRAM."""
    flat = lax.dynamic_slice(sram, (offset * spec.lanes,), (words * spec.lanes,))
    return flat.reshape(words, spec.lanes)


def _run_gathered(spec: StepSpec, kind: KernelKind, batch: Batch, condition: jax.Array, result):
    """The first BATCH lanes of the batch."""
    n = spec.lanes
    lanes = jnp.nonzero(batch.here, size=BATCH, fill_value=n)[0].astype(jnp.int32)
    lane = jnp.minimum(lanes, n - 1)

    def read(stores: Stores):
        inputs, poisoned = [], jnp.zeros(BATCH, bool)
        for m, (shape, dtype) in enumerate(kind.inputs):
            if dtype == REGISTER:
                inputs.append(_register(stores, batch.offsets[m])[lane])
                continue
            rows = (batch.offsets[m] + jnp.arange(_words(shape, dtype), dtype=jnp.int32)) * n
            words = stores.sram.at[rows[:, None] + lane[None]].get(mode="promise_in_bounds")
            poisoned |= jnp.any(words == POISON, axis=0)
            inputs.append(_decode(words, shape, dtype))
        return _apply(kind, inputs), poisoned

    sram, registers = result[0]
    outputs, poisoned = _before_writes(condition, read, result[0])
    for m, (value, (_, dtype)) in enumerate(
        zip(outputs, kind.outputs, strict=True), len(kind.inputs)
    ):
        if dtype == REGISTER:
            registers = registers.at[batch.offsets[m], lanes].set(value, mode="drop")
            continue
        rows = (batch.offsets[m] + jnp.arange(value.shape[0], dtype=jnp.int32)) * n
        place = jnp.where(lanes[None] < n, rows[:, None] + lane[None], sram.size)
        sram = sram.at[place].set(value, mode="drop")
    nowhere = jnp.zeros(n, bool)
    bad = nowhere.at[lanes].set(poisoned, mode="drop")
    return Stores(sram, registers), bad, nowhere.at[lanes].set(True, mode="drop")


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
    """Outputs as words [words, lanes] uint32, registers as [lanes] int32."""
    outputs = jax.vmap(kind.fn, in_axes=-1, out_axes=-1)(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    return [
        o.astype(jnp.int32) if form[1] == REGISTER else _encode(o, *form)
        for o, form in zip(outputs, kind.outputs, strict=True)
    ]
