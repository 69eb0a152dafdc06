"""Star stencil in two dimensions on tiles: every PE exchanges its border with four neighbours.

A grid is cut into one tile [h, w] per PE. In each iteration a PE sends r rows or columns to every
neighbour, receives as many, and replaces each element by the weighted sum of itself and of the
elements at distance 1 .. r along its row and column: 4 r + 1 taps, 5 for r = 1. A star has no
corners, so nothing goes through a third PE. Beyond the mesh the grid is zero (Dirichlet).

Along an axis a PE sends on one colour and receives on another, and its neighbours the other way
round, so there are two colours per direction, 8 in all, on a mesh of any size.

    core      go; receive from E, W, S, N; wait sent; the kernel on tile and halo
    sender    wait go; send to W, E, N, S; sent

A tile is sent row by row to N and S as one stream, to W and E as one per column. Tiles may be
narrower than r only along an axis of one PE.

Axes: h and w rows and columns of a tile, r radius, Y and X of the mesh.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.builder import ProgramBuilder, RoleBuilder
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.kernels import accumulate
from wafer_jax.collectives.stencil_cost import (
    check_iterations,
    check_tile,
    clear_cycles,
    core_cycles,
    cost,
    published,
)
from wafer_jax.errors import WaferError
from wafer_jax.events import Kernel, Slice, Tile
from wafer_jax.hardware import OPPOSITE, RAMP, STEP_YX, E, HardwareSpec, N, S, W
from wafer_jax.program import Program

__all__ = ["apply", "cost", "program", "published", "star"]

_SENT_IN_ORDER = (W, E, N, S)
_GO, _SENT = range(2)


def star(x: jax.Array, halo: jax.Array, weights: jax.Array) -> jax.Array:
    """One iteration on one PE; taps are added from the nearest on, N, S, W, E, the centre last.

    Args:
      x: [h, w, ...] tile.
      halo: [2 r (w + h), ...]: r rows from N, r rows from S, r columns from W, r columns from E.
      weights: [r + 1, ...] of the centre and of distance 1 .. r.

    Returns:
      [h, w, ...].
    """
    (height, width, *pes), radius = x.shape, len(weights) - 1
    padded = _padded(x, halo, radius)
    steps = jnp.asarray(STEP_YX, jnp.int32)[jnp.asarray((N, S, W, E))]

    def tap(i: jax.Array) -> jax.Array:
        distance = jnp.where(i == 4 * radius, 0, i // 4 + 1)
        dy, dx = radius + distance * steps[i % 4]
        start = (dy, dx, *(jnp.zeros_like(dy) for _ in pes))
        shifted = lax.dynamic_slice(padded, start, (height, width, *pes))
        return lax.dynamic_index_in_dim(weights, distance, 0)[:, None] * shifted

    return accumulate(jnp.zeros_like(x), 4 * radius + 1, tap, x.dtype)


def _padded(x: jax.Array, halo: jax.Array, radius: int) -> jax.Array:
    """[h + 2 r, w + 2 r, ...]: a tile with its halo around it, corners zero."""
    height, width, *pes = x.shape
    row, column = radius * width, radius * height
    north, south, west, east = jnp.split(halo, (row, 2 * row, 2 * row + column))
    rows = [north.reshape(radius, width, *pes), x, south.reshape(radius, width, *pes)]
    sides = [
        jnp.pad(jnp.swapaxes(side.reshape(radius, height, *pes), 0, 1),
                ((radius, radius), *[(0, 0)] * (1 + len(pes))))
        for side in (west, east)
    ]  # fmt: skip
    return jnp.concatenate([sides[0], jnp.concatenate(rows), sides[1]], axis=1)


STAR = Kernel(name="star", fn=star)


@lru_cache(maxsize=256)
def _clear(words: int) -> Kernel:
    return Kernel(name="clear", fn=lambda weights: jnp.zeros(words, jnp.float32))


@checked
def program(
    hw: HardwareSpec,
    height: int,
    width: int,
    radius: int = 1,
    iterations: int = 1,
    completion_tasks: bool = True,
) -> Program:
    """Iterations of the stencil on tile x [h, w] float32, in place, with tile weights [r + 1].

    Args:
      hw: Machine and mesh.
      height: Rows of a tile.
      width: Columns of a tile.
      radius: r.
      iterations: How often.
      completion_tasks: The core is charged a task for the end of every stream.

    Raises:
      WaferError: Sizes below 1, a tile narrower than r, tiles over the SRAM budget.
    """
    check_tile(hw.mesh, height, width, radius)
    check_iterations(iterations)
    builder = ProgramBuilder(hw, f"stencil of radius {radius} on tiles of {height}x{width}")
    x = builder.tile("x", (height, width))
    weights = builder.tile("weights", (radius + 1,))
    halo = builder.tile("halo", (2 * radius * (height + width),))
    builder.tile("sums", (height, width))  # a core builds the result apart from the old tile
    _paint(builder)
    cycles = core_cycles(hw, height, width, radius, completion_tasks)
    for role, sides in _roles(builder):
        core, sender = role.thread(0), role.thread(1)
        core.compute(_clear(halo.size), (weights,), (halo,),
                     clear_cycles(hw, height, width, radius))  # fmt: skip
        with core.loop(iterations), sender.loop(iterations):
            core.signal(_GO)
            sender.wait(_GO)
            for side, colors in sides.items():
                for part in _border(x, side, radius):
                    sender.send(colors.send, part)
            for side in map(OPPOSITE.__getitem__, _SENT_IN_ORDER):
                if side in sides:
                    core.receive(sides[side].receive, _halo_part(halo, x, side, radius))
            sender.signal(_SENT)
            core.wait(_SENT)
            core.compute(STAR, (x, halo, weights), (x,), cycles)
    return builder.build(inputs=("x", "weights"), outputs=("x",))


@dataclass(frozen=True)
class _Colors:
    """Colours of a PE for one side: on which it sends there, and receives from there."""

    send: int
    receive: int


def _color(direction: int, parity: int) -> int:
    """Colour of the words that PEs of one parity along the axis send in a direction."""
    return 2 * direction + parity


def _paint(builder: ProgramBuilder) -> None:
    for direction in (N, E, S, W):
        axis = 0 if direction in (N, S) else 1
        length = builder.hw.mesh[axis]
        step = STEP_YX[direction][axis]
        for sender in range(length):
            receiver = sender + step
            if 0 <= receiver < length:
                color = _color(direction, sender % 2)
                for at, rx, tx in (
                    (sender, RAMP, direction),
                    (receiver, OPPOSITE[direction], RAMP),
                ):
                    where = (at, slice(None)) if axis == 0 else (slice(None), at)
                    builder.route(color, *where, rx, tx)


def _roles(builder: ProgramBuilder) -> Iterator[tuple[RoleBuilder, dict[int, _Colors]]]:
    """Roles, and what lies on each side: PEs differ by parity and by edges of the mesh."""
    height, width = builder.hw.mesh
    for (rows, y_sides), (columns, x_sides) in product(_kinds(height, N, S), _kinds(width, W, E)):
        yield builder.role(f"y={rows[0]} x={columns[0]}", at=(rows, columns)), x_sides | y_sides


def _kinds(length: int, back: int, forward: int) -> list[tuple[list[int], dict[int, _Colors]]]:
    """Positions along an axis that are alike: first, last, and the others by parity."""
    kinds: dict[tuple[int, bool, bool], list[int]] = {}
    for i in range(length):
        kinds.setdefault((i % 2, i > 0, i < length - 1), []).append(i)
    found = []
    for (parity, *has), positions in kinds.items():
        sides = {
            side: _Colors(_color(side, parity), _color(OPPOSITE[side], 1 - parity))
            for side, there in zip((back, forward), has, strict=True)
            if there
        }
        found.append((positions, sides))
    return found


def _border(x: Tile, side: int, radius: int) -> list[Slice]:
    """What goes to a neighbour: rows lie together, columns are streams of their own."""
    height, width = x.shape
    if side in (N, S):
        return [x.slice(0 if side == N else (height - radius) * width, radius * width)]
    first = 0 if side == W else width - radius
    return [x.slice(first + j, height, stride=width) for j in range(radius)]


def _halo_part(halo: Tile, x: Tile, side: int, radius: int) -> Slice:
    """Where a neighbour's words go, see `star`."""
    height, width = x.shape
    row, column = radius * width, radius * height
    start, words = {
        N: (0, row), S: (row, row), W: (2 * row, column), E: (2 * row + column, column),
    }[side]  # fmt: skip
    return halo.slice(start, words)


def apply(tiles: jax.Array, weights: jax.Array, iterations: int = 1) -> jax.Array:
    """Bulk level: the same additions in the same order.

    Args:
      tiles: [h, w, Y, X] float32.
      weights: [r + 1] float32 of the centre and of distance 1 .. r.
      iterations: How often.

    Returns:
      [h, w, Y, X].

    Raises:
      WaferError: Arrays of other shapes, sizes below 1, a tile narrower than r.
    """
    if jnp.ndim(tiles) != 4 or jnp.ndim(weights) != 1:
        raise WaferError(
            f"stencil: tiles {jnp.shape(tiles)} and weights {jnp.shape(weights)}: give "
            f"[h, w, Y, X] and [r + 1]"
        )
    height, width, *mesh = tiles.shape
    check_tile((mesh[0], mesh[1]), height, width, len(weights) - 1)
    check_iterations(iterations)
    return _iterate(tiles, weights, iterations)


@jax.jit
def _iterate(tiles: jax.Array, weights: jax.Array, iterations: jax.Array | int) -> jax.Array:
    weights = jnp.broadcast_to(weights[:, None, None], (len(weights), *tiles.shape[2:]))

    def iteration(_: jax.Array, x: jax.Array) -> jax.Array:
        return star(x, _halo(x, len(weights) - 1), weights)

    return lax.fori_loop(0, iterations, iteration, tiles)


def _halo(x: jax.Array, radius: int) -> jax.Array:
    """[2 r (w + h), Y, X]: what every PE receives; zero from beyond the mesh."""
    columns = jnp.swapaxes(x, 0, 1)
    parts = (
        _from_behind(x, 2, radius),
        jnp.flip(_from_behind(jnp.flip(x, (0, 2)), 2, radius), (0, 2)),
        _from_behind(columns, 3, radius),
        jnp.flip(_from_behind(jnp.flip(columns, (0, 3)), 3, radius), (0, 3)),
    )
    return jnp.concatenate([part.reshape(-1, *x.shape[2:]) for part in parts])


def _from_behind(x: jax.Array, pe_axis: int, radius: int) -> jax.Array:
    """[r, ...]: every PE's predecessor's last r entries of the first axis."""
    length = x.shape[pe_axis]
    if length == 1:
        return jnp.zeros((radius, *x.shape[1:]), x.dtype)
    last = lax.slice_in_dim(x[x.shape[0] - radius :], 0, length - 1, axis=pe_axis)
    return jnp.concatenate([jnp.zeros_like(x[:radius].take(jnp.arange(1), pe_axis)), last], pe_axis)
