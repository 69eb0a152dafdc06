"""From a `Program` to what the executor runs: a static `StepSpec` and arrays, `Code`.

The step is specialised on the spec, so what a program does not use costs nothing: links that no
colour takes, arbitration where no two colours share a link, faults that cannot arise, loops,
semaphores, values. Programs with equal specs share one compilation.

Axes as in step_spec.py.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.event_table import (
    COPY,
    DYNAMIC_FIELDS,
    FIELDS,
    REGISTER_FIELDS,
    VALUE_FIELDS,
    combine_code,
    event_table,
)
from wafer_jax.events import (
    Compute,
    Forward,
    Loop,
    Receive,
    Reconfigure,
    Register,
    SendControl,
    Signal,
    Tile,
    Wait,
    event_words,
    is_wide,
    registers_of,
    send_color,
)
from wafer_jax.hardware import RAMP
from wafer_jax.program import Program
from wafer_jax.routes import (
    all_routes,
    capacities,
    dynamic_colors,
    links,
    payload_rings,
    same_routes,
    share_links,
    unrouted_heads,
)
from wafer_jax.step_spec import (
    INPUT_OR_OUTPUT,
    NARROW,
    OUTPUT,
    REGISTER,
    RING,
    WIDE,
    Code,
    FifoFormat,
    Form,
    KernelKind,
    StepSpec,
    to_lanes,
)


@lru_cache(maxsize=8)
def lower(
    program: Program,
    *,
    values: bool,
    jitter: bool = False,
    watchdog: bool = False,
    packets: bool = False,
    carry_all: bool = False,
) -> tuple[StepSpec, Code]:
    """Specialise a validated program.

    Args:
      program: What is run.
      values: SRAM and payloads exist.
      jitter: Threads start late and stall.
      watchdog: Threads that are blocked for long end the run.
      packets: Words travel in packets.
      carry_all: Payloads of all colours travel with their words, not only of dynamic colours.

    Raises:
      WaferError: More colours and semaphores than the executor's masks hold; kernels that write
        registers, without values.
    """
    hw, num_colors, num_threads = program.hw, len(program.colors), program.num_threads
    events = program.events
    semaphores = 1 + max((e.semaphore for e in events if isinstance(e, Signal | Wait)), default=-1)
    if num_colors + semaphores > 29:
        raise WaferError(
            f"{program.name}: {num_colors} colours and {semaphores} semaphores; together at most 29"
        )
    if not values:
        _refuse_register_kernels(program)
    capacity, input_capacity = capacities(program)
    largest = max(capacity.max(initial=0), input_capacity.max(initial=0))
    latency = max(hw.hop_cycles, hw.ramp_cycles + 1)
    fifo = NARROW if largest <= 15 and latency <= 8 else WIDE
    dynamic = dynamic_colors(program)
    unrouted = unrouted_heads(program.rx, program.tx)
    unrouted[list(dynamic)] = False
    carried = () if not values else tuple(range(num_colors)) if carry_all else dynamic
    marked = {*dynamic, *carried}
    instances: list[Compute] = []
    wide_masks = num_colors + semaphores > 13
    table = event_table(program, instances, wide_masks)
    moves = any(isinstance(e, Reconfigure) for e in events)
    used = links(program)
    spec = StepSpec(
        mesh=hw.mesh,
        colors=num_colors,
        links=used,
        sending=_used(program, send_color),
        delivered=tuple(c for c in range(num_colors) if RAMP in used[c]),
        threads=num_threads,
        semaphores=semaphores,
        levels=1 + max((e.level for e in events if isinstance(e, Loop)), default=-1),
        events=table["words"].shape[-1],
        fifo=fifo,
        wide_masks=wide_masks,
        hop_cycles=hw.hop_cycles,
        ramp_cycles=hw.ramp_cycles,
        arbitrates=share_links(program),
        can_be_unrouted=bool(unrouted.any()),
        dynamic=dynamic,
        segments=len(program.segments) if moves else 1,
        positions=capacity.shape[1] if dynamic else 1,
        controls=any(isinstance(e, SendControl) for e in events),
        router_slots=_slots(capacity, marked),
        input_slots=_slots(input_capacity, carried),
        computes=bool(instances),
        registers=1 + max((r for e in events for r in registers_of(e)), default=-1),
        dynamic_lengths=any(isinstance(event_words(e), Register) for e in events),
        pairs=num_threads > 1 and any(is_wide(e) for e in events),
        jitter=jitter,
        watchdog=watchdog,
        packets=packets,
        values=values,
        carried=carried,
    )
    routes = _pack_routes(program, fifo, capacity, input_capacity)
    role = program.role_of * num_threads * spec.events
    names = FIELDS + (VALUE_FIELDS if values else ()) + (REGISTER_FIELDS if spec.registers else ())
    names += DYNAMIC_FIELDS if dynamic or moves else ()
    arrays = {
        "routes": jnp.asarray(to_lanes(routes[0, 0]), fifo.dtype),
        "unrouted": jnp.asarray(to_lanes(unrouted)) if spec.can_be_unrouted else None,
        "role": jnp.asarray(to_lanes(role, fill=_idle_role(program) * num_threads * spec.events)),
        "table": {name: jnp.asarray(table[name].reshape(-1)) for name in names},
    }
    arrays |= _lower_dynamic(program, spec, routes)
    if values:
        spec, more = _lower_values(program, spec, instances, capacity[0, 0], input_capacity[0, 0])
        arrays |= more
    return spec, Code(**arrays)


def _slots(capacity: np.ndarray, colors: Collection[int]) -> tuple[int, ...]:
    """Per colour the largest of [G, P, C, Y, X] capacities, at least 1; 0 of all other colours."""
    largest = capacity.max(axis=(0, 1, 3, 4), initial=1)
    return tuple(int(n) if c in colors else 0 for c, n in enumerate(largest))


def _pack_routes(
    program: Program, fifo: FifoFormat, capacity: np.ndarray, input_capacity: np.ndarray
) -> np.ndarray:
    """[G, P, C, Y, X] uint32, see `Code.routes`."""
    rx, tx = all_routes(program)
    return (
        tx.astype(np.uint32)
        | (rx + 1).astype(np.uint32) << 5
        | capacity.astype(np.uint32) << 8
        | input_capacity.astype(np.uint32) << (8 + fifo.count_bits)
    )


def _lower_dynamic(program: Program, spec: StepSpec, routes: np.ndarray) -> dict:
    """Routes, switches and classes of the dynamic colours in all segments that can be reached."""
    segments = program.segments[: spec.segments]
    classes = np.zeros((len(segments), len(program.colors), *spec.mesh), np.uint8)
    for g in range(1, len(segments)):
        classes[g] = g
        for earlier in reversed(range(g)):
            same = same_routes(program, g, earlier)
            classes[g] = np.where(same, classes[earlier], classes[g])

    def lanes(grids: list[np.ndarray], dtype, fill=0) -> jax.Array:
        return jnp.asarray(to_lanes(np.stack(grids), fill).reshape(-1), dtype)

    return {
        "route_table": tuple(
            jnp.asarray(to_lanes(routes[: len(segments), :, c]).reshape(-1), spec.fifo.dtype)
            for c in spec.dynamic
        ),
        "switches": tuple(
            lanes([s.positions[c] + RING * s.ring[c] for s in segments], jnp.uint8, 1)
            for c in spec.dynamic
        ),
        "route_classes": tuple(lanes(list(classes[:, c]), jnp.uint8) for c in spec.dynamic),
    }


def _idle_role(program: Program) -> int:
    """Row block for ghosts: a block of halts is appended to the table behind the roles."""
    return len(program.roles)


def _used(program: Program, color_of: Callable) -> tuple[int, ...]:
    used = {color_of(e) for e in program.events} - {None}
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
    ring_in, ring_out, log_words = payload_rings(program, capacity, input_capacity, spec.carried)
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
    except Exception as error:
        # A kernel is the user's function, which may raise anything.
        reason = (str(error) or type(error).__name__).splitlines()[0]
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


def _refuse_register_kernels(program: Program) -> None:
    for event in program.events:
        if isinstance(event, Compute) and any(isinstance(o, Register) for o in event.outputs):
            raise WaferError(
                f"{program.name}: kernel {event.kernel.name!r} writes a register, so its timing "
                f"depends on values: run it with values='full'"
            )
