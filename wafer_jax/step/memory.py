"""SRAM and payloads (docs/semantics.md, section 2.3).

Where routes are fixed payloads do not travel: a sender writes its k-th word to its ring of the
log, the receiver reads it there (`routes.payload_rings`). Those of carried colours travel
(slots.py). A PE issues once per cycle (a pair of wide streams: twice), which costs one read and
one write of SRAM and of the log per lane.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.event_table import COMBINES, MODE_SHIFT, READS, WRITES
from wafer_jax.faults import Fault
from wafer_jax.mesh_state import POISON, MemoryState
from wafer_jax.step.issue import Issue, select
from wafer_jax.step_spec import INPUT_OR_OUTPUT, OUTPUT, Code, StepSpec

_OPERATIONS = {"add": lax.add, "max": lax.max, "min": lax.min}


def stream(
    spec: StepSpec, code: Code, now: jax.Array, memory: MemoryState, issue: Issue
) -> tuple[MemoryState, jax.Array, jax.Array]:
    """Move the words that threads issue in this cycle.

    Returns:
      The memory, fault bits [n] int32, and the payload [n] uint32 of the word that is pushed.
    """
    lane = jnp.arange(spec.lanes, dtype=jnp.int32)
    colors = (1 << spec.colors) - 1
    pops, pushes = issue.pops & colors != 0, issue.pushes & colors != 0
    mode = select(issue.wins, memory.mode)
    reads, writes = mode & READS != 0, mode & WRITES != 0
    address = select(issue.wins, memory.address)
    outside = jnp.zeros(spec.lanes, bool)
    if spec.dynamic_lengths:
        outside = (address < 0) | (address >= spec.sram_words)
        address = jnp.where(outside, 0, address)
    place = address * spec.lanes + lane
    held = memory.sram.at[place].get(mode="promise_in_bounds", unique_indices=True)
    old = jnp.where(outside, jnp.uint32(POISON), held)
    arrived = _arrived(spec, memory, issue)
    value = _combine(spec, mode >> MODE_SHIFT, old, jnp.where(pops, arrived, old))
    sram = memory.sram.at[place].set(
        jnp.where(writes & ~outside, value, held), mode="promise_in_bounds", unique_indices=True
    )
    log = memory.log
    if spec.log_words:
        logged = issue.pushes & colors & ~_mask(spec.carried) != 0
        slot = jnp.where(logged, select(issue.wins, memory.write_at), spec.log_words + lane)
        log = log.at[slot].set(value, mode="promise_in_bounds", unique_indices=True)
    faults = jnp.where(reads & ~outside & (old == POISON), int(Fault.UNWRITTEN_READ), 0)
    if spec.dynamic_lengths:
        misses = (reads | writes) & outside
        faults |= jnp.where(misses, int(Fault.SRAM_OUT_OF_BOUNDS), 0)
    faults |= _races(spec, code, now, memory, issue, address, reads & ~outside, writes & ~outside)
    return (
        replace(
            memory,
            sram=sram,
            log=log,
            address=_advance(issue.wins, memory.address, memory.stride),
            read_at=_advance_ring(issue.wins, pops, memory.read_at, memory.read_mask),
            write_at=_advance_ring(issue.wins, pushes, memory.write_at, memory.write_mask),
        ),
        faults,
        value,
    )


def _arrived(spec: StepSpec, memory: MemoryState, issue: Issue) -> jax.Array:
    """[n] uint32: payload of the word that the winner pops."""
    word = jnp.zeros(spec.lanes, jnp.uint32)
    if spec.log_words:
        word = memory.log.at[select(issue.wins, memory.read_at)].get(mode="promise_in_bounds")
    for c, slots in zip(spec.carried_inputs, memory.input_words, strict=True):
        word = jnp.where(issue.pops >> c & 1 == 1, slots[0], word)
    return word


def _mask(colors: tuple[int, ...]) -> int:
    return sum(1 << c for c in colors)


def _combine(spec: StepSpec, how: jax.Array, old: jax.Array, word: jax.Array) -> jax.Array:
    """The word itself, or memory (+) word in the element type that the event names."""
    out = word
    for code in spec.combines:
        name, dtype = COMBINES[code - 1]
        # A float32 per word, or [n, 2] 16-bit elements.
        a, b = (lax.bitcast_convert_type(w, jnp.dtype(dtype)) for w in (old, word))
        combined = lax.bitcast_convert_type(_OPERATIONS[name](a, b), jnp.uint32)
        out = jnp.where(how == code, combined, out)
    return out


def _advance(wins: list[jax.Array], planes: tuple, strides: tuple) -> tuple[jax.Array, ...]:
    return tuple(p + jnp.where(w, s, 0) for w, p, s in zip(wins, planes, strides, strict=True))


def _advance_ring(
    wins: list[jax.Array], moves: jax.Array, planes: tuple, masks: tuple
) -> tuple[jax.Array, ...]:
    """Step to the next place of each ring; rings are aligned to their power-of-two size."""
    return tuple(
        jnp.where(w & moves, (p & ~m) | ((p + 1) & m), p)
        for w, p, m in zip(wins, planes, masks, strict=True)
    )


def _races(
    spec: StepSpec,
    code: Code,
    now: jax.Array,
    memory: MemoryState,
    issue: Issue,
    address: jax.Array,
    reads: jax.Array,
    writes: jax.Array,
) -> jax.Array:
    """Fault bits [n] where a stream touches the tiles of another thread's running kernel."""
    out = jnp.zeros(spec.lanes, jnp.int32)
    for k, t in enumerate(spec.kernel_threads):
        running = ~issue.wins[t] & (now < memory.running_until[k])
        footprint = code.footprint
        assert footprint is not None
        at = memory.running[k] * spec.sram_words + address
        bits = footprint.reshape(-1).at[at].get(mode="promise_in_bounds")
        touched = (writes & (bits & INPUT_OR_OUTPUT != 0)) | (reads & (bits & OUTPUT != 0))
        out |= jnp.where(running & touched, int(Fault.KERNEL_RACE), 0)
    return out


def load_event(
    spec: StepSpec,
    code: Code,
    memory: MemoryState,
    issue: Issue,
    row: dict[str, jax.Array],
    counts: tuple[dict[int, jax.Array], dict[int, jax.Array]],
) -> MemoryState:
    """Point the threads that loaded an event at their slice and at their place in the log.

    Args:
      row: Fields of the loaded event.
      counts: Words received and sent so far per colour; they give the place in each ring.
    """
    received, sent = counts

    def update(planes: tuple, value: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(
            jnp.where(w & issue.finished, value, p) for w, p in zip(issue.wins, planes, strict=True)
        )

    def ring(rings: jax.Array | None, colors: jax.Array, words: dict[int, jax.Array]):
        first = mask = jnp.zeros(spec.lanes, jnp.int32)
        assert rings is not None
        for c, count in words.items():
            here = colors == c
            mask = jnp.where(here, rings[1, c], mask)
            first = jnp.where(here, rings[0, c] + (count & rings[1, c]), first)
        return first, mask

    read_at, read_mask = ring(code.ring_in, row["color_in"], received)
    write_at, write_mask = ring(code.ring_out, row["color_out"], sent)
    return replace(
        memory,
        address=update(memory.address, row["offset"]),
        stride=update(memory.stride, row["stride"]),
        mode=update(memory.mode, row["mode"]),
        read_at=update(memory.read_at, read_at),
        read_mask=update(memory.read_mask, read_mask),
        write_at=update(memory.write_at, write_at),
        write_mask=update(memory.write_mask, write_mask),
    )
