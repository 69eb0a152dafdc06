"""Cycles of a tiled star stencil, and of the code whose runs on the vendor's simulator are public.

The code is Jorineg/cerebras @911a327, tiled-stencil: a PE keeps its tile with the halo around it in
rows of ``w + 2 r + 1`` words, and the sums that it builds right behind it. In an iteration the core
starts four sends and four receives, a task counts each one's end, and the last two let the task run
that computes: one vector instruction over the whole tile per tap. What that costs:

* A word takes the issue slot when it is sent and when it is received, so the exchange takes
  ``4 r (w + h)`` cycles, and the core's instructions come on top of it.
* ``task_cycles`` for the end of every stream and for the task that computes. (What the task that
  starts the streams takes is here the program's own control: signals, set-ups, the loop.)
* Radius 2 and more: every tap is a multiply-add of w h elements, with descriptors that the core
  makes for it. Operands that lie a multiple of `BANKS` words apart share a bank.
* Radius 1: with equal weights around the centre a multiplication, four additions and another
  multiplication do, on descriptors that stay in registers. Additions show no bank conflicts.

Calibrated on that source's rows "num PE stability" (tiles 1x1, 2x2, 5x5 and 7x7) alone:
`SHIFT_CYCLES`, `REGISTER_CYCLES`, `ADD_BYTES` and ``task_cycles`` of the WSE-2. The rest is counted
in the code. Over all 278 rows the error is 2.3 % in the median and 15 % at worst (tile 2x2, r = 2,
WSE-2). It is largest where the fixed cost of an iteration is most of it, and for r = 1 with an odd
number of rows or columns, where additions depend on how their operands are aligned.
"""

import math
from collections.abc import Callable, Generator
from functools import lru_cache
from itertools import chain

from wafer_jax.arguments import shown
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.errors import WaferError
from wafer_jax.hardware import WORD_BYTES, HardwareSpec

Thread = Generator[Callable[[], int | None], int, None]

BANKS = 4
"""Two reads in one cycle must be in banks that differ modulo 4 (CSL language reference, SIMD mode;
a bank is one word wide)."""

SHIFT_CYCLES = 3
"""Cycles to move a descriptor to a tap's place, on top of ``vector_setup_cycles``: fit; the author
notes about 10 cycles to start a multiply-add in all."""

REGISTER_CYCLES = 1
"""Cycles to start an instruction whose descriptors are in registers: fit (as any instruction)."""

ADD_BYTES = 8
"""Lanes, in bytes of 16-bit elements, that one float32 addition per cycle takes: fit; one addition
per cycle on the WSE-2, two on the WSE-3, which has twice the lanes."""


def check_tile(mesh: tuple[int, int], height: int, width: int, radius: int) -> None:
    """Raise ``WaferError`` if a tile is empty, or narrower than r where it has neighbours."""
    if min(height, width, radius) < 1:
        raise WaferError(
            f"stencil of radius {radius} on tiles of {height}x{width}: all must be at least 1"
        )
    for size, pes, what in ((height, mesh[0], "rows"), (width, mesh[1], "columns")):
        if pes > 1 and size < radius:
            raise WaferError(
                f"stencil of radius {radius}: tiles of {size} {what} are narrower than the radius, "
                f"so a PE would need words from beyond its neighbours: use larger tiles"
            )


def check_iterations(iterations: int) -> None:
    """Raise ``WaferError`` below 1."""
    if iterations < 1:
        raise WaferError(f"stencil: {iterations} iterations: run at least 1")


def _check_halo(hw: HardwareSpec, height: int, width: int, radius: int) -> None:
    """Raise ``WaferError`` if not even the halo fits: its words are followed one by one."""
    if WORD_BYTES * 2 * radius * (height + width) > hw.sram_bytes:
        raise WaferError(
            f"stencil of radius {shown(radius)} on tiles of {shown(height)}x{shown(width)}: a halo "
            f"larger than the {hw.sram_bytes} bytes of SRAM: use smaller tiles"
        )


def neighbours(hw: HardwareSpec) -> tuple[int, int]:
    """Most neighbours that a PE has along y and along x."""
    height, width = hw.mesh
    return min(height - 1, 2), min(width - 1, 2)


def conflicts(height: int, width: int, radius: int) -> int:
    """Taps whose multiply-add reads both operands from one bank.

    The first tap only multiplies; the centre comes last.
    """
    row = width + 2 * radius + 1
    apart = row * (height + 2 * radius)
    shifts = [0, row, -1, 1]
    for i in range(2, radius + 1):
        shifts += [-i * row, i * row, -i, i]
    return sum((apart + shift) % BANKS == 0 for shift in shifts)


def core_cycles(
    hw: HardwareSpec, height: int, width: int, radius: int, completion_tasks: bool = True
) -> int:
    """Cycles of the core in one iteration: tasks, starts of streams, arithmetic.

    Args:
      hw: Machine and mesh.
      height: Rows of a tile.
      width: Columns of a tile.
      radius: r, the taps in each direction.
      completion_tasks: The end of every stream activates a task.
    """
    streams = 2 * sum(neighbours(hw))
    tasks = 1 + streams * completion_tasks
    elements = height * width
    if radius == 1:
        starts = (streams + 6) * REGISTER_CYCLES
        additions = 4 * hw.fma_cycles(elements) * ADD_BYTES / hw.simd_bytes
        arithmetic = 2 * hw.fma_cycles(elements) + additions
    else:
        taps, slow = 4 * radius + 1, conflicts(height, width, radius)
        starts = (streams + taps) * hw.vector_setup_cycles + taps * SHIFT_CYCLES
        slowed = taps + slow * (hw.bank_conflict_factor - 1)
        arithmetic = slowed * hw.fma_cycles(elements)
    return math.ceil(tasks * hw.task_cycles + starts + arithmetic)


def clear_cycles(hw: HardwareSpec, height: int, width: int, radius: int) -> int:
    """Cycles to zero the halo, once: what lies beyond the mesh stays zero."""
    return math.ceil(hw.copy_cycles(2 * radius * (height + width)))


@checked
def cost(
    hw: HardwareSpec,
    height: int,
    width: int,
    radius: int = 1,
    iterations: int = 1,
    completion_tasks: bool = True,
) -> int:
    """Cycles of `stencil.program` with the same arguments.

    An iteration takes ``4 r (w + h)`` issues of words, the core's cycles, 6 issues of control, and
    set-up of streams and the latency of a hop as far as the other thread has no words to issue;
    `iteration_ends` follows the slot of one PE whose neighbours do what it does in the same cycle.
    Off by at most ``4 s + 2`` an iteration where that is not so: PEs at the edge have less to do
    and run ahead as far as the queues allow, so words come earlier on a mesh of 3 rows or columns,
    say; and short queues stop a sender whose stream is not received yet.
    """
    ends = _ends(hw, height, width, radius, iterations, completion_tasks)
    pairs, odd = divmod(max(iterations - len(ends), 0), 2)
    pair = ends[-1] - ends[-3] if pairs or odd else 0
    return ends[-1] + pairs * pair + (ends[-2] - ends[-3] if odd else 0)


def published(
    hw: HardwareSpec, tile_height: int, tile_width: int, radius: int, mesh: tuple[int, int]
) -> float:
    """Cycles of one iteration as the measured code runs it: half of iterations 3 and 4.

    On the WSE-3 its version for radius 1 does not wait for its streams if a tile has 4 rows and
    columns at least; they are over before the core needs their words.

    Args:
      hw: The machine.
      tile_height: Rows of a tile.
      tile_width: Columns of a tile.
      radius: r.
      mesh: (Y, X) PEs, those at the edge included, which hold the boundary there and a tile here.
    """
    waits = radius > 1 or min(tile_height, tile_width) < 4 or hw.name == "wse2"
    of = hw.replace(mesh=mesh)
    four, two = (cost(of, tile_height, tile_width, radius, n, waits) for n in (4, 2))
    return (four - two) / 2


@lru_cache(maxsize=1024)
def _ends(
    hw: HardwareSpec, height: int, width: int, radius: int, iterations: int, completion_tasks: bool
) -> tuple[int, ...]:
    """Cycles after 1, 2, .. iterations, five at most."""
    check_tile(hw.mesh, height, width, radius)
    check_iterations(iterations)
    _check_halo(hw, height, width, radius)
    vertical, horizontal = neighbours(hw)
    streams = [[height] * radius] * horizontal + [[radius * width]] * vertical
    core = core_cycles(hw, height, width, radius, completion_tasks)
    clear = clear_cycles(hw, height, width, radius)
    followed = min(iterations, 5)
    ends = iteration_ends(hw, streams, core, followed, loops=iterations > 1)
    return tuple(clear + end for end in ends)


def iteration_ends(
    hw: HardwareSpec, streams: list[list[int]], core: int, iterations: int, loops: bool
) -> list[int]:
    """Follow the issue slot of one PE through some iterations.

    Args:
      hw: The machine.
      streams: Words of each stream, in the parts in which it is sent; as many are received.
      core: Cycles of the core per iteration.
      iterations: How many.
      loops: Threads issue a loop event at the end of an iteration.

    Returns:
      Cycle in which each iteration is over.
    """
    setup, latency = hw.stream_setup_cycles, pass_cycles(hw, 1)
    sent: list[int] = []
    go: list[int] = []
    done: list[int] = []
    ends: list[int] = []

    def receiver() -> Thread:
        ready, word = 0, 0
        for i in range(iterations):
            go.append((yield lambda ready=ready: ready))
            ready = go[-1] + 1
            for parts in streams:
                ready += setup
                for _ in range(sum(parts)):
                    ready = 1 + (yield lambda r=ready, w=word: after(sent, w, latency, r))
                    word += 1
            ready = 1 + (yield lambda r=ready, i=i: after(done, i, 1, r))
            ready = core + (yield lambda ready=ready: ready)
            if loops:
                ready = 1 + (yield lambda ready=ready: ready)
            ends.append(ready)

    def sender() -> Thread:
        ready = 0
        for i in range(iterations):
            ready = 1 + (yield lambda r=ready, i=i: after(go, i, 1, r))
            for words in chain.from_iterable(streams):
                ready += setup
                for _ in range(words):
                    sent.append((yield lambda ready=ready: ready))
                    ready = sent[-1] + 1
            done.append((yield lambda ready=ready: ready))
            ready = done[-1] + 1
            if loops:
                ready = 1 + (yield lambda ready=ready: ready)

    share_slot([receiver(), sender()])
    return ends


def after(log: list[int], i: int, delay: int, ready: int) -> int | None:
    """First cycle from ``ready`` on in which entry i of a log is ``delay`` old, if it is there."""
    return max(ready, log[i] + delay) if i < len(log) else None


def share_slot(threads: list[Thread]) -> None:
    """Let threads issue one after the other, in turns where both can.

    A thread yields a function for the first cycle in which it can issue, or None as long as that
    depends on another thread, and is sent the cycle in which it does.
    """
    asks: list[Callable[[], int | None] | None] = [next(thread) for thread in threads]
    now = turn = 0
    while any(asks):
        first = [ask() if ask else None for ask in asks]
        now = max(now, min(f for f in first if f is not None))
        order = [(turn + k) % len(threads) for k in range(len(threads))]
        winner = next(k for k in order if (f := first[k]) is not None and f <= now)
        try:
            asks[winner] = threads[winner].send(now)
        except StopIteration:
            asks[winner] = None
        now, turn = now + 1, (winner + 1) % len(threads)
