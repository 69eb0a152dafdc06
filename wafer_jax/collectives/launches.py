"""Asynchronous streams as a core starts and joins them.

A core launches its streams one after another, ``launch_cycles`` each, goes on with other work, and
takes ``task_cycles`` to continue once they are done.
"""

from collections.abc import Sequence

from wafer_jax.builder import ThreadBuilder
from wafer_jax.events import Kernel, Slice, Tile
from wafer_jax.hardware import HardwareSpec

PAUSE = Kernel(name="pause", fn=lambda word: ())
_SIGNAL_AND_WAIT = 2


def launch(hw: HardwareSpec, control: ThreadBuilder, semaphore: int, any_tile: Tile) -> None:
    """Let the thread that waits for ``semaphore`` begin: its wait ends the launch's cycles."""
    pause(control, hw.launch_cycles - _SIGNAL_AND_WAIT, any_tile)
    control.signal(semaphore)


def join(
    hw: HardwareSpec, control: ThreadBuilder, semaphores: Sequence[int], any_tile: Tile
) -> None:
    """Wait for all semaphores, then go on in the task that they activate."""
    for semaphore in semaphores:
        control.wait(semaphore)
    if semaphores:
        pause(control, hw.task_cycles, any_tile)


def pause(thread: ThreadBuilder, cycles: int, any_tile: Tile | Slice) -> None:
    """Do something else for so many cycles; a kernel needs an input, so it takes any word."""
    if cycles > 0:
        word = Tile(name="any word", offset=any_tile.offset, shape=(1,))
        thread.compute(PAUSE, (word,), (), cycles)


def launched(hw: HardwareSpec, streams: int) -> int:
    """Cycles that a core takes to launch so many streams."""
    return streams * max(hw.launch_cycles, _SIGNAL_AND_WAIT)
