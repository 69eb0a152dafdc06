"""MeshGEMM: C = A B by compute-shift steps on two interleaved rings.

WaferLLM (OSDI'25), section 5.3: every PE holds blocks of A and B. In each of L = lcm(Y, X) steps it
adds the product of its current blocks to its tile of C while A's blocks move along x and B's along
y to the INTERLEAVE neighbour, at most two hops away. `gemm_layout` says which block is where.

Three threads share a PE's one issue slot. In a step they do

    compute   signal go; product of the current blocks; wait moved
    receive   wait go; signal onward; pause; next blocks; wait sent; signal moved
    send      wait onward; current blocks; signal sent

Every word that is sent or received takes the slot once, so more threads would move no more words,
and a step takes the larger of the product and twice the words of both blocks. Blocks are double-
buffered. The pause is the latency of two hops: by then the first word is there, and sender and
receiver take turns in the slot in the same way on every PE. Without it the PEs behind the one-hop
connections at the ends of a ring send later than they receive, and the delay runs round the ring.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.builder import ProgramBuilder, RoleBuilder, ThreadBuilder
from wafer_jax.collectives import interleave
from wafer_jax.collectives.gemm_cost import copy_cycles, cost, cost_parts, two_hops_cycles
from wafer_jax.collectives.gemm_layout import (
    Layout,
    block_numbers,
    check_align,
    columns_of_b,
    cut,
    join,
    layout_of,
    layout_of_tiles,
    load,
    rows_of_a,
    tile_operands,
)
from wafer_jax.collectives.kernels import GEMM, clear_cycles, gemm, gemm_cycles
from wafer_jax.collectives.tiles import Axis
from wafer_jax.errors import WaferError
from wafer_jax.events import Kernel, Slice, Tile
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program

__all__ = ["apply", "cost", "cost_parts", "load", "mesh", "program", "tile_operands"]

Align = Literal["chip", "host"]

_COMPUTE, _SEND, _RECEIVE = range(3)
_SENT, _MOVED, _GO, _ONWARD = range(4)


PAUSE = Kernel(name="pause", fn=lambda word: ())


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
class _Operand:
    """A along x, or B along y.

    Attributes:
      length: PEs of its rings.
      blocks: Blocks per PE.
      rounds: Alignment rounds on chip.
      tiles: Its blocks, then buffers for what comes in.
      colors: Three colours forward and three back.
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


@dataclass(frozen=True)
class _Ends:
    """Colours of one PE's ends in the rings of an operand."""

    send: int
    receive: int


def program(
    hw: HardwareSpec, m: int, k: int, n: int, *, align: Align = "chip", dtype: str = "float32"
) -> Program:
    """C = A B for A [m, k] and B [k, n].

    Inputs are what `load` returns for the same ``align``; the output is c [tile_m, tile_n] float32.

    Args:
      hw: Machine and mesh.
      m: Rows of A and C.
      k: Columns of A, rows of B.
      n: Columns of B and C.
      align: Who skews A and B before the product: "chip" in at most X / 2 and Y / 2 rounds
        (rows that have moved far enough go on sending but keep their tile), or "host".
      dtype: Element type of A and B; products are summed in float32.

    Raises:
      WaferError: Blocks over the SRAM budget; too few colours, queues or threads.
    """
    check_align(align)
    layout = layout_of(hw.mesh, m, k, n)
    builder = ProgramBuilder(hw, f"MeshGEMM {m}x{k}x{n}, aligned on {align}")
    a, b = _operands(builder, layout, align, dtype)
    c = builder.tile("c", (layout.tile_m, layout.tile_n))
    for name, mask, ends, odd in _roles(layout, (a, b), align):
        role = builder.role(name, where=mask)
        for thread in (_COMPUTE, _SEND, _RECEIVE) if a.length > 1 or b.length > 1 else ():
            role.thread(thread)
        word = _any_word(a.tiles[0].offset)
        role.thread(_COMPUTE).compute(clear(c.shape), (word,), (c,), clear_cycles(hw, c.size))
        for operand, pair, forward in zip((a, b), ends, odd, strict=True):
            _align(hw, role, operand, pair, forward, dtype)
        _multiply(hw, role, layout, (a, b), c, ends, dtype)
    shifts = [t.name for t in (a.shift, b.shift) if t is not None]
    own = [t.name for o in (a, b) for t in o.tiles[: o.blocks]]
    return builder.build(inputs=(*own, *shifts), outputs=("c",))


mesh = program


def _operands(
    builder: ProgramBuilder, layout: Layout, align: Align, dtype: str
) -> tuple[_Operand, _Operand]:
    """Allocate both operands' tiles and paint their rings."""
    height, width = layout.mesh
    on_chip = align == "chip"
    plan: list[tuple[str, Axis, int, int, int, tuple[int, int]]] = [
        ("a", "x", width, layout.a_blocks, layout.a_rounds, (layout.tile_m, layout.block_k)),
        ("b", "y", height, layout.b_blocks, layout.b_rounds, (layout.block_k, layout.tile_n)),
    ]
    out = []
    for i, (name, axis, length, blocks, rounds, shape) in enumerate(plan):
        rounds = rounds if on_chip else 0
        buffers = 0 if length == 1 else blocks if rounds else 1
        tiles = [builder.tile(f"{name}{j}", shape, dtype) for j in range(blocks + buffers)]
        colors = range(6 * i, 6 * i + 6) if on_chip else range(3 * i, 3 * i + 3)
        interleave.paint(builder, axis, colors[:3])
        if rounds:
            even = slice(0, None, 2)
            interleave.paint(builder, axis, colors[3:], reverse=True, lines=even)
        shift = builder.tile(f"{name}_shift", (1,)) if rounds else None
        out.append(_Operand(axis, length, blocks, rounds, tiles, colors, shift))
    return out[0], out[1]


def _roles(layout: Layout, operands: tuple[_Operand, _Operand], align: Align):
    """PEs with the same colours (and alignment ways): (name, [Y, X] mask, ends, odd lines)."""
    height, width = layout.mesh
    x, y = interleave.ring(width), interleave.ring(height)
    odd = np.arange(max(height, width)) % 2 * (align == "chip")
    rows = np.stack([y.send, y.receive, odd[:height]])
    cols = np.stack([x.send, x.receive, odd[:width]])
    grid = (len(rows), height, width)
    key = np.concatenate(
        [np.broadcast_to(cols[:, None, :], grid), np.broadcast_to(rows[:, :, None], grid)]
    )
    for values in np.unique(key.reshape(6, -1), axis=1).T:
        x_send, x_receive, x_odd, y_send, y_receive, y_odd = (int(v) for v in values)
        ends = (
            _Ends(operands[0].colors[x_send], operands[0].colors[x_receive]),
            _Ends(operands[1].colors[y_send], operands[1].colors[y_receive]),
        )
        name = f"x{x_send}{x_receive} y{y_send}{y_receive} {'eo'[x_odd]}{'eo'[y_odd]}"
        yield name, (key == values[:, None, None]).all(axis=0), ends, (y_odd == 1, x_odd == 1)


def _align(
    hw: HardwareSpec, role: RoleBuilder, operand: _Operand, ends: _Ends, forward: bool, dtype: str
) -> None:
    """Alignment rounds: move whole PE tiles, backward in even lines, forward in odd ones."""
    if not operand.rounds:
        return
    assert operand.shift is not None
    compute, count = role.thread(_COMPUTE), operand.blocks
    own = operand.tiles[:count]
    received = operand.tiles[count:] or own
    inputs, outputs = (operand.shift, *own, *received), (operand.shift, *own)
    kernel = realign(count)
    cycles = copy_cycles(hw, sum(t.size for t in own), dtype)
    if operand.length == 1:
        compute.compute(kernel, inputs, outputs, cycles)
        return
    back = len(operand.colors) // 2
    pair = ends if forward else _Ends(ends.receive + back, ends.send + back)
    with compute.loop(operand.rounds):
        compute.signal(_GO).wait(_MOVED).compute(kernel, inputs, outputs, cycles)
    with role.thread(_SEND).loop(operand.rounds), role.thread(_RECEIVE).loop(operand.rounds):
        _transfer(hw, role, [(pair, operand.whole(), operand.whole(received=True))])


def _multiply(
    hw: HardwareSpec,
    role: RoleBuilder,
    layout: Layout,
    operands: tuple[_Operand, _Operand],
    c: Tile,
    ends: tuple[_Ends, _Ends],
    dtype: str,
) -> None:
    """The compute-shift steps; the last one shifts nothing."""
    a, b = operands
    cycles = gemm_cycles(hw, layout.tile_m, layout.block_k, layout.tile_n, dtype)
    compute = role.thread(_COMPUTE)
    moving = [pair for pair in zip(operands, ends, strict=True) if pair[0].length > 1]

    def product(step: int) -> None:
        compute.compute(GEMM, (c, a.current(step), b.current(step)), (c,), cycles)

    def step_of_product(step: int) -> None:
        if moving:
            compute.signal(_GO)
        product(step)
        if moving:
            compute.wait(_MOVED)

    def step_of_transfer(step: int) -> None:
        moves = [(e, o.leaving(step).slice(), o.current(step + 1).slice()) for o, e in moving]
        _transfer(hw, role, moves)

    period, shifts = math.lcm(a.period, b.period), layout.steps - 1
    _repeat([compute], period, shifts, step_of_product)
    product(shifts)
    if moving:
        _repeat([role.thread(_SEND), role.thread(_RECEIVE)], period, shifts, step_of_transfer)


def _transfer(hw: HardwareSpec, role: RoleBuilder, moves: list[tuple[_Ends, Slice, Slice]]) -> None:
    """Send some slices and receive others when the compute thread says so, and tell it the end."""
    send, receive = role.thread(_SEND), role.thread(_RECEIVE)
    send.wait(_ONWARD)
    receive.wait(_GO).signal(_ONWARD)
    receive.compute(PAUSE, (_any_word(moves[0][1].offset),), (), _pause_cycles(hw))
    for ends, leaving, arriving in moves:
        send.send(ends.send, leaving)
        receive.receive(ends.receive, arriving)
    send.signal(_SENT)
    receive.wait(_SENT).signal(_MOVED)


def _repeat(
    threads: list[ThreadBuilder], period: int, count: int, emit: Callable[[int], None]
) -> None:
    """Emit steps 0 .. count-1 of which those ``period`` apart are equal, as a loop if it pays."""
    rounds = count // period
    if rounds < 2:
        rounds = 0
    else:
        _looped(threads, rounds, lambda: [emit(step) for step in range(period)])
    for step in range(rounds * period, count):
        emit(step)


def _looped(threads: list[ThreadBuilder], rounds: int, body: Callable[[], object]) -> None:
    if not threads:
        body()
        return
    with threads[0].loop(rounds):
        _looped(threads[1:], rounds, body)


def _pause_cycles(hw: HardwareSpec) -> int:
    """From the receiver's pause to the arrival of the first word, less the receiver's set-up.

    Sender and receiver set up at the same time; without set-up the sender is one cycle behind.
    """
    return two_hops_cycles(hw) + (hw.stream_setup_cycles == 0)


def _any_word(offset: int) -> Tile:
    return Tile(name="any word", offset=offset, shape=(1,))


def apply(
    a: jax.Array, b: jax.Array, *, values: Literal["rounds", "dense"] = "rounds"
) -> jax.Array:
    """Bulk level of C = A B.

    Args:
      a: [..., m, k, Y, X] tiles of A, as `tile_operands` cuts them.
      b: [..., k', n, Y, X] tiles of B; the same leading axes.
      values: "rounds" makes the fabric's products and additions in the fabric's order, bit for
        bit. "dense" is one dense product: much faster, another order of additions.

    Returns:
      [..., m, n, Y, X] float32.

    Raises:
      WaferError: Tiles that do not fit each other; unknown ``values``.
    """
    layout = layout_of_tiles(a, b)
    if values not in ("rounds", "dense"):
        raise WaferError(f'values={values!r}: choose "rounds" or "dense"')
    if values == "dense":
        product = jnp.matmul(
            join(a), join(b), precision="highest", preferred_element_type=jnp.float32
        )
        return cut(product, layout.mesh)
    function = lambda a, b: _rounds(a, b, layout)
    for _ in range(a.ndim - 4):
        function = jax.vmap(function)
    return function(a, b)


def _rounds(a: jax.Array, b: jax.Array, layout: Layout) -> jax.Array:
    """One product of blocks per step; which blocks, `block_numbers` says."""
    rows, cols = rows_of_a(a, layout), columns_of_b(b, layout)
    numbers = jnp.asarray(block_numbers(layout.mesh, layout.steps))

    def step(s: jax.Array, c: jax.Array) -> jax.Array:
        number = numbers[s][None, None]
        a_block = jnp.take_along_axis(rows, number, axis=-1, mode="promise_in_bounds")
        b_block = jnp.take_along_axis(cols, number, axis=-2, mode="promise_in_bounds")
        return gemm(c, a_block, b_block)

    c = jnp.zeros((layout.tile_m, layout.tile_n, *layout.mesh), jnp.float32)
    return lax.fori_loop(0, layout.steps, step, c)
