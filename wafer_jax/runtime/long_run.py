"""Runs that outlive their process: saved as they go, stopped by Ctrl-C, resumed elsewhere."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from wafer_jax.devices import Devices
from wafer_jax.errors import WaferError
from wafer_jax.execute import MAX_CYCLES, Tiles, has_ended, run_from, start
from wafer_jax.jitter import Jitter
from wafer_jax.mesh_state import WaferState
from wafer_jax.program import Program
from wafer_jax.result import Result
from wafer_jax.runtime import checkpoint

EVERY_S = 300.0
"""Seconds between two checkpoints: a save of a full wafer takes a few."""


class Interrupted(KeyboardInterrupt):
    """A run was stopped on request, and its state is saved; the message says where."""


def run(
    program: Program,
    tiles: Tiles | None = None,
    folder: str | Path = "checkpoints",
    *,
    every_s: float = EVERY_S,
    values: Literal["full", "none"] = "full",
    max_cycles: int = MAX_CYCLES,
    jitter: Jitter | None = None,
    watchdog_cycles: int = 0,
    packet_words: int = 1,
    devices: Devices | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Result:
    """Run as `wafer_jax.run` does, and save the state into a folder as the run goes.

    Ctrl-C (SIGINT) and SIGTERM save the state at the next look, about a second later; a second
    Ctrl-C stops at once without saving. The end of the run is saved, too.

    Args:
      program: As for `wafer_jax.run`.
      tiles: As for `wafer_jax.run`.
      folder: Takes the checkpoints; made if it is missing.
      every_s: Seconds between two checkpoints.
      values: As for `wafer_jax.run`.
      max_cycles: As for `wafer_jax.run`.
      jitter: As for `wafer_jax.run`.
      watchdog_cycles: As for `wafer_jax.run`.
      packet_words: As for `wafer_jax.run`.
      devices: As for `wafer_jax.run`.
      progress: As for `wafer_jax.run`.

    Raises:
      WaferError: The folder holds checkpoints already or cannot be written; and what
        `wafer_jax.run` refuses.
      Interrupted: Stopped by a signal, after saving.
    """
    if checkpoint.checkpoints(folder):
        raise WaferError(f"{folder}: holds a checkpoint: resume it, or give another folder")
    _check_period(every_s)
    state = start(
        program,
        tiles,
        values=values,
        jitter=jitter,
        watchdog_cycles=watchdog_cycles,
        packet_words=packet_words,
        devices=devices,
    )
    return _run_and_save(program, state, Path(folder), every_s, max_cycles, devices, progress)


def resume(
    program: Program,
    folder: str | Path = "checkpoints",
    *,
    every_s: float = EVERY_S,
    values: Literal["full", "none"] | None = None,
    max_cycles: int = MAX_CYCLES,
    jitter: Jitter | None = None,
    devices: Devices | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Result:
    """Continue a run from the newest checkpoint of a folder; ends as if it had never stopped.

    Args:
      program: What was run.
      folder: Holds the checkpoints, and takes new ones.
      every_s: Seconds between two checkpoints.
      values: That of the checkpoint, which holds; another is refused.
      max_cycles: As for `wafer_jax.run`, counted from the start of the program.
      jitter: That of the checkpoint, which holds; another is refused.
      devices: As for `wafer_jax.run`.
      progress: As for `wafer_jax.run`.

    Raises:
      WaferError: As for `wafer_jax.runtime.load`; other values or jitter.
      Interrupted: Stopped by a signal, after saving.
    """
    _check_period(every_s)
    state = checkpoint.load(folder, program)
    saved = "none" if state.memory is None else "full"
    if values not in (None, saved):
        raise WaferError(f"{folder}: saved with values={saved!r}, not {values!r}")
    if jitter is not None and not _same(jitter, state):
        raise WaferError(f"{folder}: saved with another jitter than {jitter}")
    return _run_and_save(program, state, Path(folder), every_s, max_cycles, devices, progress)


def _same(jitter: Jitter, state: WaferState) -> bool:
    return state.jitter is not None and np.array_equal(state.jitter, jitter.as_array())


def _check_period(every_s: float) -> None:
    if not every_s > 0:
        raise WaferError(f"a checkpoint every {every_s} s: give a number of seconds above 0")


def _run_and_save(
    program: Program,
    state: WaferState,
    folder: Path,
    every_s: float,
    max_cycles: int,
    devices: Devices | None,
    progress: Callable[[int, float], None] | None,
) -> Result:
    with _stop_requests() as stop:
        saver = _Saver(program, folder, every_s, stop, saved_at=time.monotonic())
        result = run_from(
            program,
            state,
            max_cycles=max_cycles,
            devices=devices,
            progress=progress,
            watch=saver.watch,
        )
        if saver.unsaved:
            saver.save(result.state)
    return result


@dataclass
class _Saver:
    """Saves the states of a run that is due, and the last one before it stops on request."""

    program: Program
    folder: Path
    every_s: float
    stop: threading.Event
    saved_at: float
    unsaved: bool = False

    def watch(self, state: WaferState) -> None:
        self.unsaved = True
        stopping = self.stop.is_set() and not has_ended(state)
        if stopping or time.monotonic() - self.saved_at >= self.every_s:
            self.save(state)
        if stopping:
            raise Interrupted(
                f"{self.program.name}: stopped at cycle {int(state.now)}, saved in {self.folder}"
            )

    def save(self, state: WaferState) -> None:
        checkpoint.save(self.folder, self.program, state)
        self.unsaved, self.saved_at = False, time.monotonic()


@contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into an event, since the state is whole only between two chunks.

    Signals that are ignored stay so. Only a main thread can take signals.
    """
    requested = threading.Event()

    def request(number: int, _) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()
        # Not print: the signal may have come in the middle of one.
        os.write(2, b"stopping as soon as the state is saved; once more to stop without saving\n")

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, request)
    try:
        yield requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
