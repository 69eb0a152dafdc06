"""SUMMA: C = A B by outer products of blocks that are broadcast along rows and columns.

van de Geijn and Watts (1997), the vendor's default (WaferLLM, OSDI'25, section 5.1; its own layer
of 2-D collectives and the public port that uses it broadcast block by block, double-buffered). In
step s the PEs of one column broadcast the s-th block of A along their rows, those of one row the
s-th block of B along their columns, and every PE adds the product of what it received to its tile
of C. The broadcast of the next step overlaps with the product.

`gemm_broadcast` says which block is where, and which colours there are: every PE of a line is a
source in its turn, when it has received the block before its own, so there are X + Y of them.
Ordinary machines run out of input queues first, one for every source that a PE listens to. Buffers
for two blocks of A and two of B come on top of a PE's own tiles.
"""

from wafer_jax.builder import ProgramBuilder, RoleBuilder
from wafer_jax.collectives import gemm_broadcast
from wafer_jax.collectives.gemm import clear
from wafer_jax.collectives.gemm_broadcast import apply, load
from wafer_jax.collectives.gemm_broadcast_cost import summa_cost_parts as cost_parts
from wafer_jax.collectives.gemm_layout import Layout, layout_of, tile_operands
from wafer_jax.collectives.kernels import GEMM, clear_cycles, gemm_cycles
from wafer_jax.events import Tile
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program

__all__ = ["apply", "cost", "cost_parts", "load", "program", "tile_operands"]

_COMPUTE, _A, _B = range(3)
_READY_A, _READY_B, _FREE_A, _FREE_B = range(4)
_BUFFERS = 2


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
      WaferError: Blocks over the SRAM budget; too few colours, queues or threads.
    """
    layout = layout_of(hw.mesh, m, k, n)
    builder = ProgramBuilder(hw, f"SUMMA {m}x{k}x{n}")
    gemm_broadcast.paint(builder, builder.name)
    a, b = gemm_broadcast.block_tiles(builder, layout, dtype)
    height, width = layout.mesh
    spare_a = _buffers(builder, "a_next", a[0], width)
    spare_b = _buffers(builder, "b_next", b[0], height)
    c = builder.tile("c", (layout.tile_m, layout.tile_n))
    for y in range(height):
        for x in range(width):
            role = builder.role(f"y{y} x{x}", at=(y, x))
            _streams(role, layout, (a, b), (spare_a, spare_b), (y, x))
            _products(hw, role, layout, (a, b), (spare_a, spare_b), c, (y, x), dtype)
    return builder.build(inputs=[*a, *b], outputs=[c])


summa = program


def _buffers(builder: ProgramBuilder, name: str, block: Tile, length: int) -> list[Tile]:
    count = _BUFFERS if length > 1 else 0
    return [builder.tile(f"{name}{i}", block.shape, block.dtype) for i in range(count)]


def _streams(
    role: RoleBuilder,
    layout: Layout,
    own: tuple[list[Tile], list[Tile]],
    spare: tuple[list[Tile], list[Tile]],
    at: tuple[int, int],
) -> None:
    """Receive blocks in order, into two buffers in turn, and broadcast the own ones in between."""
    y, x = at
    for axis, position in enumerate((x, y)):
        if not spare[axis]:
            continue
        thread = role.thread((_A, _B)[axis])
        blocks, received = len(own[axis]), 0
        for step, color in enumerate(gemm_broadcast.source_colors(layout)[axis]):
            source, block = divmod(step, blocks)
            if source == position:
                thread.send(color, own[axis][block])
                continue
            if received >= _BUFFERS:
                thread.wait((_FREE_A, _FREE_B)[axis])
            thread.receive(color, spare[axis][received % _BUFFERS])
            thread.signal((_READY_A, _READY_B)[axis])
            received += 1


def _products(
    hw: HardwareSpec,
    role: RoleBuilder,
    layout: Layout,
    own: tuple[list[Tile], list[Tile]],
    spare: tuple[list[Tile], list[Tile]],
    c: Tile,
    at: tuple[int, int],
    dtype: str,
) -> None:
    """A product per step, with the own blocks or those in the buffers."""
    y, x = at
    compute = role.thread(_COMPUTE)
    compute.compute(clear(c.shape), (own[0][0],), (c,), clear_cycles(hw, c.size))
    cycles = gemm_cycles(hw, layout.tile_m, layout.block_k, layout.tile_n, dtype)
    taken = [0, 0]
    for step in range(layout.steps):
        operands, done_with = [], []
        for axis, position in enumerate((x, y)):
            blocks = len(own[axis])
            source, block = divmod(step, blocks)
            if source == position or not spare[axis]:
                operands.append(own[axis][block])
                continue
            compute.wait((_READY_A, _READY_B)[axis])
            operands.append(spare[axis][taken[axis] % _BUFFERS])
            if taken[axis] + _BUFFERS < layout.steps - blocks:
                done_with.append((_FREE_A, _FREE_B)[axis])
            taken[axis] += 1
        compute.compute(GEMM, (c, *operands), (c,), cycles)
        for semaphore in done_with:
            compute.signal(semaphore)


def cost(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> int:
    """Cycles of `program` with the same arguments; `gemm_broadcast_cost` has the closed form."""
    return cost_parts(hw, m, k, n, dtype=dtype).total
