"""Cannon's algorithm: C = A B by compute-shift steps on two plain rings.

Cannon (1969), as WaferLLM (OSDI'25, section 5.1, figure 6) compares MeshGEMM with it: the steps are
those of `gemm`, but a ring is the line itself. Tiles move to the next PE, one hop away, and from
the end of the line all the way back to its head, past the routers of the whole line.

    0 -> 1 -> 2 -> ... -> N-1        two alternating colours
    0 <------------------ N-1        a third colour

So a PE's routers carry three colours per axis whatever N is, but one connection in every line is
N - 1 hops long. `gemm_cannon_cost` says what that costs: PEs wait for their own tiles only.

The contracted axis is cut into L = lcm(Y, X) blocks as in `gemm_layout`, of which a PE of A's rows
holds L / X and one of B's columns L / Y. In step s PE (y, x) multiplies the blocks with number
(x L / X + y L / Y - s) mod L, once row y of A and column x of B have been skewed by the other
coordinate. On chip rows (columns) in the first half of the mesh move backward, the others forward,
which takes three more colours per axis.

Threads and their events are as `_transfer` and `_multiply` have them: every word that is sent or
received takes the PE's one issue slot, and the receiver pauses for the latency of a hop so that
sender and receiver take turns in the slot in the same way on every PE.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.builder import ProgramBuilder, RoleBuilder
from wafer_jax.collectives.gemm import PAUSE, clear, realign
from wafer_jax.collectives.gemm_cannon_cost import cost, cost_parts, pause_cycles
from wafer_jax.collectives.gemm_cost import copy_cycles
from wafer_jax.collectives.gemm_layout import (
    Layout,
    check_align,
    columns_of_b,
    cut,
    join,
    layout_of,
    layout_of_tiles,
    rows_of_a,
    tile_operands,
)
from wafer_jax.collectives.kernels import GEMM, clear_cycles, gemm, gemm_cycles
from wafer_jax.collectives.lines import Lines
from wafer_jax.collectives.loops import repeat
from wafer_jax.collectives.tiles import Axis
from wafer_jax.errors import WaferError
from wafer_jax.events import Slice, Tile
from wafer_jax.hardware import RAMP, HardwareSpec
from wafer_jax.program import Program

__all__ = ["apply", "cost", "cost_parts", "load", "program", "tile_operands"]

COLORS = 3
"""Colours of one ring along one axis: two alternating ones, and the way back."""

_COMPUTE, _SEND, _RECEIVE = range(3)
_SENT, _MOVED, _GO, _ONWARD = range(4)


@dataclass(frozen=True)
class _Ends:
    """Colours of one PE's ends in a ring."""

    send: int
    receive: int


@dataclass(frozen=True)
class _Operand:
    """A along x, or B along y.

    Attributes:
      length: PEs of its rings.
      blocks: Blocks per PE.
      rounds: Alignment rounds on chip.
      tiles: Its blocks, then buffers for what comes in.
      shift: Tile with the number of blocks that this PE's line must still move.
      colors: Three colours forward and three back.
    """

    axis: Axis
    length: int
    blocks: int
    rounds: int
    tiles: list[Tile]
    shift: Tile | None
    colors: range

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

    def ends(self, position: int, reverse: bool = False) -> _Ends:
        """Colours of the PE at a position of the line."""
        last = self.length - 1
        ahead = position % 2 if position < last else 2
        behind = (position - 1) % 2 if position > 0 else 2
        if reverse:
            return _Ends(self.colors[COLORS + behind], self.colors[COLORS + ahead])
        return _Ends(self.colors[ahead], self.colors[behind])


def program(
    hw: HardwareSpec,
    m: int,
    k: int,
    n: int,
    *,
    align: Literal["chip", "host"] = "chip",
    dtype: str = "float32",
) -> Program:
    """C = A B for A [m, k] and B [k, n].

    Inputs are what `load` returns for the same ``align``; the output is c [tile_m, tile_n] float32.

    Args:
      hw: Machine and mesh.
      m: Rows of A and C.
      k: Columns of A, rows of B.
      n: Columns of B and C.
      align: Who skews A and B before the product: "chip" in at most X / 2 and Y / 2 rounds, or
        "host".
      dtype: Element type of A and B; products are summed in float32.

    Raises:
      WaferError: Blocks over the SRAM budget; too few colours, queues or threads.
    """
    check_align(align)
    layout = layout_of(hw.mesh, m, k, n)
    builder = ProgramBuilder(hw, f"Cannon {m}x{k}x{n}, aligned on {align}")
    a, b = _operands(builder, layout, align, dtype)
    c = builder.tile("c", (layout.tile_m, layout.tile_n))
    for (y, x), mask in _alike(layout, align):
        role = builder.role(f"like y{y} x{x}", where=mask)
        for thread in (_COMPUTE, _SEND, _RECEIVE) if hw.num_pes > 1 else ():
            role.thread(thread)
        word = _any_word(a.tiles[0].offset)
        role.thread(_COMPUTE).compute(clear(c.shape), (word,), (c,), clear_cycles(hw, c.size))
        for operand, position, line in ((a, x, y), (b, y, x)):
            lines = layout.mesh[0] if operand is a else layout.mesh[1]
            _align(hw, role, operand, position, backward=2 * line <= lines, dtype=dtype)
        _multiply(hw, role, layout, ((a, a.ends(x)), (b, b.ends(y))), c, dtype)
    shifts = [t.name for t in (a.shift, b.shift) if t is not None]
    own = [t.name for o in (a, b) for t in o.tiles[: o.blocks]]
    return builder.build(inputs=(*own, *shifts), outputs=("c",))


cannon = program


def _operands(
    builder: ProgramBuilder, layout: Layout, align: str, dtype: str
) -> tuple[_Operand, _Operand]:
    """Allocate both operands' tiles and paint their rings."""
    height, width = layout.mesh
    on_chip = align == "chip"
    plan: tuple[tuple[str, Axis, int, int, int, tuple[int, int]], ...] = (
        ("a", "x", width, layout.a_blocks, layout.a_rounds, (layout.tile_m, layout.block_k)),
        ("b", "y", height, layout.b_blocks, layout.b_rounds, (layout.block_k, layout.tile_n)),
    )
    out = []
    for i, (name, axis, length, blocks, rounds, shape) in enumerate(plan):
        rounds = rounds if on_chip else 0
        buffers = 0 if length == 1 else blocks if rounds else 1
        tiles = [builder.tile(f"{name}{j}", shape, dtype) for j in range(blocks + buffers)]
        shift = builder.tile(f"{name}_shift", (1,)) if rounds else None
        per_axis = 2 * COLORS if on_chip else COLORS
        colors = range(per_axis * i, per_axis * (i + 1))
        operand = _Operand(axis, length, blocks, rounds, tiles, shift, colors)
        _paint(Lines(builder, axis), operand)
        out.append(operand)
    return out[0], out[1]


def _paint(lines: Lines, operand: _Operand) -> None:
    """Route the ring of every line and, for the alignment, the same ring the other way round."""
    last = lines.length - 1
    if last == 0:
        return
    inner = range(1, last)
    for reverse in (False, True) if operand.rounds else (False,):
        out, back = (lines.back, lines.forward) if reverse else (lines.forward, lines.back)
        head, tail = (last, 0) if reverse else (0, last)
        for start in range(last):
            end = start + 1
            start, end = (end, start) if reverse else (start, end)
            color = operand.ends(start, reverse).send
            lines.route(color, [start], RAMP, out)
            lines.route(color, [end], back, RAMP)
        color = operand.ends(tail, reverse).send
        lines.route(color, [tail], RAMP, back)
        lines.route(color, inner, out, back) if inner else None
        lines.route(color, [head], out, RAMP)


def _alike(layout: Layout, align: str) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """A PE (y, x) for all that have the same colours and alignment ways, and their mask."""
    height, width = layout.mesh

    def key(length: int) -> np.ndarray:
        at = np.arange(length)
        end = np.where(at == 0, 1, np.where(at == length - 1, 2, 0))
        backward = (2 * at <= length) & (align == "chip")
        return at % 2 + 2 * end + 6 * backward

    grid = key(height)[:, None] * 12 + key(width)
    for value, first in zip(*np.unique(grid, return_index=True), strict=True):
        y, x = divmod(int(first), width)
        yield (y, x), grid == value


def _align(
    hw: HardwareSpec,
    role: RoleBuilder,
    operand: _Operand,
    position: int,
    *,
    backward: bool,
    dtype: str,
) -> None:
    """Alignment rounds: move whole PE tiles; a line that has moved far enough keeps its own."""
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
    ends = operand.ends(position, reverse=backward)
    with compute.loop(operand.rounds):
        compute.signal(_GO).wait(_MOVED).compute(kernel, inputs, outputs, cycles)
    with role.thread(_SEND).loop(operand.rounds), role.thread(_RECEIVE).loop(operand.rounds):
        _transfer(hw, role, [(ends, operand.whole(), operand.whole(received=True))])


def _multiply(
    hw: HardwareSpec,
    role: RoleBuilder,
    layout: Layout,
    operands: tuple[tuple[_Operand, _Ends], tuple[_Operand, _Ends]],
    c: Tile,
    dtype: str,
) -> None:
    """The compute-shift steps; the last one shifts nothing."""
    (a, _), (b, _) = operands
    cycles = gemm_cycles(hw, layout.tile_m, layout.block_k, layout.tile_n, dtype)
    compute = role.thread(_COMPUTE)
    moving = [pair for pair in operands if pair[0].length > 1]

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

    period, shifts = lcm(a.period, b.period), layout.steps - 1
    repeat([compute], period, shifts, step_of_product)
    product(shifts)
    if moving:
        repeat([role.thread(_SEND), role.thread(_RECEIVE)], period, shifts, step_of_transfer)


def _transfer(hw: HardwareSpec, role: RoleBuilder, moves: list[tuple[_Ends, Slice, Slice]]) -> None:
    """Send some slices and receive others when the compute thread says so, and tell it the end."""
    send, receive = role.thread(_SEND), role.thread(_RECEIVE)
    send.wait(_ONWARD)
    receive.wait(_GO).signal(_ONWARD)
    receive.compute(PAUSE, (_any_word(moves[0][1].offset),), (), pause_cycles(hw))
    for ends, leaving, arriving in moves:
        send.send(ends.send, leaving)
        receive.receive(ends.receive, arriving)
    send.signal(_SENT)
    receive.wait(_SENT).signal(_MOVED)


def _any_word(offset: int) -> Tile:
    return Tile(name="any word", offset=offset, shape=(1,))


def load(
    a: np.ndarray | jax.Array, b: np.ndarray | jax.Array, align: str = "chip"
) -> dict[str, np.ndarray]:
    """Tiles for the fabric, as the host loads them for ``program(..., align=align)``.

    Args:
      a: [m, k, Y, X] tiles of A, as `tile_operands` cuts them.
      b: [k', n, Y, X] tiles of B.
      align: "host" skews the blocks here; "chip" leaves that to the program, and tells every PE
        how far its row and its column must move.

    Returns:
      a0, a1, ... [m, block_k, Y, X], b0, b1, ... [block_k, n, Y, X], and for "chip" the counts
      a_shift and b_shift [1, Y, X] float32, in blocks.

    Raises:
      WaferError: Tiles that do not fit each other; an unknown ``align``.
    """
    a, b = np.asarray(a), np.asarray(b)
    layout = layout_of_tiles(a, b)  # pyright: ignore[reportArgumentType]
    check_align(align)
    (height, width), blocks = layout.mesh, layout.steps
    a_place, b_place = _places(layout)
    skewed = align == "host"
    rows, cols = rows_of_a(a, layout), columns_of_b(b, layout)
    tiles = {}
    for j in range(layout.a_blocks):
        number = np.broadcast_to(a_place + j + skewed * b_place, layout.mesh) % blocks
        tiles[f"a{j}"] = np.take_along_axis(rows, number[None, None], axis=-1)
    for j in range(layout.b_blocks):
        number = np.broadcast_to(b_place + j + skewed * a_place, layout.mesh) % blocks
        tiles[f"b{j}"] = np.take_along_axis(cols, number[None, None], axis=-2)
    if not skewed:
        y, x = np.arange(height)[:, None], np.arange(width)
        shifts = {
            "a_shift": (layout.a_rounds, np.where(2 * y <= height, b_place, b_place - blocks)),
            "b_shift": (layout.b_rounds, np.where(2 * x <= width, a_place, a_place - blocks)),
        }
        for name, (rounds, shift) in shifts.items():
            if rounds:
                tiles[name] = np.broadcast_to(shift.astype(np.float32), (1, *layout.mesh))
    return tiles


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
    if values == "dense":
        product = jnp.matmul(
            join(a), join(b), precision="highest", preferred_element_type=jnp.float32
        )
        return cut(product, layout.mesh)
    if values != "rounds":
        raise WaferError(f'values={values!r}: choose "rounds" or "dense"')
    function = lambda a, b: _rounds(a, b, layout)
    for _ in range(a.ndim - 4):
        function = jax.vmap(function)
    return function(a, b)


def _rounds(a: jax.Array, b: jax.Array, layout: Layout) -> jax.Array:
    rows, cols = rows_of_a(a, layout), columns_of_b(b, layout)
    a_place, b_place = _places(layout)
    first = jnp.asarray(a_place + b_place, jnp.int32)

    def step(s: jax.Array, c: jax.Array) -> jax.Array:
        number = ((first - s) % layout.steps)[None, None]
        a_block = jnp.take_along_axis(rows, number, axis=-1, mode="promise_in_bounds")
        b_block = jnp.take_along_axis(cols, number, axis=-2, mode="promise_in_bounds")
        return gemm(c, a_block, b_block)

    c = jnp.zeros((layout.tile_m, layout.tile_n, *layout.mesh), jnp.float32)
    return lax.fori_loop(0, layout.steps, step, c)


def _places(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """First place of each PE on the ring of its row, [X], and on that of its column, [Y, 1]."""
    height, width = layout.mesh
    return layout.a_blocks * np.arange(width), layout.b_blocks * np.arange(height)[:, None]
