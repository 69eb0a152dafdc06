"""Transposed MeshGEMM: C = A B^T, without a transpose and without alignment.

WaferLLM (OSDI'25), section 5.4 (dist-GEMM-T), used for Q K^T: A and B lie alike, rows along y and
the contracted columns along x. B's tiles go round the interleaved ring of their column, two hops at
most per step. After each of Y steps a PE multiplies its tile of A by the B tile it has now, and
chains along x sum the partial products into the column where that part of C belongs, so the root
moves with B's tile (the paper says "reduce-add"; that its root rotates is read from the authors'
code).

The root of a step differs from row to row, and every PE is a root sooner or later, but no route
ever changes: chains run between neighbours only, so two alternating colours eastward and two
westward serve every root. What a PE does in a step follows from where the root is: the ends of a
row send, the PEs between them and the root add their own words to what passes on.

B's streams are launched one after the other, are wide, and end in a task, as in MeshGEMM; those of
the chains are the core's own (the published code adds while it receives):

    control         launch both; product; chains; wait for both; next task
    send, receive   wait; B's current tile, B's next tile; done
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.builder import ProgramBuilder, RoleBuilder
from wafer_jax.collectives import interleave, launches
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.gemm_layout import cut, join
from wafer_jax.collectives.gemm_transposed_cost import cost, cost_parts
from wafer_jax.collectives.gemm_transposed_layout import (
    Part,
    check_tiles,
    parts_of_tile,
    tile_numbers,
    tile_operands,
)
from wafer_jax.collectives.kernels import copy_cycles, gemm, gemm_cycles
from wafer_jax.collectives.lines import Lines
from wafer_jax.collectives.loops import repeat
from wafer_jax.collectives.tiles import tile_size
from wafer_jax.errors import WaferError
from wafer_jax.events import Kernel, Tile
from wafer_jax.hardware import RAMP, HardwareSpec
from wafer_jax.program import Program

__all__ = ["apply", "cost", "cost_parts", "load", "program", "tile_operands"]

_CONTROL, _SEND, _RECEIVE = range(3)
"""Threads; a stream begins on the semaphore of its number, and tells on `_DONE`."""
_DONE = 0
_RING = range(interleave.COLORS)
_EAST, _WEST = (3, 4), (5, 6)
"""Colours of the chains that run east, and west; a PE sends on the one of its parity."""


@checked
def program(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> Program:
    """C = A B^T for A [m, k] and B [n, k].

    Inputs are what `load` returns; the output is c [n Y / X, m] float32, column after column: the
    transpose of what `apply` gives for each PE, and the order in which vector instructions write.

    Args:
      hw: Machine and mesh.
      m: Rows of A and C.
      k: Columns of A and B.
      n: Rows of B, columns of C.
      dtype: Element type of A and B; products are summed in float32.

    Raises:
      WaferError: Tiles over the SRAM budget; too few colours, queues or threads.
    """
    height, width = hw.mesh
    steps = math.lcm(height, width)
    tile_m, tile_k, part_n = tile_size(m, height), tile_size(k, width), tile_size(n, steps)
    builder = ProgramBuilder(hw, f"transposed MeshGEMM {m}x{k}x{n}")
    a = builder.tile("a", (tile_m, tile_k), dtype)
    rows = part_n * steps // height
    b = [builder.tile(f"b{i}", (rows, tile_k), dtype) for i in range(1 + (height > 1))]
    product = builder.tile("product", (rows, tile_m))
    c = builder.tile("c", (part_n * steps // width, tile_m))
    interleave.paint(builder, "y", _RING)
    _paint_chains(builder)
    ring, cycles = interleave.ring(height), gemm_cycles(hw, tile_m, tile_k, rows, dtype)
    for y, x, mask in _alike(hw.mesh):
        role = builder.role(f"like y{y} x{x}", where=mask)
        tiles = _Tiles(a, b, product, c, part_n * tile_m)
        _multiply(hw, role, (y, x), tiles, cycles)
        _shift(role, b, _RING[int(ring.send[y])], _RING[int(ring.receive[y])], height - 1)
    return builder.build(inputs=[a, b[0]], outputs=[c])


transposed = program


class _Tiles(NamedTuple):
    """Tiles of a PE: A's, B's current and next, a product, C's; and words of a part's product."""

    a: Tile
    b: list[Tile]
    product: Tile
    c: Tile
    part_words: int


def _paint_chains(builder: ProgramBuilder) -> None:
    """Both directions between all neighbours of a row."""
    lines = Lines(builder, "x")
    for colors, ahead, behind, step in (
        (_EAST, lines.forward, lines.back, 1),
        (_WEST, lines.back, lines.forward, -1),
    ):
        for start in range(lines.length):
            if 0 <= start + step < lines.length:
                lines.route(colors[start % 2], [start], RAMP, ahead)
                lines.route(colors[start % 2], [start + step], behind, RAMP)


def _alike(mesh: tuple[int, int]) -> Iterator[tuple[int, int, np.ndarray]]:
    """A PE (y, x) for all that do the same on the same colours, and their mask."""
    height, width = mesh
    ring, tiles = interleave.ring(height), tile_numbers(height)
    parts = [parts_of_tile(mesh, tile) for tile in range(height)]
    side = [[tuple(np.sign(p.root - x) for p in parts[t]) for t in range(height)]
            for x in range(width)]  # fmt: skip
    alike: dict[tuple, list[tuple[int, int]]] = defaultdict(list)
    for y in range(height):
        order_of_tiles = tuple(tiles[:, y])
        for x in range(width):
            ends = (int(ring.send[y]), int(ring.receive[y]), x % 2, x == 0, x == width - 1)
            sides = tuple(side[x][t] for t in order_of_tiles)
            roots = tuple(t for t in order_of_tiles if 0 in side[x][t])
            alike[(ends, sides, roots)].append((y, x))
    for pes in alike.values():
        mask = np.zeros(mesh, bool)
        mask[tuple(zip(*pes, strict=True))] = True
        yield *pes[0], mask


def _multiply(
    hw: HardwareSpec, role: RoleBuilder, at: tuple[int, int], tiles: _Tiles, cycles: int
) -> None:
    """A product and its chains per step; equal steps in a row become a loop."""
    (y, x), (height, _) = at, hw.mesh
    control = role.thread(_CONTROL)
    parts = [parts_of_tile(hw.mesh, int(tile)) for tile in tile_numbers(height)[:, y]]

    def step(number: int) -> None:
        streams = (_SEND, _RECEIVE) if number < height - 1 else ()
        for stream in streams:
            launches.launch(hw, control, stream, tiles.a)
        b = tiles.b[number % 2]
        # Streams share the datapath: a wide instruction sends one word of B and receives another.
        shared = b.words if streams else 0
        control.compute(PRODUCT, (tiles.a, b), (tiles.product,), cycles + shared)
        for part in parts[number]:
            _chain(role, x, hw.mesh, tiles, part, first=parts[number][0].first)
        launches.join(hw, control, [_DONE] * len(streams), tiles.a)

    def alike(number: int) -> tuple:
        whole = [(part.root > x) - (part.root < x) for part in parts[number]]
        return (*whole, number if 0 in whole else -1, number == height - 1)

    for _, run in groupby(range(height), alike):
        numbers = list(run)
        repeat([control], 2, len(numbers), lambda i, first=numbers[0]: step(first + i))


def _chain(
    role: RoleBuilder, x: int, mesh: tuple[int, int], tiles: _Tiles, part: Part, first: int
) -> None:
    """What PE x does to sum one part of the products in its root."""
    width, control, words = mesh[1], role.thread(_CONTROL), part.count * tiles.part_words
    own = tiles.product.slice((part.first - first) * tiles.part_words, words)
    if x == part.root:
        _collect(role, x, mesh, tiles, part, own.offset)
        return
    out, step = (_EAST, 1) if x < part.root else (_WEST, -1)
    if 0 <= x - step < width:
        control.forward(out[(x - step) % 2], out[x % 2], own)
    else:
        control.send(out[x % 2], own)


def _collect(
    role: RoleBuilder, x: int, mesh: tuple[int, int], tiles: _Tiles, part: Part, own: int
) -> None:
    """The root keeps its part in C and adds the shorter half-chain's words, then the other's."""
    control, (height, width) = role.thread(_CONTROL), mesh
    words = part.count * tiles.part_words
    slot = part.first % (math.lcm(height, width) // width)
    here = tiles.c.slice(slot * tiles.part_words, words)
    product = Tile(name="part of product", offset=own, shape=(words,))
    kept = Tile(name="part of c", offset=here.offset, shape=(words,))
    control.compute(KEEP, (product,), (kept,), copy_cycles(role.hw, words))
    west, east = (x, _EAST[(x - 1) % 2]), (width - 1 - x, _WEST[(x + 1) % 2])
    for length, color in sorted((west, east), key=lambda side: side[0]):
        if length:
            control.receive(color, here, "add")


def _shift(role: RoleBuilder, b: list[Tile], send_on: int, receive_on: int, count: int) -> None:
    """B's tile to the next PE of the ring in every step but the last."""
    if count == 0:
        return
    send, receive = role.thread(_SEND), role.thread(_RECEIVE)

    def step(number: int) -> None:
        send.wait(_SEND).send(send_on, b[number % 2], wide=True).signal(_DONE)
        receive.wait(_RECEIVE).receive(receive_on, b[(number + 1) % 2], wide=True).signal(_DONE)

    repeat([send, receive], 2, count, step)


def product_of_tiles(a: jax.Array, b: jax.Array) -> jax.Array:
    """[m, k] and [n, k] to [n, m] float32: the transpose of a b^T.

    The first vector instruction of each column writes, so nothing need be cleared.
    """
    zero = jnp.zeros((a.shape[0], b.shape[0]), jnp.float32)
    return jnp.swapaxes(gemm(zero, a, jnp.swapaxes(b, 0, 1)), 0, 1)


PRODUCT = Kernel(name="transposed gemm", fn=product_of_tiles)
KEEP = Kernel(name="keep", fn=lambda part: part)


def load(a: np.ndarray | jax.Array, b: np.ndarray | jax.Array) -> dict[str, np.ndarray]:
    """Tiles a [m, k, Y, X] and b [n, k, Y, X] of `tile_operands` for the fabric: a and b0."""
    check_tiles(a, b)
    return {"a": np.asarray(a), "b0": np.asarray(b)}


def apply(
    a: jax.Array, b: jax.Array, *, values: Literal["rounds", "dense"] = "rounds"
) -> jax.Array:
    """Bulk level of C = A B^T.

    Args:
      a: [..., m, k, Y, X] tiles of A.
      b: [..., n, k, Y, X] tiles of B, the same leading axes; X divides n Y.
      values: "rounds" sums as the fabric would: over a PE's own columns first, then along the
        chains into the root. "dense" is one dense product: faster, another order of additions.

    Returns:
      [..., m, n Y / X, Y, X] float32: C's columns, which are B's rows, cut along x.

    Raises:
      WaferError: Tiles that do not fit each other; unknown ``values``.
    """
    check_tiles(a, b)
    if values == "dense":
        return cut(_matmul(join(a), join(b)), (a.shape[-2], a.shape[-1]))
    if values != "rounds":
        raise WaferError(f'values={values!r}: choose "rounds" or "dense"')
    function = _rounds
    for _ in range(a.ndim - 4):
        function = jax.vmap(function)
    return function(a, b)


def _matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    b = jnp.swapaxes(b, -1, -2)
    return jnp.matmul(a, b, precision="highest", preferred_element_type=jnp.float32)


def _rounds(a: jax.Array, b: jax.Array) -> jax.Array:
    (m, _, height, width), n = a.shape, b.shape[0]
    tiles = jnp.asarray(tile_numbers(height))
    steps = math.lcm(height, width)
    per_column, per_tile = steps // width, steps // height
    part = jnp.arange(steps, dtype=jnp.int32).reshape(width, per_column).T[:, None]  # [q, 1, X]

    def step(s: jax.Array, c: jax.Array) -> jax.Array:
        b_now = jnp.swapaxes(jnp.take(b, tiles[s], axis=2), 0, 1)
        product = gemm(jnp.zeros((m, n, height, width), jnp.float32), a, b_now)
        total = _sum_to_every_root(product).reshape(m, per_tile, -1, height, width)
        for i in range(per_tile):
            here = part == (tiles[s] * per_tile + i)[None, :, None]  # [q, Y, X]
            c = jnp.where(here[None, :, None], total[:, i, None], c)
        return c

    c = jnp.zeros((m, per_column, n * height // steps, height, width), jnp.float32)
    return lax.fori_loop(0, height, step, c).reshape(m, -1, height, width)


def _sum_to_every_root(parts: jax.Array) -> jax.Array:
    """[..., X] to [..., X]: what the chains along x would sum into each column as the root.

    The root adds the shorter half-chain first, as `tree` does; words run from the far ends inwards.
    """
    width = parts.shape[-1]
    if width == 1:
        return parts
    line = jnp.moveaxis(parts, -1, 0)
    west, east = _running_sums(line), _running_sums(line[::-1])[::-1]
    nothing = jnp.zeros_like(line[:1])
    west = jnp.concatenate([nothing, west[:-1]])
    east = jnp.concatenate([east[1:], nothing])
    at = lambda mask: mask.reshape(-1, *[1] * (line.ndim - 1))
    root = np.arange(width)
    west_first = at(2 * root <= width - 1)
    near, far = jnp.where(west_first, west, east), jnp.where(west_first, east, west)
    has_near = at((root > 0) & (root < width - 1))
    total = jnp.where(has_near, line + near, line) + far
    return jnp.moveaxis(total, 0, -1)


def _running_sums(line: jax.Array) -> jax.Array:
    """[X, ...]: sums of the first 1, 2, ... entries, one after another."""

    def add(word: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
        word = own + word
        return word, word

    return jnp.concatenate([line[:1], lax.scan(add, line[0], line[1:])[1]])
