"""What docs/semantics.md refuses before a run, each in one line that names the place.

`ProgramBuilder` checks most of it as it goes; programs from files pass through here alone, so
nothing that the executor takes for granted may be left out.
"""

from typing import get_args

import numpy as np

from wafer_jax.arguments import shown
from wafer_jax.errors import WaferError
from wafer_jax.events import (
    REGISTERS,
    AddToRegister,
    Branch,
    Combine,
    Command,
    Compute,
    Event,
    Forward,
    Halt,
    Loop,
    Reconfigure,
    Register,
    Relation,
    SendControl,
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
from wafer_jax.program import NO_ROUTE, Program, Role, Segment
from wafer_jax.routes import all_routes

MAX_VALUE = 1 << 31
MAX_COUNT = 1 << 30
MAX_STRIDE = 1 << 20
MAX_LEVELS = 8
MAX_SEMAPHORES = 16
MAX_SEGMENTS = 32
MAX_KERNEL_CYCLES = 100_000_000
"""Bounds that keep clocks and counters within int32."""


def validate(program: Program) -> None:
    """Check what docs/semantics.md refuses before a run.

    Raises:
      WaferError: Naming the PE, the colour or tile, the amount and the limit.
    """
    _validate_shapes(program)
    rx, tx = all_routes(program)
    wired = (rx == RAMP).any(axis=(0, 1)), (tx >> RAMP & 1 == 1).any(axis=(0, 1))
    for role, mask in zip(program.roles, program.role_masks, strict=True):
        _validate_budget(program, role, mask)
        _validate_events(program, role)
        if mask.any():
            _validate_colors(program, role, mask, wired)
            _validate_queues(program, role, mask)


def _validate_shapes(program: Program) -> None:
    hw = program.hw
    if not 1 <= len(program.segments) <= MAX_SEGMENTS:
        raise WaferError(
            f"{program.name}: {len(program.segments)} segments; 1 .. {MAX_SEGMENTS} can be run"
        )
    for segment in program.segments:
        _validate_segment(program, segment)
    if program.role_of.shape != hw.mesh:
        raise WaferError(
            f"{program.name}: role_of has shape {program.role_of.shape}, not {hw.mesh}"
        )
    _validate_range(program, "role_of", program.role_of, 0, len(program.roles) - 1)
    if len(program.colors) > hw.colors or any(not 0 <= c < hw.colors for c in program.colors):
        raise WaferError(
            f"{program.name}: uses colours {program.colors}, but {hw.name} has {hw.colors} (0 .. "
            f"{hw.colors - 1})"
        )
    if program.num_threads > hw.threads:
        raise WaferError(
            f"{program.name}: a role uses {program.num_threads} threads, {hw.name} has {hw.threads}"
        )


def _validate_range(program: Program, name: str, grid: np.ndarray, low: int, high: int) -> None:
    if grid.size and (grid.min() < low or grid.max() > high):
        raise WaferError(f"{program.name}: {name} holds numbers outside {low} .. {high}")


def _validate_segment(program: Program, segment: Segment) -> None:
    hw, shape = program.hw, (len(program.colors), *program.hw.mesh)
    here = f"{program.name}: segment {segment.name!r}"
    grids = (
        ("rx", segment.rx, NO_ROUTE, RAMP),
        ("tx", segment.tx, 0, 31),
        ("positions", segment.positions, 1, len(segment.rx)),
        ("ring", segment.ring, 0, 1),
    )
    for name, grid, low, high in grids:
        wanted = (len(segment.rx), *shape) if name in ("rx", "tx") else shape
        if grid.shape != wanted:
            raise WaferError(f"{here}: {name} has shape {grid.shape}, not {wanted}")
        _validate_range(program, name, grid, low, high)
    if len(segment.rx) > hw.switch_positions:
        raise WaferError(
            f"{here}: a switch has {len(segment.rx)} positions, {hw.name} has {hw.switch_positions}"
        )
    if hw.switch_changes == "one side":
        for p in range(1, len(segment.rx)):
            changes = (segment.rx[p] != segment.rx[0]) & (segment.tx[p] != segment.tx[0])
            for c, y, x in np.argwhere(changes & (segment.positions > p))[:1].tolist():
                raise WaferError(
                    f"{here}: PE (y={y}, x={x}), colour {program.colors[c]}: position {p} changes "
                    f"both rx and tx; a switch of {hw.name} changes one side of position 0: "
                    f"keep the other, or put the route into a segment of its own"
                )


def _validate_budget(program: Program, role: Role, mask: np.ndarray) -> None:
    used, limit = role.words * WORD_BYTES, program.hw.data_bytes
    if used > limit:
        largest = max(role.tiles.values(), key=lambda t: t.words)
        where = "".join(f" (e.g. PE y={y}, x={x})" for y, x in np.argwhere(mask)[:1].tolist())
        raise WaferError(
            f"{program.name}: role {role.name!r}{where} needs {used} bytes of SRAM per PE, "
            f"{limit} are free; largest tile {largest.name!r} has {largest.words * WORD_BYTES}: "
            f"use more PEs"
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
    if not isinstance(event, Event):
        return f"{shown(event)} is no event"
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
        case Branch(relation=how) if how not in get_args(Relation):
            return f"branches if {shown(how)}, which is none of {get_args(Relation)}"
        case Branch(target=target) if not 0 <= target < length:
            return f"branches to event {target} of {length}"
        case Reconfigure(segment=int(s)) if not 0 <= s < len(program.segments):
            return f"there is no segment {s}, the program has {len(program.segments)}"
        case SendControl(command=command) if command not in get_args(Command):
            return f"sends the command {command!r}, which is none of {get_args(Command)}"
        case SetRegister(value=v) | AddToRegister(value=v) | Branch(value=v):
            if not -MAX_VALUE <= v < MAX_VALUE:
                return f"{v} does not fit a register of 32 bits"
        case Loop(first=first, count=count, level=level):
            if not 0 <= level < MAX_LEVELS:
                return f"a loop inside {level} others: at most {MAX_LEVELS} loops can be nested"
            if not (0 <= first <= at and 1 <= count <= MAX_COUNT):
                return (
                    f"loops from event {first}, {count} times: a loop goes back, and runs 1 .. "
                    f"{MAX_COUNT} times"
                )
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


def _validate_queues(program: Program, role: Role, mask: np.ndarray) -> None:
    for g, queues in enumerate(role.queues):
        where = f", segment {g}" if len(program.segments) > 1 else ""
        here = f"{_example(program, role, mask)}{where}"
        if g >= len(program.segments):
            raise WaferError(f"{here}: binds queues in a segment that the program does not have")
        for binding, depths in (
            (queues.output, program.hw.output_queue_depths),
            (queues.input, program.hw.input_queue_depths),
        ):
            numbers = set(binding.values())
            if len(numbers) < len(binding) or not all(0 <= q < len(depths) for q in numbers):
                raise WaferError(f"{here}: {len(binding)} colours need {len(binding)} distinct "
                                 f"queues, {program.hw.name} has {len(depths)}")  # fmt: skip
            if unknown := set(binding) - set(program.colors):
                raise WaferError(f"{here}: binds colour {min(unknown)}, which has no route")


def _example(program: Program, role: Role, mask: np.ndarray) -> str:
    y, x = (int(v) for v in np.argwhere(mask)[0])
    return f"{program.name}: role {role.name!r} (e.g. PE y={y}, x={x})"


def _validate_colors(
    program: Program, role: Role, mask: np.ndarray, wired: tuple[np.ndarray, np.ndarray]
) -> None:
    """Each end of a colour: one thread, a queue, and a route to the RAMP in some segment.

    Args:
      wired: [C, Y, X] bool each, pairs that ever receive from, and transmit to, the RAMP.
    """
    here = _example(program, role, mask)
    ends = (
        ("sends on", send_color, [q.output for q in role.queues], wired[0]),
        ("receives from", receive_color, [q.input for q in role.queues], wired[1]),
    )
    for end, color_of, bindings, connected in ends:
        owner: dict[int, int] = {}
        for t, events in enumerate(role.threads):
            for color in (c for c in map(color_of, events) if c is not None):
                if owner.setdefault(color, t) != t:
                    raise WaferError(f"{here}: threads {owner[color]} and {t} both use the end "
                                     f"that {end} colour {color}; one thread owns it")  # fmt: skip
        for color in sorted(owner):
            if color not in program.colors:
                raise WaferError(f"{here}: {end} colour {color}, which has no route")
            unconnected = mask & ~connected[program.colors.index(color)]
            if bad := np.argwhere(unconnected).tolist():
                raise WaferError(
                    f"{program.name}: PE (y={bad[0][0]}, x={bad[0][1]}) {end} colour {color}, but "
                    f"its router is not connected to the RAMP for it: paint the route"
                )
            if not any(color in binding for binding in bindings):
                raise WaferError(f"{here}: {end} colour {color} without a queue")
