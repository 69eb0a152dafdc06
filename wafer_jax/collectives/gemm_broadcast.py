"""What SUMMA and the all-gather product share: every PE broadcasts its blocks along its lines.

The contracted axis is cut into L = lcm(Y, X) blocks as in `gemm_layout`, in the order in which they
lie: block s of A's columns at PE column s X / L, block s of B's rows at PE row s Y / L. Every PE
of a line is a source, and a source needs a colour of its own: X + Y colours. A router holds that
many routes, and a PE takes X + Y - 2 colours from its RAMP, each with an input queue.

PEs take blocks in the order of their numbers; words that come early wait in the routers (a
multicast word leaves to all targets or to none).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives import broadcast
from wafer_jax.collectives.gemm_bulk import Values, bulk_product
from wafer_jax.collectives.gemm_layout import (
    Layout,
    columns_of_b,
    layout_of_tiles,
    rows_of_a,
)
from wafer_jax.collectives.kernels import gemm
from wafer_jax.collectives.lines import Lines
from wafer_jax.errors import WaferError
from wafer_jax.events import Tile


def paint(builder: ProgramBuilder, name: str) -> None:
    """Colour x for PE x of every row, colour X + y for PE y of every column.

    Raises:
      WaferError: More colours, or more input queues per PE, than the machine has.
    """
    hw, sources = builder.hw, [n for n in builder.hw.mesh if n > 1]
    colors, queues = sum(sources), sum(n - 1 for n in sources)
    if colors > hw.colors or queues > len(hw.input_queue_depths):
        raise WaferError(
            f"{name} needs {colors} colours and {queues} input queues on every PE of a "
            f"{hw.mesh[0]}x{hw.mesh[1]} mesh, {hw.name} has {hw.colors} and "
            f"{len(hw.input_queue_depths)}: use a smaller mesh, or MeshGEMM"
        )
    first = 0
    for axis in ("x", "y"):
        lines = Lines(builder, axis)
        if lines.length > 1:
            for source in range(lines.length):
                broadcast.paint(lines, first + source, source)
            first += lines.length


def source_colors(layout: Layout) -> tuple[list[int], list[int]]:
    """Colour on which each of A's blocks, and each of B's, is broadcast."""
    width, blocks = layout.mesh[1], range(layout.steps)
    first = width if width > 1 else 0
    return [s // layout.a_blocks for s in blocks], [first + s // layout.b_blocks for s in blocks]


def block_tiles(builder: ProgramBuilder, layout: Layout, dtype: str) -> tuple[list[Tile], ...]:
    """The blocks that a PE holds: a0, a1, ... [tile_m, block_k] and b0, ... [block_k, tile_n]."""
    a_shape, b_shape = (layout.tile_m, layout.block_k), (layout.block_k, layout.tile_n)
    return (
        [builder.tile(f"a{j}", a_shape, dtype) for j in range(layout.a_blocks)],
        [builder.tile(f"b{j}", b_shape, dtype) for j in range(layout.b_blocks)],
    )


def load(a: np.ndarray | jax.Array, b: np.ndarray | jax.Array) -> dict[str, np.ndarray]:
    """Tiles for the fabric.

    Args:
      a: [m, k, Y, X] tiles of A, as ``tile_operands`` cuts them.
      b: [k', n, Y, X] tiles of B.

    Returns:
      a0, a1, ... [m, block_k, Y, X] and b0, b1, ... [block_k, n, Y, X].

    Raises:
      WaferError: Tiles that do not fit each other.
    """
    a, b = np.asarray(a), np.asarray(b)
    layout = layout_of_tiles(a, b)  # pyright: ignore[reportArgumentType]
    a_blocks = np.split(a, layout.a_blocks, axis=1)
    b_blocks = np.split(b, layout.b_blocks, axis=0)
    return {f"a{j}": tile for j, tile in enumerate(a_blocks)} | {
        f"b{j}": tile for j, tile in enumerate(b_blocks)
    }


def apply(a: jax.Array, b: jax.Array, *, values: Values = "rounds") -> jax.Array:
    """Bulk level of C = A B.

    Args:
      a: [..., m, k, Y, X] tiles of A, as ``tile_operands`` cuts them.
      b: [..., k', n, Y, X] tiles of B; the same leading axes.
      values: "rounds" makes the fabric's products and additions in the fabric's order, bit for
        bit. "dense" is one dense product: much faster, another order of additions.

    Returns:
      [..., m, n, Y, X] float32.

    Raises:
      WaferError: Tiles that do not fit each other; unknown ``values``.
    """
    return bulk_product(a, b, values, _in_order)


def _in_order(a: jax.Array, b: jax.Array, layout: Layout) -> jax.Array:
    """[m, k, Y, X] and [k', n, Y, X] to [m, n, Y, X] float32: block after block, from the first.

    Sums are those of one product over all of the contracted axis, since each is carried on from
    block to block.
    """
    rows, cols = rows_of_a(a, layout), columns_of_b(b, layout)
    (height, width), k = layout.mesh, layout.block_k

    def step(s: jax.Array, c: jax.Array) -> jax.Array:
        a_block = lax.dynamic_index_in_dim(rows, s, 3)
        b_block = lax.dynamic_index_in_dim(cols, s, 2)
        a_block = jnp.broadcast_to(a_block, (layout.tile_m, k, height, width))
        return gemm(c, a_block, jnp.broadcast_to(b_block, (k, layout.tile_n, height, width)))

    c = jnp.zeros((layout.tile_m, layout.tile_n, height, width), jnp.float32)
    return lax.fori_loop(0, layout.steps, step, c)
