"""What docs/semantics.md refuses before a run, each in one line that names the place.

`ProgramBuilder` checks most of it as it goes; programs from files pass through here alone, so
nothing that the executor takes for granted may be left out.
"""

from typing import get_args

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.events import (
    REGISTERS,
    AddToRegister,
    Branch,
    Combine,
    Compute,
    Event,
    Forward,
    Halt,
    Loop,
    Register,
    SetRegister,
    Signal,
    Slice,
    Tile,
    Wait,
    event_slice,
    receive_color,
    registers_of,
    send_color,
)
from wafer_jax.hardware import DTYPE_BYTES, RAMP, WORD_BYTES
from wafer_jax.program import NO_ROUTE, Program, Role

MAX_VALUE = 1 << 31
MAX_COUNT = 1 << 30
MAX_STRIDE = 1 << 20
MAX_LEVELS = 8
MAX_SEMAPHORES = 16
MAX_KERNEL_CYCLES = 100_000_000
"""Bounds that keep clocks and counters within int32."""


def validate(program: Program) -> None:
    """Check what docs/semantics.md refuses before a run.

    Raises:
      WaferError: Naming the PE, the colour or tile, the amount and the limit.
    """
    _validate_shapes(program)
    for role, mask in zip(program.roles, program.role_masks, strict=True):
        _validate_budget(program, role)
        _validate_events(program, role)
        if mask.any():
            _validate_colors(program, role, mask)


def _validate_shapes(program: Program) -> None:
    hw, shape = program.hw, (len(program.colors), *program.hw.mesh)
    if program.rx.shape != shape or program.tx.shape != shape:
        raise WaferError(f"{program.name}: routes have shape {program.rx.shape}, not {shape}")
    if program.role_of.shape != hw.mesh:
        raise WaferError(
            f"{program.name}: role_of has shape {program.role_of.shape}, not {hw.mesh}"
        )
    numbers = (
        ("role_of", program.role_of, 0, len(program.roles) - 1),
        ("rx", program.rx, NO_ROUTE, RAMP),
        ("tx", program.tx, 0, 31),
    )
    for name, grid, low, high in numbers:
        if grid.size and (grid.min() < low or grid.max() > high):
            raise WaferError(f"{program.name}: {name} holds numbers outside {low} .. {high}")
    if len(program.colors) > hw.colors or any(not 0 <= c < hw.colors for c in program.colors):
        raise WaferError(
            f"{program.name}: uses colours {program.colors}, but {hw.name} has {hw.colors} (0 .. "
            f"{hw.colors - 1})"
        )
    if program.num_threads > hw.threads:
        raise WaferError(
            f"{program.name}: a role uses {program.num_threads} threads, {hw.name} has {hw.threads}"
        )


def _validate_budget(program: Program, role: Role) -> None:
    used, limit = role.words * WORD_BYTES, program.hw.data_bytes
    if used > limit:
        largest = max(role.tiles.values(), key=lambda t: t.words)
        raise WaferError(
            f"{program.name}: role {role.name!r} needs {used} bytes of SRAM per PE, {limit} are "
            f"free; largest tile {largest.name!r} has {largest.words * WORD_BYTES}: use more PEs"
        )


def _validate_events(program: Program, role: Role) -> None:
    for t, events in enumerate(role.threads):
        if not events or not isinstance(events[-1], Halt):
            raise WaferError(f"{program.name}: role {role.name!r}, thread {t} does not end in Halt")
        for i, event in enumerate(events):
            if problem := _problem(program, role, event, i, len(events)):
                raise WaferError(
                    f"{program.name}: role {role.name!r}, thread {t}, event {i}: {problem}"
                )


def _problem(program: Program, role: Role, event: Event, at: int, length: int) -> str | None:
    """What is wrong with one event, or None."""
    if bad := [r for r in registers_of(event) if not 0 <= r < REGISTERS]:
        return f"there is no register {bad[0]}, a PE has {REGISTERS}"
    data = event_slice(event)
    if data is not None and (problem := _slice_problem(role, data)):
        return problem
    if getattr(event, "combine", "copy") not in get_args(Combine):
        return f"combines by {event.combine!r}, which is none of {get_args(Combine)}"  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(event, Forward) and event.slice is None and event.combine != "copy":
        return f"has no slice for its {event.combine}"
    match event:
        case Forward(words=int(words), slice=data):
            if words < 1 or (data is not None and data.words != words):
                return f"forwards {words} words"
        case Branch(target=target) if not 0 <= target < length:
            return f"branches to event {target} of {length}"
        case SetRegister(value=v) | AddToRegister(value=v) | Branch(value=v):
            if not -MAX_VALUE <= v < MAX_VALUE:
                return f"{v} does not fit a register of 32 bits"
        case Loop(first=first, count=count, level=level):
            if not (0 <= first <= at and 1 <= count <= MAX_COUNT and 0 <= level < MAX_LEVELS):
                return f"loops from event {first}, {count} times, at level {level}"
        case Signal(semaphore=s) | Wait(semaphore=s) if not 0 <= s < MAX_SEMAPHORES:
            return f"there is no semaphore {s}, a PE has {MAX_SEMAPHORES}"
        case Compute(inputs=inputs, outputs=outputs, cycles=cycles):
            if not inputs:
                return "a kernel needs an input"
            if isinstance(cycles, int) and not 1 <= cycles <= MAX_KERNEL_CYCLES:
                return f"a kernel of {cycles} cycles; 1 .. {MAX_KERNEL_CYCLES} can be run"
            tiles = [o for o in (*inputs, *outputs) if isinstance(o, Tile)]
            if outside := [tile for tile in tiles if _outside(role, tile.offset, tile.words)]:
                return f"tile {outside[0].name!r} lies outside the role's {role.words} words"
    return None


def _slice_problem(role: Role, data: Slice) -> str | None:
    if data.dtype not in DTYPE_BYTES:
        return f"streams elements of unknown type {data.dtype!r}"
    words = 1 if isinstance(data.words, Register) else data.words
    last = data.offset + data.stride * (words - 1)
    if abs(data.stride) > MAX_STRIDE:
        return f"a stride of {data.stride} words is over {MAX_STRIDE}"
    if not 1 <= words <= MAX_COUNT or _outside(role, data.offset, 1) or _outside(role, last, 1):
        return (
            f"words {data.offset} .. {last} in steps of {data.stride} lie outside the role's "
            f"{role.words} words of SRAM"
        )
    return None


def _outside(role: Role, offset: int, words: int) -> bool:
    return offset < 0 or offset + words > role.words


def _validate_colors(program: Program, role: Role, mask: np.ndarray) -> None:
    y, x = (int(v) for v in np.argwhere(mask)[0])
    here = f"{program.name}: role {role.name!r} (e.g. PE y={y}, x={x})"
    for end, color_of, queues, depths in (
        ("sends on", send_color, role.output_queues, program.hw.output_queue_depths),
        ("receives from", receive_color, role.input_queues, program.hw.input_queue_depths),
    ):
        owner: dict[int, int] = {}
        for t, events in enumerate(role.threads):
            for color in (c for c in map(color_of, events) if c is not None):
                if owner.setdefault(color, t) != t:
                    raise WaferError(f"{here}: threads {owner[color]} and {t} both use the end "
                                     f"that {end} colour {color}; one thread owns it")  # fmt: skip
        if len(set(queues.values())) < len(queues) or any(
            not 0 <= q < len(depths) for q in queues.values()
        ):
            raise WaferError(f"{here}: {len(queues)} colours need {len(queues)} distinct queues, "
                             f"{program.hw.name} has {len(depths)}")  # fmt: skip
        if missing := set(owner) - set(queues):
            raise WaferError(f"{here}: {end} colour {min(missing)} without a queue")
        for color in owner:
            if color not in program.colors:
                raise WaferError(f"{here}: {end} colour {color}, which has no route")
            i = program.colors.index(color)
            wired = program.rx[i] == RAMP if end == "sends on" else program.tx[i] >> RAMP & 1 == 1
            if bad := np.argwhere(mask & ~wired).tolist():
                raise WaferError(
                    f"{program.name}: PE (y={bad[0][0]}, x={bad[0][1]}) {end} colour {color}, but "
                    f"its router is not connected to the RAMP for it: paint the route"
                )
