"""MeshGEMM: C = A B by compute-shift steps on two interleaved rings.

WaferLLM (OSDI'25), section 5.3: every PE holds blocks of A and B. In each of L = lcm(Y, X) steps it
adds the product of its current blocks to its tile of C while A's blocks move along x and B's along
y to the INTERLEAVE neighbour, at most two hops away. `gemm_layout` says which block is where,
`compute_shift` what a PE does in a step.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives import compute_shift, interleave
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.compute_shift import COLORS, Ends, Operand
from wafer_jax.collectives.gemm_cost import cost, cost_parts
from wafer_jax.collectives.gemm_layout import (
    Layout,
    block_numbers,
    columns_of_b,
    cut,
    join,
    layout_of,
    layout_of_tiles,
    load,
    rows_of_a,
    tile_operands,
)
from wafer_jax.collectives.kernels import gemm, gemm_cycles
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program

__all__ = ["apply", "cost", "cost_parts", "load", "mesh", "program", "tile_operands"]

Align = Literal["chip", "left", "host"]


@checked
def program(
    hw: HardwareSpec,
    m: int,
    k: int,
    n: int,
    *,
    align: Align = "chip",
    dtype: str = "float32",
    product_cycles: int | None = None,
    home: bool = False,
) -> Program:
    """C = A B for A [m, k] and B [k, n].

    Inputs are what `load` returns for the same ``align``; the output is c [tile_m, tile_n] float32.

    Args:
      hw: Machine and mesh.
      m: Rows of A and C.
      k: Columns of A, rows of B.
      n: Columns of B and C.
      align: Who skews A and B before the product: "chip" in at most X / 2 and Y / 2 rounds
        (rows that have moved far enough go on sending but keep their tile), or "host"; "left": A
        on chip and B by the host, as the paper's code does, since weights stay where they are.
      dtype: Element type of A and B; products are summed in float32.
      product_cycles: Of the product of two blocks, by default `kernels.gemm_cycles`: a what-if.
      home: Let the last step shift, too, so that every block comes back to where it began.

    Raises:
      WaferError: Blocks over the SRAM budget; too few colours, queues or threads.
    """
    layout = layout_of(hw.mesh, m, k, n)
    if product_cycles is None:
        product_cycles = gemm_cycles(hw, layout.tile_m, layout.block_k, layout.tile_n, dtype)
    builder = ProgramBuilder(hw, f"MeshGEMM {m}x{k}x{n}, aligned on {align}")
    a, b = compute_shift.allocate(builder, layout, align, dtype)
    for operand in (a, b):
        _paint(builder, operand)
    c = builder.tile("c", (layout.tile_m, layout.tile_n))
    for name, mask, rings in _roles(layout, (a, b)):
        role = builder.role(name, where=mask)
        compute_shift.clear_result(hw, role, c, a.tiles[0])
        for operand, _, aligning in rings:
            compute_shift.align(hw, role, operand, aligning, dtype)
        operands = [(operand, forward) for operand, forward, _ in rings]
        compute_shift.multiply(hw, role, layout, operands, c, product_cycles, home=home)
    return builder.build(inputs=compute_shift.inputs_of((a, b)), outputs=("c",))


mesh = program


def _paint(builder: ProgramBuilder, operand: Operand) -> None:
    """Route the interleaved rings; even lines align the other way round."""
    interleave.paint(builder, operand.axis, operand.colors[:COLORS])
    if operand.rounds:
        even = slice(0, None, 2)
        colors = operand.colors[COLORS:]
        interleave.paint(builder, operand.axis, colors, reverse=True, lines=even)


def _roles(layout: Layout, operands: tuple[Operand, Operand]):
    """PEs with the same colours (and alignment ways): name, [Y, X] mask, and for A and B
    (operand, ends of the steps' ring, ends of the alignment's ring).
    """
    height, width = layout.mesh
    x, y = interleave.ring(width), interleave.ring(height)
    odd = np.arange(max(height, width)) % 2 * any(o.rounds for o in operands)
    rows = np.stack([y.send, y.receive, odd[:height]])
    cols = np.stack([x.send, x.receive, odd[:width]])
    grid = (len(rows), height, width)
    key = np.concatenate(
        [np.broadcast_to(cols[:, None, :], grid), np.broadcast_to(rows[:, :, None], grid)]
    )
    for values in np.unique(key.reshape(6, -1), axis=1).T:
        x_send, x_receive, x_odd, y_send, y_receive, y_odd = (int(v) for v in values)
        name = f"x{x_send}{x_receive} y{y_send}{y_receive} {'eo'[x_odd]}{'eo'[y_odd]}"
        rings = [
            (operand, *_ends(operand, send, receive, forward=bool(odd_line)))
            for operand, send, receive, odd_line in (
                (operands[0], x_send, x_receive, y_odd),
                (operands[1], y_send, y_receive, x_odd),
            )
        ]
        yield name, (key == values[:, None, None]).all(axis=0), rings


def _ends(operand: Operand, send: int, receive: int, *, forward: bool) -> tuple[Ends, Ends]:
    """Colours of the steps' ring, and of the ring that an odd (forward) or even line aligns on."""
    ends = Ends(operand.colors[send], operand.colors[receive])
    if forward or not operand.rounds:
        return ends, ends
    return ends, Ends(operand.colors[COLORS + receive], operand.colors[COLORS + send])


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
