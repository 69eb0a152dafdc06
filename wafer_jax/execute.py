"""Run a program on the fabric level: estimate, compile, advance, diagnose."""

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import numpy as np
from jax.sharding import Mesh

from wafer_jax.arguments import is_whole, shown, whole
from wafer_jax.builder import ProgramBuilder
from wafer_jax.compilation import compiled
from wafer_jax.devices import Devices, are_several, in_host_memory, place
from wafer_jax.diagnosis import diagnose
from wafer_jax.errors import WaferError
from wafer_jax.events import Branch, Event, Halt, Loop, Register, event_words
from wafer_jax.jitter import Jitter
from wafer_jax.mesh_state import WaferState, initial_state, lowered
from wafer_jax.program import Program
from wafer_jax.result import Result
from wafer_jax.step_spec import StepSpec
from wafer_jax.windows import advance_where_active, are_worth_it

MAX_PACKET_WORDS = 4096
MAX_CYCLES = 2_000_000_000
"""Clocks are int32 in the machine."""
MIN_CHUNK = 16
"""Steps between two looks at the state at least."""
RATE_PE_CYCLES_PER_S = 30e6
STEP_OVERHEAD_S = 20e-6
"""What a step costs on two cores at least, for the estimate of a run's time."""

Tiles = np.ndarray | jax.Array | dict[str, np.ndarray]


@dataclass(frozen=True)
class Estimate:
    """What a run will need.

    Attributes:
      host_bytes: Peak memory on the host.
      min_cycles: Cycles that the busiest thread issues at least.
      seconds: Time for so many cycles, compilation apart.
    """

    host_bytes: int
    min_cycles: int
    seconds: float


def run(
    program: Program,
    tiles: Tiles | None = None,
    *,
    values: Literal["full", "none"] = "full",
    max_cycles: int = MAX_CYCLES,
    jitter: Jitter | None = None,
    watchdog_cycles: int = 0,
    packet_words: int = 1,
    devices: Devices | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Result:
    """Execute a program until nothing can happen any more.

    Args:
      program: Built by a collective or by `ProgramBuilder`.
      tiles: The input tiles by name, each [*shape, Y, X]; one array if there is one input.
      values: "none" simulates control and timing only; the timing is the same.
      max_cycles: Stop there even if the program goes on.
      jitter: Start skew and stalls, to show that a program does not rely on relative speed.
      watchdog_cycles: End the run when a thread was blocked for so many cycles; 0 for never.
      packet_words: Words that travel as one, 1 .. 4096; more than 1 is approximate, faster where
        PEs act together, and only for ``values="none"``.
      devices: A count, (rows, columns), devices along y, or a mesh with axes y and x: each takes
        a block of PEs. By default the one that JAX chooses. The results are the same.
      progress: Called about once a second with (cycle, PE-cycles per second).

    Returns:
      Values, cycles, faults and utilisation.

    Raises:
      WaferError: Missing or misshapen tiles; a run that does not fit the host's memory; devices
        that do not exist, or more than the mesh has rows or columns.
    """
    _check_program(program)
    max_cycles = _within("max_cycles", max_cycles, 1, MAX_CYCLES)
    state = start(
        program,
        tiles,
        values=values,
        jitter=jitter,
        watchdog_cycles=watchdog_cycles,
        packet_words=packet_words,
        devices=devices,
    )
    return run_from(program, state, max_cycles=max_cycles, devices=devices, progress=progress)


def run_from(
    program: Program,
    state: WaferState,
    *,
    max_cycles: int = MAX_CYCLES,
    devices: Devices | None = None,
    progress: Callable[[int, float], None] | None = None,
    watch: Callable[[WaferState], None] | None = None,
) -> Result:
    """Continue a run from one of its states until nothing can happen any more.

    Args:
      program: What the state belongs to.
      state: Donated: do not use it afterwards.
      max_cycles: Stop there even if the program goes on.
      devices: See `run`.
      progress: Called about once a second with (cycle, PE-cycles per second).
      watch: Called as often, with the state, which is donated when it returns: copy what is to be
        kept.
    """
    max_cycles, devices = whole(max_cycles, "max_cycles"), _known_devices(devices)
    spec, code = lowered(program, state)
    at = place(spec, code, state, devices)
    code, state, until, steps = at.code, at.state, at.scalar(max_cycles), _chunk(spec)
    height, width = program.hw.mesh
    call, compile_s = compiled(
        f"the step for {program.name!r} on {height}x{width} PEs",
        at.advance, at.static, code, state, until, at.scalar(steps),
    )  # fmt: skip
    if devices is None and are_worth_it(spec):
        call = partial(advance_where_active, spec, call)
    first = int(state.now)
    began = looked = time.perf_counter()
    while not has_ended(state) and int(state.now) < max_cycles:
        state = call(code, state, until, at.scalar(steps))
        now, last = int(state.now), looked
        looked = time.perf_counter()
        steps = at.agreed(_next_chunk(steps, looked - last))
        if progress is not None:
            progress(now, program.hw.num_pes * (now - first) / max(looked - began, 1e-9))
        if watch is not None:
            watch(at.gather(state))
            looked = time.perf_counter()
    jax.block_until_ready(state)
    seconds = time.perf_counter() - began
    state = at.gather(state)
    return Result(
        program=program,
        state=state,
        diagnosis=diagnose(program, state),
        run_s=seconds,
        compile_s=compile_s,
    )


def start(
    program: Program,
    tiles: Tiles | None = None,
    *,
    values: Literal["full", "none"] = "full",
    jitter: Jitter | None = None,
    watchdog_cycles: int = 0,
    packet_words: int = 1,
    devices: Devices | None = None,
) -> WaferState:
    """The state before cycle 0, after the checks of `run`, for a run on ``devices``.

    Raises:
      WaferError: Missing or misshapen tiles; a run that does not fit the host's memory.
    """
    _check_program(program)
    if values not in ("full", "none"):
        raise WaferError(f"values={values!r}: choose 'full' or 'none'")
    if jitter is not None and not isinstance(jitter, Jitter):
        raise WaferError(f"jitter={shown(jitter)}: give wj.Jitter(key=...)")
    watchdog_cycles = _within("watchdog_cycles", watchdog_cycles, 0, MAX_CYCLES)
    packet_words = _within("packet_words", packet_words, 1, MAX_PACKET_WORDS)
    if packet_words > 1 and values == "full":
        raise WaferError(
            f"packet_words={packet_words} simulates timing alone: run it with values='none'"
        )
    if 0 < watchdog_cycles < packet_words:
        raise WaferError(
            f"watchdog_cycles={watchdog_cycles}: a packet of {packet_words} words takes as many "
            f"cycles: give at least {packet_words}"
        )
    loaded = _named(program, tiles) if values == "full" else {}
    refuse_oversize(program, values)
    several = are_several(_known_devices(devices))
    with in_host_memory() if several else nullcontext():
        return initial_state(
            program,
            loaded,
            values=values == "full",
            jitter=jitter,
            watchdog_cycles=watchdog_cycles,
            packet_words=packet_words,
            carry_all=values == "full" and several,
        )


def has_ended(state: WaferState) -> bool:
    """Whether nothing can happen any more, or the watchdog found a starved thread."""
    return bool(state.stuck) or (state.starved is not None and bool(state.starved))


def _check_program(program: Program) -> None:
    if isinstance(program, ProgramBuilder):
        raise WaferError(f"{shown(program.name)} is not built yet: pass what its .build() returns")
    if not isinstance(program, Program):
        raise WaferError(
            f"{shown(program)} is no program: build one, or read a file with wj.load_program"
        )


def _within(name: str, value: int, low: int, high: int) -> int:
    value = whole(value, name)
    if not low <= value <= high:
        raise WaferError(f"{name}={value} is not in {low} .. {high}")
    return value


def _known_devices(devices: Devices | None) -> Devices | None:
    """Devices as given, numbers of them as Python's.

    Raises:
      WaferError: Of another kind.
    """
    if devices is None or isinstance(devices, Mesh):
        return devices
    if is_whole(devices):
        return int(devices)
    if isinstance(devices, tuple) and len(devices) == 2 and all(is_whole(n) for n in devices):
        return int(devices[0]), int(devices[1])
    if isinstance(devices, Sequence) and all(isinstance(d, jax.Device) for d in devices):
        return devices
    raise WaferError(
        f"devices={shown(devices)}: give a count, (rows, columns), a list of devices or a mesh"
    )


def _named(program: Program, tiles: Tiles | None) -> dict[str, np.ndarray]:
    names = program.inputs
    if tiles is None:
        tiles = {}
    elif not isinstance(tiles, dict):
        if len(names) != 1:
            raise WaferError(
                f"{program.name}: takes tiles {', '.join(names) or 'none'}: pass them by name"
            )
        tiles = {names[0]: np.asarray(tiles)}
    if missing := [n for n in names if n not in tiles]:
        raise WaferError(
            f"{program.name}: tile {missing[0]!r} is not given: pass it, or run with "
            f"values='none' for timing alone"
        )
    return {k: np.asarray(v) for k, v in tiles.items()}


def _chunk(spec: StepSpec) -> int:
    """Steps before the first look at the state: about a second of work."""
    per_step = spec.lanes / RATE_PE_CYCLES_PER_S + STEP_OVERHEAD_S
    return max(MIN_CHUNK, math.ceil(1.0 / per_step))


def _next_chunk(steps: int, seconds: float) -> int:
    """Steps before the next look, after ``steps`` took so long."""
    return max(MIN_CHUNK, min(2 * steps, int(steps / max(seconds, 1e-9)), MAX_CYCLES))


def estimate(program: Program, *, values: Literal["full", "none"] = "full") -> Estimate:
    """Predict host memory and a lower bound of the time, without lowering the program."""
    colors, threads = len(program.colors), program.num_threads
    control = 24 * colors + 24 * threads + 32
    per_pe = control
    if values == "full":
        # SRAM on the device, its packed copy on the host while loading, rings of the log.
        log = 4 * colors * 2 * (program.hw.router_depth + program.hw.hop_cycles + 8)
        per_pe += 2 * 4 * program.sram_words + log + 36 * threads
    cycles = max((_thread_issues(t) for r in program.roles for t in r.threads), default=0)
    pes = program.hw.num_pes
    seconds = cycles * (pes / RATE_PE_CYCLES_PER_S + STEP_OVERHEAD_S)
    return Estimate(host_bytes=int(2 * per_pe * pes), min_cycles=cycles, seconds=seconds)


def _thread_issues(events: tuple[Event, ...]) -> int:
    """Issues of a thread at least, loops unrolled, and the cycles of its kernels."""
    if any(isinstance(event, Branch) for event in events):
        return 0
    total = np.zeros(len(events) + 1, np.int64)
    for i, event in enumerate(events):
        total[i + 1] = total[i] + _event_cycles(event)
        if isinstance(event, Loop):
            body = total[i + 1] - total[event.first]
            total[i + 1] = total[event.first] + body * event.count
    return int(total[-1])


def _event_cycles(event: Event) -> int:
    """Cycles of an event at least; a register may hold any number."""
    if isinstance(event, Halt):
        return 0
    known = (event_words(event), getattr(event, "cycles", 1))
    return max(n for n in (1, *known) if not isinstance(n, Register))


def refuse_oversize(program: Program, values: Literal["full", "none"]) -> None:
    """Raise ``WaferError`` if a run needs more memory than is free, or too many cycles."""
    expected, free = estimate(program, values=values), _free_host_bytes()
    if expected.host_bytes > free:
        raise WaferError(
            f"{program.name}: needs about {expected.host_bytes / 2**30:.1f} GiB of host memory, "
            f"{free / 2**30:.1f} GiB are free: use a smaller mesh or values='none'"
        )
    if expected.min_cycles > MAX_CYCLES:
        raise WaferError(
            f"{program.name}: runs at least {expected.min_cycles} cycles, the limit is {MAX_CYCLES}"
        )


def _free_host_bytes() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            table = dict(line.split(":") for line in lines)
        return int(table["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
