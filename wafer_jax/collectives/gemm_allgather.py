"""All-gather product: C = A B after every PE has gathered its row of A and its column of B.

The way tensor parallelism multiplies on a few devices (WaferLLM, OSDI'25, section 5.1): all PEs
broadcast their tiles along their lines at once, every PE keeps all of them, [tile_m, K] and
[K, tile_n], O(1/N) of the matrices where SUMMA, Cannon and MeshGEMM hold O(1/N^2), and then makes
one product. Nothing overlaps with it.

`gemm_broadcast` says which block is where, and which colours there are: X + Y, one per source. The
core launches all streams one after another, a tile's words for each, and joins them in one task.
"""

from functools import cache

import jax
import jax.numpy as jnp

from wafer_jax.builder import ProgramBuilder, RoleBuilder
from wafer_jax.collectives import gemm_broadcast
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.gemm_broadcast import apply, load
from wafer_jax.collectives.gemm_broadcast_cost import allgather_cost_parts as cost_parts
from wafer_jax.collectives.gemm_broadcast_cost import gathered_product_cycles as product_cycles
from wafer_jax.collectives.gemm_layout import Layout, layout_of, tile_operands
from wafer_jax.collectives.kernels import gemm
from wafer_jax.collectives.launches import join, launch
from wafer_jax.events import Kernel, Slice, Tile
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program

__all__ = ["apply", "cost", "cost_parts", "load", "program", "tile_operands"]

_CONTROL = 0
_SEND, _RECEIVE = (1, 2), (3, 4)
"""Threads of A and B; a stream begins on the semaphore of its number, and tells on `_DONE`."""
_DONE = 0


@checked
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
            _launches(hw, role, layout, a[x * layout.a_blocks])
            _gather(role, layout, (a, b), (y, x))
            role.thread(_CONTROL).compute(kernel, (*a, *b), (c,), cycles)
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


def _launches(hw: HardwareSpec, role: RoleBuilder, layout: Layout, any_tile: Tile) -> None:
    """Both sends, then a receive of A and one of B in turn."""
    control = role.thread(_CONTROL)
    sources = [n - 1 for n in reversed(layout.mesh)]
    moving = [axis for axis, others in enumerate(sources) if others]
    for axis in moving:
        launch(hw, control, _SEND[axis], any_tile)
    for i in range(max(sources)):
        for axis in moving:
            if i < sources[axis]:
                launch(hw, control, _RECEIVE[axis], any_tile)
    join(hw, control, [_DONE] * 2 * len(moving), any_tile)


def _gather(
    role: RoleBuilder, layout: Layout, tiles: tuple[list[Tile], list[Tile]], at: tuple[int, int]
) -> None:
    """Send the PE's own blocks and receive all others."""
    y, x = at
    for axis, (position, length) in enumerate(((x, layout.mesh[1]), (y, layout.mesh[0]))):
        if length == 1:
            continue
        send, receive = role.thread(_SEND[axis]), role.thread(_RECEIVE[axis])
        per_pe = layout.steps // length
        colors = gemm_broadcast.source_colors(layout)[axis]
        for source in range(length):
            step = source * per_pe
            blocks = _together(tiles[axis][step : step + per_pe])
            if source == position:
                send.wait(_SEND[axis]).send(colors[step], blocks, wide=True)
            else:
                receive.wait(_RECEIVE[axis]).receive(colors[step], blocks, wide=True)
        send.signal(_DONE)
        receive.signal(_DONE)


def _together(tiles: list[Tile]) -> Slice:
    """Tiles that lie one behind the other as one slice."""
    return Slice(tiles[0].offset, 1, sum(t.words for t in tiles), tiles[0].dtype)


@checked
def cost(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> int:
    """Cycles of `program` with the same arguments; `gemm_broadcast_cost` has the closed form."""
    return cost_parts(hw, m, k, n, dtype=dtype).total
