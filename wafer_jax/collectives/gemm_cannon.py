"""Cannon's algorithm: C = A B by compute-shift steps on two plain rings.

Cannon (1969), as WaferLLM (OSDI'25, section 5.1, figure 6) compares MeshGEMM with it: the steps are
those of MeshGEMM (`compute_shift`), but a ring is the line itself. Tiles move to the next PE, one
hop away, and from the end of the line all the way back to its head, past the routers of the line.

    0 -> 1 -> 2 -> ... -> N-1        two alternating colours
    0 <------------------ N-1        a third colour

So a PE's routers carry three colours per axis whatever N is, but one connection in every line is
N - 1 hops long. `gemm_cannon_cost` says what that costs: PEs wait for their own tiles only.

The contracted axis is cut into L = lcm(Y, X) blocks as in `gemm_layout`, of which a PE of A's rows
holds L / X and one of B's columns L / Y. In step s PE (y, x) multiplies the blocks with number
(x L / X + y L / Y - s) mod L, once row y of A and column x of B have been skewed by the other
coordinate. On chip rows (columns) in the first half of the mesh move backward, the others forward,
which takes three more colours per axis.
"""

from collections.abc import Iterator
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives import compute_shift
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.compute_shift import COLORS, Ends, Operand
from wafer_jax.collectives.gemm_cannon_cost import cost, cost_parts
from wafer_jax.collectives.gemm_layout import (
    Layout,
    aligned_on_chip,
    columns_of_b,
    cut,
    join,
    layout_of,
    layout_of_tiles,
    rows_of_a,
    tile_operands,
)
from wafer_jax.collectives.kernels import gemm, gemm_cycles
from wafer_jax.collectives.lines import Lines
from wafer_jax.errors import WaferError
from wafer_jax.hardware import RAMP, HardwareSpec
from wafer_jax.program import Program

__all__ = ["apply", "cost", "cost_parts", "load", "program", "tile_operands"]


@checked
def program(
    hw: HardwareSpec,
    m: int,
    k: int,
    n: int,
    *,
    align: Literal["chip", "left", "host"] = "chip",
    dtype: str = "float32",
) -> Program:
    """C = A B for A [m, k] and B [k, n].

    Inputs are what `load` returns for the same ``align``; the output is c [tile_m, tile_n] float32.

    Args:
      hw: Machine and mesh.
      m: Rows of A and C.
      k: Columns of A, rows of B.
      n: Columns of B and C.
      align: Who skews A and B before the product: "chip" in at most X / 2 and Y / 2 rounds,
        "host", or "left": A on chip and B by the host.
      dtype: Element type of A and B; products are summed in float32.

    Raises:
      WaferError: Blocks over the SRAM budget; too few colours, queues or threads.
    """
    layout = layout_of(hw.mesh, m, k, n)
    builder = ProgramBuilder(hw, f"Cannon {m}x{k}x{n}, aligned on {align}")
    a, b = compute_shift.allocate(builder, layout, align, dtype)
    for operand in (a, b):
        _paint(Lines(builder, operand.axis), operand)
    c = builder.tile("c", (layout.tile_m, layout.tile_n))
    product_cycles = gemm_cycles(hw, layout.tile_m, layout.block_k, layout.tile_n, dtype)
    for (y, x), mask in _alike(layout, align):
        role = builder.role(f"like y{y} x{x}", where=mask)
        compute_shift.clear_result(hw, role, c, a.tiles[0])
        for operand, at, line, lines in ((a, x, y, hw.mesh[0]), (b, y, x, hw.mesh[1])):
            ends = _ends(operand, at, reverse=2 * line <= lines)
            compute_shift.align(hw, role, operand, ends, dtype)
        operands = ((a, _ends(a, x)), (b, _ends(b, y)))
        compute_shift.multiply(hw, role, layout, operands, c, product_cycles, home=False)
    return builder.build(inputs=compute_shift.inputs_of((a, b)), outputs=("c",))


cannon = program


def _ends(operand: Operand, position: int, *, reverse: bool = False) -> Ends:
    """Colours of the PE at a position of the line; in reverse only an alignment moves."""
    last = operand.length - 1
    ahead = position % 2 if position < last else 2
    behind = (position - 1) % 2 if position > 0 else 2
    if reverse and operand.rounds:
        return Ends(operand.colors[COLORS + behind], operand.colors[COLORS + ahead])
    return Ends(operand.colors[ahead], operand.colors[behind])


def _paint(lines: Lines, operand: Operand) -> None:
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
            color = _ends(operand, start, reverse=reverse).send
            lines.route(color, [start], RAMP, out)
            lines.route(color, [end], back, RAMP)
        color = _ends(operand, tail, reverse=reverse).send
        lines.route(color, [tail], RAMP, back)
        lines.route(color, inner, out, back) if inner else None
        lines.route(color, [head], out, RAMP)


def _alike(layout: Layout, align: str) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """A PE (y, x) for all that have the same colours and alignment ways, and their mask."""
    height, width = layout.mesh

    def key(length: int, on_chip: bool) -> np.ndarray:
        at = np.arange(length)
        end = np.where(at == 0, 1, np.where(at == length - 1, 2, 0))
        backward = (2 * at <= length) & on_chip
        return at % 2 + 2 * end + 6 * backward

    a_on_chip, b_on_chip = aligned_on_chip(align)
    grid = key(height, a_on_chip)[:, None] * 12 + key(width, b_on_chip)
    for value, first in zip(*np.unique(grid, return_index=True), strict=True):
        y, x = divmod(int(first), width)
        yield (y, x), grid == value


def load(
    a: np.ndarray | jax.Array, b: np.ndarray | jax.Array, align: str = "chip"
) -> dict[str, np.ndarray]:
    """Tiles for the fabric, as the host loads them for ``program(..., align=align)``.

    Args:
      a: [m, k, Y, X] tiles of A, as `tile_operands` cuts them.
      b: [k', n, Y, X] tiles of B.
      align: "host" skews the blocks here; "chip" leaves that to the program, and tells every PE
        how far its row and its column must move; "left" does so for A alone.

    Returns:
      a0, a1, ... [m, block_k, Y, X], b0, b1, ... [block_k, n, Y, X], and for those aligned
      on chip the counts a_shift and b_shift [1, Y, X] float32, in blocks.

    Raises:
      WaferError: Tiles that do not fit each other; an unknown ``align``.
    """
    a, b = np.asarray(a), np.asarray(b)
    layout = layout_of_tiles(a, b)  # pyright: ignore[reportArgumentType]
    a_on_chip, b_on_chip = aligned_on_chip(align)
    (height, width), blocks = layout.mesh, layout.steps
    a_place, b_place = _places(layout)
    rows, cols = rows_of_a(a, layout), columns_of_b(b, layout)
    tiles = {}
    for j in range(layout.a_blocks):
        number = np.broadcast_to(a_place + j + (not a_on_chip) * b_place, layout.mesh) % blocks
        tiles[f"a{j}"] = np.take_along_axis(rows, number[None, None], axis=-1)
    for j in range(layout.b_blocks):
        number = np.broadcast_to(b_place + j + (not b_on_chip) * a_place, layout.mesh) % blocks
        tiles[f"b{j}"] = np.take_along_axis(cols, number[None, None], axis=-2)
    y, x = np.arange(height)[:, None], np.arange(width)
    a_shift = np.where(2 * y <= height, b_place, b_place - blocks)
    b_shift = np.where(2 * x <= width, a_place, a_place - blocks)
    for name, needed, shift in (
        ("a_shift", a_on_chip and layout.a_rounds, a_shift),
        ("b_shift", b_on_chip and layout.b_rounds, b_shift),
    ):
        if needed:
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
