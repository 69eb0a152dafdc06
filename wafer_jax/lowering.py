"""From a `Program` to what the executor runs: a static `StepSpec` and arrays, `Code`.

The step is specialised on the spec, so what a program does not use costs nothing: links that no
colour takes, arbitration where no two colours share a link, faults that cannot arise, loops,
semaphores, values. Programs with equal specs share one compilation.

Axes: C colours, D delivered colours, T threads, R roles, E events per thread, n lanes: the PEs in
row-major order with one inert ghost column, n = Y * (X + 1), so that a neighbour is a constant
offset.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.blocks import Blocks
from wafer_jax.errors import WaferError
from wafer_jax.event_table import (
    COPY,
    FIELDS,
    REGISTER_FIELDS,
    VALUE_FIELDS,
    combine_code,
    event_table,
)
from wafer_jax.events import (
    Compute,
    Event,
    Forward,
    Loop,
    Receive,
    Register,
    Signal,
    Tile,
    Wait,
    event_words,
    registers_of,
    send_color,
)
from wafer_jax.hardware import RAMP
from wafer_jax.program import Program
from wafer_jax.routes import capacities, links, payload_rings, share_links, unrouted_heads

INPUT_OR_OUTPUT, OUTPUT = 1, 2
"""Bits of a kernel's footprint, per word of SRAM."""


@dataclass(frozen=True)
class FifoFormat:
    """A FIFO as one unsigned word: ready count, total count, and a delay line.

    Bit k of the delay line set: one word becomes ready in k + 1 cycles. No queue slot is copied
    and no timestamp kept; the 16-bit format serves capacities to 15 and latencies to 8.
    """

    bits: int
    count_bits: int

    @property
    def dtype(self):
        """Storage type of the packed word."""
        return jnp.uint16 if self.bits == 16 else jnp.uint32

    @property
    def line_shift(self) -> int:
        """Position of the delay line."""
        return 2 * self.count_bits


NARROW, WIDE = FifoFormat(16, 4), FifoFormat(32, 8)


Form = tuple[tuple[int, ...], str]
"""Shape and dtype of an operand; of a register () and REGISTER."""
REGISTER = "register"


@dataclass(frozen=True)
class KernelKind:
    """A kernel body with the shapes it works on; instances differ only in offsets."""

    fn: Callable
    inputs: tuple[Form, ...]
    outputs: tuple[Form, ...]


@dataclass(frozen=True)
class StepSpec:
    """Everything that the compiled step is specialised on; hashable.

    Attributes:
      mesh: (Y, X).
      colors: C.
      links: Per colour, the directions in which some PE transmits it (RAMP included).
      sending: Indices of colours that threads send.
      delivered: Indices of colours that some router delivers to its PE.
      threads: T.
      semaphores: S.
      levels: Nesting depth of loops.
      events: E.
      fifo: Format of a packed FIFO word.
      wide_masks: Colour and semaphore masks need 32 bits instead of 16.
      hop_cycles: Latency of a link.
      ramp_cycles: Latency of the ramp.
      arbitrates: Some PE has two colours that may want the same link.
      can_be_unrouted: Some head may have no way on.
      computes: The program has kernels (their duration matters without values, too).
      registers: Registers in use.
      dynamic_lengths: Some stream takes its number of words from a register.
      jitter: Threads start late and stall.
      values: SRAM and payloads exist.
      sram_words: Words of SRAM per PE.
      log_words: Words of the payload log.
      combines: Combine codes in use.
      kernels: Kernel bodies in use.
      kernel_threads: Threads that run kernels while other threads may touch their tiles.
      blocks: How the wafer is cut, if this is the step of one block; `mesh` is the block's then.
    """

    mesh: tuple[int, int]
    colors: int
    links: tuple[tuple[int, ...], ...]
    sending: tuple[int, ...]
    delivered: tuple[int, ...]
    threads: int
    semaphores: int
    levels: int
    events: int
    fifo: FifoFormat
    wide_masks: bool
    hop_cycles: int
    ramp_cycles: int
    arbitrates: bool
    can_be_unrouted: bool
    computes: bool
    registers: int
    dynamic_lengths: bool
    jitter: bool
    values: bool
    sram_words: int = 0
    log_words: int = 0
    combines: tuple[int, ...] = ()
    kernels: tuple[KernelKind, ...] = ()
    kernel_threads: tuple[int, ...] = ()
    blocks: Blocks | None = None

    @property
    def row(self) -> int:
        """Lanes of one mesh row, the ghost included."""
        return self.mesh[1] + 1 if self.blocks is None else self.blocks.row

    @property
    def lanes(self) -> int:
        """Lanes of the mesh."""
        return self.mesh[0] * self.row

    @property
    def mask_dtype(self):
        """Type of masks over colours and semaphores."""
        return jnp.int32 if self.wide_masks else jnp.int16

    @property
    def halt_bit(self) -> int:
        """A need that is never met: the mark of a halted thread."""
        return 1 << (30 if self.wide_masks else 14)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Code:
    """The arrays of a lowered program.

    Attributes:
      routes: [C, n] packed: tx (5 bits), rx + 1 (3), capacity of router FIFO and input queue.
      unrouted: [C, n] bool, or None.
      role: [n] int32, start of the PE's role in the table.
      table: Per field, [R * T * E] int32.
      ring_in: (first word, size - 1) of the log ring that feeds (colour, PE); [2, C, n] int32.
      ring_out: The same for the ring that (colour, PE) writes.
      kernel_kind: [K] int32, kind of each kernel instance.
      kernel_offsets: [K, operands] int32, offsets (or registers) of its inputs, then outputs.
      footprint: [K, words] uint8, which words an instance uses.
    """

    routes: jax.Array
    unrouted: jax.Array | None
    role: jax.Array
    table: dict[str, jax.Array]
    ring_in: jax.Array | None = None
    ring_out: jax.Array | None = None
    kernel_kind: jax.Array | None = None
    kernel_offsets: jax.Array | None = None
    footprint: jax.Array | None = None


@lru_cache(maxsize=8)
def lower(program: Program, *, values: bool, jitter: bool = False) -> tuple[StepSpec, Code]:
    """Specialise a validated program.

    Raises:
      WaferError: More colours and semaphores than the executor's masks hold; kernels that write
        registers, without values.
    """
    hw, num_colors, num_threads = program.hw, len(program.colors), program.num_threads
    events = [e for r in program.roles for t in r.threads for e in t]
    semaphores = 1 + max((e.semaphore for e in events if isinstance(e, Signal | Wait)), default=-1)
    if num_colors + semaphores > 29:
        raise WaferError(
            f"{program.name}: {num_colors} colours and {semaphores} semaphores; together at most 29"
        )
    if not values:
        _refuse_register_kernels(program, events)
    capacity, input_capacity = capacities(program)
    largest = max(capacity.max(initial=0), input_capacity.max(initial=0))
    latency = max(hw.hop_cycles, hw.ramp_cycles + 1)
    fifo = NARROW if largest <= 15 and latency <= 8 else WIDE
    unrouted = unrouted_heads(program)
    instances: list[Compute] = []
    table = event_table(program, instances, semaphores)
    spec = StepSpec(
        mesh=hw.mesh,
        colors=num_colors,
        links=links(program),
        sending=_used(program, events, send_color),
        delivered=tuple(c for c in range(num_colors) if (program.tx[c] >> RAMP & 1).any()),
        threads=num_threads,
        semaphores=semaphores,
        levels=1 + max((e.level for e in events if isinstance(e, Loop)), default=-1),
        events=table["words"].shape[-1],
        fifo=fifo,
        wide_masks=num_colors + semaphores > 14,
        hop_cycles=hw.hop_cycles,
        ramp_cycles=hw.ramp_cycles,
        arbitrates=share_links(program),
        can_be_unrouted=bool(unrouted.any()),
        computes=bool(instances),
        registers=1 + max((r for e in events for r in registers_of(e)), default=-1),
        dynamic_lengths=any(isinstance(event_words(e), Register) for e in events),
        jitter=jitter,
        values=values,
    )
    shift = fifo.count_bits
    routes = (
        program.tx.astype(np.uint32)
        | (program.rx + 1).astype(np.uint32) << 5
        | capacity.astype(np.uint32) << 8
        | input_capacity.astype(np.uint32) << (8 + shift)
    )
    role = program.role_of * num_threads * spec.events
    names = FIELDS + (VALUE_FIELDS if values else ()) + (REGISTER_FIELDS if spec.registers else ())
    arrays = {
        "routes": jnp.asarray(to_lanes(routes), fifo.dtype),
        "unrouted": jnp.asarray(to_lanes(unrouted)) if spec.can_be_unrouted else None,
        "role": jnp.asarray(to_lanes(role, fill=_idle_role(program) * num_threads * spec.events)),
        "table": {name: jnp.asarray(table[name].reshape(-1)) for name in names},
    }
    if values:
        spec, more = _lower_values(program, spec, instances, capacity, input_capacity)
        arrays |= more
    return spec, Code(**arrays)


def to_lanes(grid: np.ndarray, fill=0) -> np.ndarray:
    """[..., Y, X] to [..., n]: append the ghost column and flatten."""
    pad = [(0, 0)] * (grid.ndim - 1) + [(0, 1)]
    padded = np.pad(grid, pad, constant_values=fill)
    return padded.reshape(*grid.shape[:-2], padded.shape[-2] * padded.shape[-1])


def from_lanes(lanes: np.ndarray, mesh: tuple[int, int]) -> np.ndarray:
    """[..., n] to [..., Y, X]."""
    height, width = mesh
    return np.asarray(lanes).reshape(*lanes.shape[:-1], height, width + 1)[..., :width]


def _idle_role(program: Program) -> int:
    """Row block for ghosts: a block of halts is appended to the table behind the roles."""
    return len(program.roles)


def _used(program: Program, events: list[Event], color_of: Callable) -> tuple[int, ...]:
    used = {color_of(e) for e in events} - {None}
    return tuple(i for i, c in enumerate(program.colors) if c in used)


def _lower_values(
    program: Program,
    spec: StepSpec,
    instances: list[Compute],
    capacity: np.ndarray,
    input_capacity: np.ndarray,
) -> tuple[StepSpec, dict]:
    kinds: list[KernelKind] = []
    kind_of = []
    for event in instances:
        kind = KernelKind(event.kernel.fn, _signature(event.inputs), _signature(event.outputs))
        if kind not in kinds:
            _check_outputs(program, event, kind)
            kinds.append(kind)
        kind_of.append(kinds.index(kind))
    ring_in, ring_out, log_words = payload_rings(program, capacity, input_capacity)
    words = max(program.sram_words, 1)
    arrays = {
        "ring_in": jnp.asarray(to_lanes(ring_in)),
        "ring_out": jnp.asarray(to_lanes(ring_out)),
    }
    runs = tuple(
        t
        for t in range(spec.threads)
        if any(
            isinstance(e, Compute)
            for r in program.roles
            if t < len(r.threads)
            for e in r.threads[t]
        )
    )
    if kinds:
        tiles = [(*e.inputs, *e.outputs) for e in instances]
        offsets = np.zeros((len(tiles), max(map(len, tiles))), np.int32)
        footprint = np.zeros((len(tiles), words), np.uint8)
        for k, event in enumerate(instances):
            for m, tile in enumerate(tiles[k]):
                if isinstance(tile, Register):
                    offsets[k, m] = tile.index
                    continue
                offsets[k, m] = tile.offset
                bits = INPUT_OR_OUTPUT | (OUTPUT if m >= len(event.inputs) else 0)
                footprint[k, tile.offset : tile.offset + tile.words] |= bits
        arrays |= {
            "kernel_kind": jnp.asarray(kind_of, jnp.int32),
            "kernel_offsets": jnp.asarray(offsets),
            "footprint": jnp.asarray(footprint),
        }
    modes = [
        combine_code(e.combine, e.slice)
        for r in program.roles
        for t in r.threads
        for e in t
        if isinstance(e, Receive | Forward)
    ]
    return replace(
        spec,
        sram_words=words,
        log_words=log_words,
        combines=tuple(sorted(set(modes) - {COPY})),
        kernels=tuple(kinds),
        kernel_threads=runs if spec.threads > 1 else (),
    ), arrays


def _check_outputs(program: Program, event: Compute, kind: KernelKind) -> None:
    """Run the kernel on shapes alone and compare what comes out with its tiles."""
    where = f"{program.name}: kernel {event.kernel.name!r}"
    inputs = [
        jax.ShapeDtypeStruct(shape, jnp.int32 if dtype == REGISTER else jnp.dtype(dtype))
        for shape, dtype in kind.inputs
    ]
    try:
        outputs = jax.eval_shape(kind.fn, *inputs)
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise WaferError(f"{where} fails on inputs of {_shapes(inputs)}: {reason}") from None
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    made = [getattr(o, "shape", None) for o in outputs]
    if made != [shape for shape, _ in kind.outputs]:
        wanted = ", ".join(f"{t.name} {getattr(t, 'shape', ())}" for t in event.outputs)
        raise WaferError(f"{where} gives {made}, its tiles are {wanted}")


def _shapes(inputs: list[jax.ShapeDtypeStruct]) -> str:
    return ", ".join(str(i.shape) for i in inputs)


def _signature(operands: tuple[Tile | Register, ...]) -> tuple[Form, ...]:
    return tuple(
        ((), REGISTER) if isinstance(operand, Register) else (operand.shape, operand.dtype)
        for operand in operands
    )


def _refuse_register_kernels(program: Program, events: list[Event]) -> None:
    for event in events:
        if isinstance(event, Compute) and any(isinstance(o, Register) for o in event.outputs):
            raise WaferError(
                f"{program.name}: kernel {event.kernel.name!r} writes a register, so its timing "
                f"depends on values: run it with values='full'"
            )
