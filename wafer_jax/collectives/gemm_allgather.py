"""All-gather product: C = A B after every PE has gathered its row of A and its column of B.

The way tensor parallelism multiplies on a few devices (WaferLLM, OSDI'25, section 5.1): all PEs
broadcast their tiles along their lines at once, every PE keeps all of them, [tile_m, K] and
[K, tile_n], O(1/N) of the matrices where SUMMA, Cannon and MeshGEMM hold O(1/N^2), and then makes
one product. Nothing overlaps with it.

`gemm_broadcast` says which block is where, and which colours there are: X + Y, one per source.
"""

from functools import cache

import jax
import jax.numpy as jnp

from wafer_jax.builder import ProgramBuilder, RoleBuilder
from wafer_jax.collectives import gemm_broadcast
from wafer_jax.collectives.gemm_broadcast import apply, load
from wafer_jax.collectives.gemm_broadcast_cost import allgather_cost_parts as cost_parts
from wafer_jax.collectives.gemm_broadcast_cost import gathered_product_cycles as product_cycles
from wafer_jax.collectives.gemm_layout import Layout, layout_of, tile_operands
from wafer_jax.collectives.kernels import gemm
from wafer_jax.events import Kernel, Slice, Tile
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program

__all__ = ["apply", "cost", "cost_parts", "load", "program", "tile_operands"]

_RECEIVE_A, _RECEIVE_B, _SEND_A, _SEND_B = range(4)
_GATHERED_B = 0


def program(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> Program:
    """C = A B for A [m, k] and B [k, n].

    Inputs are what `load` returns; the output is c [tile_m, tile_n] float32.

    Args:
      hw: Machine and mesh.
      m: Rows of A and C.
      k: Columns of A, rows of B.
      n: Columns of B and C.
      dtype: Element type of A and B; products are summed in float32.

    Raises:
      WaferError: Gathered tiles over the SRAM budget; too few colours, queues or threads.
    """
    layout = layout_of(hw.mesh, m, k, n)
    builder = ProgramBuilder(hw, f"all-gather product {m}x{k}x{n}")
    gemm_broadcast.paint(builder, builder.name)
    c = builder.tile("c", (layout.tile_m, layout.tile_n))
    cycles = product_cycles(hw, layout, dtype)
    kernel = _product(layout.steps)
    height, width = layout.mesh
    for y in range(height):
        for x in range(width):
            role = builder.role(f"y{y} x{x}", at=(y, x))
            a = _tiles(
                role, "a", (layout.tile_m, layout.block_k), layout.a_blocks, x, layout, dtype
            )
            b = _tiles(
                role, "b", (layout.block_k, layout.tile_n), layout.b_blocks, y, layout, dtype
            )
            _gather(role, layout, (a, b), (y, x))
            role.thread(_RECEIVE_A).compute(kernel, (*a, *b), (c,), cycles)
    own = [f"a{j}" for j in range(layout.a_blocks)] + [f"b{j}" for j in range(layout.b_blocks)]
    return builder.build(inputs=own, outputs=[c])


allgather = program


@cache
def _product(blocks: int) -> Kernel:
    """Kernel ``(a blocks..., b blocks...) -> c``."""

    def fn(*tiles: jax.Array) -> jax.Array:
        a = jnp.concatenate(tiles[:blocks], axis=1)
        b = jnp.concatenate(tiles[blocks:], axis=0)
        return gemm(jnp.zeros((a.shape[0], b.shape[1]), jnp.float32), a, b)

    return Kernel(name="gathered gemm", fn=fn)


def _tiles(
    role: RoleBuilder,
    name: str,
    shape: tuple[int, int],
    per_pe: int,
    position: int,
    layout: Layout,
    dtype: str,
) -> list[Tile]:
    """Tiles of all blocks in order; those that the PE holds from the start have inputs' names."""
    out = []
    for step in range(layout.steps):
        source, block = divmod(step, per_pe)
        own = source == position
        out.append(role.tile(f"{name}{block}" if own else f"{name} block {step}", shape, dtype))
    return out


def _gather(
    role: RoleBuilder, layout: Layout, tiles: tuple[list[Tile], list[Tile]], at: tuple[int, int]
) -> None:
    """Send the PE's own blocks and receive all others."""
    y, x = at
    moving = [length > 1 for length in reversed(layout.mesh)]
    for axis, position in enumerate((x, y)):
        if not moving[axis]:
            continue
        per_pe = (layout.a_blocks, layout.b_blocks)[axis]
        colors = gemm_broadcast.source_colors(layout)[axis]
        for source in range(layout.steps // per_pe):
            step = source * per_pe
            blocks = _together(tiles[axis][step : step + per_pe])
            if source == position:
                role.thread((_SEND_A, _SEND_B)[axis]).send(colors[step], blocks)
            else:
                role.thread((_RECEIVE_A, _RECEIVE_B)[axis]).receive(colors[step], blocks)
    if moving[1]:
        role.thread(_RECEIVE_B).signal(_GATHERED_B)
        role.thread(_RECEIVE_A).wait(_GATHERED_B)


def _together(tiles: list[Tile]) -> Slice:
    """Tiles that lie one behind the other as one slice."""
    return Slice(tiles[0].offset, 1, sum(t.words for t in tiles), tiles[0].dtype)


def cost(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> int:
    """Cycles of `program` with the same arguments; `gemm_broadcast_cost` has the closed form."""
    return cost_parts(hw, m, k, n, dtype=dtype).total
