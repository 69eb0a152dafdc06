"""Compute-shift steps: what MeshGEMM and Cannon's algorithm do, each on its own rings.

In every step a PE multiplies its current blocks of A and B while A's blocks move along x and B's
along y, to the next place of their ring (WaferLLM, OSDI'25, section 5.3). Blocks are double-
buffered. As in the code of the paper a PE runs five threads:

    control    go to all four; product of the current blocks; wait for all four; next task
    the four   wait go; launch; send or receive a block of A or B; done

The core launches the streams one after another, ``launch_cycles`` each, then multiplies, and takes
``task_cycles`` to go on once all are done. Streams of the steps are *wide*: their words take half
a slot each, so a PE sends and receives one word per cycle; those of the alignment are not. Vector
instructions and streams share the datapath, so a product takes longer by the words that move
meanwhile (`shared_cycles`). All three are as the published sweeps of the paper's code show it on
the vendor's simulator (docs/validation.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import lcm
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.builder import ProgramBuilder, RoleBuilder
from wafer_jax.collectives.compute_shift_cost import CONTROL_CYCLES, launched, shared_cycles
from wafer_jax.collectives.gemm_layout import Layout, aligned_on_chip, block_words
from wafer_jax.collectives.kernels import GEMM, clear_cycles, copy_cycles
from wafer_jax.collectives.launches import join, pause
from wafer_jax.collectives.loops import repeat
from wafer_jax.collectives.tiles import Axis
from wafer_jax.events import Kernel, Slice, Tile
from wafer_jax.hardware import HardwareSpec

COLORS = 3
"""Colours of one ring along one axis; an alignment on chip takes as many for the way back."""

_CONTROL = 0
_DONE = 0
"""Thread of the products; semaphore of the streams that are over (the one of thread i is i)."""


@cache
def clear(shape: tuple[int, ...]) -> Kernel:
    """Kernel that zeroes a tile; a kernel needs an input, so it takes any word."""
    return Kernel(name="clear", fn=lambda word: jnp.zeros(shape, jnp.float32))


@cache
def realign(blocks: int) -> Kernel:
    """Kernel of an alignment round: take over what came in, as far as this line must still move.

    ``(left, *own, *received) -> (left, *own)`` with as many blocks of each as a PE holds; ``left``
    is how many blocks the line must move, > 0 backward, < 0 forward.
    """

    def fn(left: jax.Array, *tiles: jax.Array) -> tuple[jax.Array, ...]:
        own, received = tiles[:blocks], tiles[blocks:]
        line = jnp.stack((*received, *own, *received))
        moved = jnp.clip(left[0], -blocks, blocks)
        window = lax.dynamic_slice_in_dim(line, blocks + jnp.int32(moved), blocks)
        return (left - moved, *(window[i] for i in range(blocks)))

    return Kernel(name="realign", fn=fn)


@dataclass(frozen=True)
class Ends:
    """Colours of one PE's ends in a ring."""

    send: int
    receive: int


@dataclass(frozen=True)
class Operand:
    """A along x, or B along y.

    Attributes:
      length: PEs of its rings.
      blocks: Blocks per PE.
      rounds: Alignment rounds on chip.
      tiles: Its blocks, then buffers for what comes in.
      colors: Three colours forward and, for an alignment on chip, three back.
      shift: Tile with the number of blocks that this PE's line must still move.
    """

    axis: Axis
    length: int
    blocks: int
    rounds: int
    tiles: list[Tile]
    colors: range
    shift: Tile | None

    @property
    def threads(self) -> tuple[int, int]:
        """Numbers of the threads that send and receive it."""
        return (1, 2) if self.axis == "x" else (3, 4)

    @property
    def period(self) -> int:
        """Steps after which the buffers play the same parts again."""
        return self.blocks + (self.length > 1)

    def current(self, step: int) -> Tile:
        """Block that is multiplied in a step; the buffer that the step before received."""
        return self.tiles[-step % self.period]

    def leaving(self, step: int) -> Tile:
        """Block that moves on in a step: the last of its PE's places."""
        return self.tiles[(self.blocks - 1 - step) % self.period]

    def whole(self, received: bool = False) -> Slice:
        """All blocks as one slice: the PE's own, or the buffers behind them."""
        first = self.tiles[self.blocks if received else 0]
        return Slice(first.offset, 1, self.blocks * first.words, first.dtype)


def allocate(
    builder: ProgramBuilder, layout: Layout, align: str, dtype: str
) -> tuple[Operand, Operand]:
    """Allocate the tiles of A and B, and number the colours of their rings.

    Raises:
      WaferError: An unknown ``align``.
    """
    height, width = layout.mesh
    plan: tuple[tuple[str, Axis, int, int, int, tuple[int, int]], ...] = (
        ("a", "x", width, layout.a_blocks, layout.a_rounds, (layout.tile_m, layout.block_k)),
        ("b", "y", height, layout.b_blocks, layout.b_rounds, (layout.block_k, layout.tile_n)),
    )
    out, next_color = [], 0
    for on_chip, (name, axis, length, blocks, rounds, shape) in zip(
        aligned_on_chip(align), plan, strict=True
    ):
        rounds = rounds if on_chip else 0
        buffers = 0 if length == 1 else blocks if rounds else 1
        tiles = [builder.tile(f"{name}{j}", shape, dtype) for j in range(blocks + buffers)]
        count = 2 * COLORS if on_chip else COLORS
        shift = builder.tile(f"{name}_shift", (1,)) if rounds else None
        colors = range(next_color, next_color := next_color + count)
        out.append(Operand(axis, length, blocks, rounds, tiles, colors, shift))
    return out[0], out[1]


def inputs_of(operands: Sequence[Operand]) -> tuple[str, ...]:
    """Names of the tiles that the host loads."""
    shifts = [o.shift.name for o in operands if o.shift is not None]
    return (*(t.name for o in operands for t in o.tiles[: o.blocks]), *shifts)


def clear_result(hw: HardwareSpec, role: RoleBuilder, c: Tile, any_tile: Tile) -> None:
    """Zero C."""
    kernel, cycles = clear(c.shape), clear_cycles(hw, c.size)
    word = Tile(name="any word", offset=any_tile.offset, shape=(1,))
    role.thread(_CONTROL).compute(kernel, (word,), (c,), cycles)


def align(hw: HardwareSpec, role: RoleBuilder, operand: Operand, ends: Ends, dtype: str) -> None:
    """Alignment rounds: move whole PE tiles; a line that has moved far enough keeps its own.

    Args:
      hw: The machine.
      role: Whose threads do it.
      operand: What moves.
      ends: The PE's ends in the ring that runs this line's way.
      dtype: Element type.
    """
    if not operand.rounds:
        return
    assert operand.shift is not None
    control = role.thread(_CONTROL)
    own = operand.tiles[: operand.blocks]
    received = operand.tiles[operand.blocks :] or own
    inputs, outputs = (operand.shift, *own, *received), (operand.shift, *own)
    cycles = copy_cycles(hw, sum(t.size for t in own), dtype)
    if operand.length == 1:
        control.compute(realign(operand.blocks), inputs, outputs, cycles)
        return
    move = Move(operand.threads, ends, operand.whole(), operand.whole(received=True))

    def one_round(_: int) -> None:
        _go(hw, role, [move], wide=False)
        pause(control, _launches(hw, 2), own[0])
        join(hw, control, [_DONE] * 2, own[0])
        control.compute(realign(operand.blocks), inputs, outputs, cycles)

    repeat([role.thread(t) for t in (_CONTROL, *operand.threads)], 1, operand.rounds, one_round)


def multiply(
    hw: HardwareSpec,
    role: RoleBuilder,
    layout: Layout,
    operands: Sequence[tuple[Operand, Ends]],
    c: Tile,
    product_cycles: int,
    *,
    home: bool,
) -> None:
    """All steps; the last one shifts nothing unless the blocks are to come ``home``."""
    (a, _), (b, _) = operands
    control = role.thread(_CONTROL)
    moving = [(o, e) for o, e in operands if o.length > 1]
    streams = 2 * len(moving)
    words = [block_words(o.tiles[0].size, o.tiles[0].dtype) for o, _ in moving]

    def product(step: int, cycles: int) -> None:
        control.compute(GEMM, (c, a.current(step), b.current(step)), (c,), cycles)

    def one_step(step: int) -> None:
        moves = [
            Move(o.threads, e, o.leaving(step).slice(), o.current(step + 1).slice())
            for o, e in moving
        ]
        _go(hw, role, moves, wide=True)
        product(step, _launches(hw, streams) + product_cycles + shared_cycles(hw, words))
        join(hw, control, [_DONE] * streams, c)

    shifts = layout.steps if home else layout.steps - 1
    threads = [role.thread(t) for t in (_CONTROL, *(t for o, _ in moving for t in o.threads))]
    repeat(threads, lcm(a.period, b.period), shifts, one_step)
    if not home:
        product(shifts, product_cycles)


class Move(NamedTuple):
    """A slice that leaves and one that arrives, on which threads and colours."""

    threads: tuple[int, int]
    ends: Ends
    leaving: Slice
    arriving: Slice


def _go(hw: HardwareSpec, role: RoleBuilder, moves: list[Move], *, wide: bool) -> None:
    """Let the streams begin, each when the core would have launched it."""
    for i, t in enumerate((t for move in moves for t in move.threads), start=1):
        _, ends, leaving, arriving = moves[(i - 1) // 2]
        role.thread(_CONTROL).signal(t)
        thread = role.thread(t).wait(t)
        pause(thread, launched(hw, i) - CONTROL_CYCLES * i, leaving)
        if i % 2:
            thread.send(ends.send, leaving, wide=wide)
        else:
            thread.receive(ends.receive, arriving, wide=wide)
        thread.signal(_DONE)


def _launches(hw: HardwareSpec, streams: int) -> int:
    """Cycles from the control's event behind `_go` to the last launch."""
    return launched(hw, streams) - (CONTROL_CYCLES * streams - 1) if streams else 0
