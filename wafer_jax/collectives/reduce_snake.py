"""Snake reduce: one chain over all PEs, along row 0 eastwards, back along row 1, and so on.

Every word crosses Y X - 1 links and cores, but no core sees more than B words and every link of
the snake is busy: Snake of Luczynski et al., HPDC'24 (arXiv 2404.15888), best for long vectors on
small meshes. Two colours.
"""

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.tree import check_colors, whole
from wafer_jax.collectives.tree_bulk import Op, reduce_tree
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.hardware import DTYPE_BYTES, RAMP, WORD_BYTES, E, HardwareSpec, N, S, W
from wafer_jax.program import Program


def places(mesh: tuple[int, int]) -> np.ndarray:
    """[Y, X] int: position of every PE on the snake; 0 is PE (0, 0)."""
    height, width = mesh
    place = np.arange(height * width).reshape(mesh)
    place[1::2] = place[1::2, ::-1]
    return place


@checked
def program(hw: HardwareSpec, words: int, dtype: str = "float32") -> Program:
    """Reduce tile x of the whole mesh, in place at PE (0, 0); other PEs keep their x.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE; x is [words] float32, or [2 words] of a 16-bit type.
      dtype: Element type.

    Raises:
      WaferError: Fewer than two colours, or tiles over the SRAM budget.
    """
    name = f"snake reduce of {words} words"
    builder = ProgramBuilder(hw, name)
    x = builder.tile("x", (words * (WORD_BYTES // DTYPE_BYTES[dtype]),), dtype)
    place, back, ahead = places(hw.mesh), *_directions(hw.mesh)
    end = place.size - 1
    check_colors(hw, min(end, 2), name)
    for color in (0, 1):
        sends = (place % 2 == color) & (place > 0)
        receives = (place % 2 != color) & (place < end)
        for d in (N, E, S, W):
            builder.route_where(color, sends & (back == d), RAMP, d)
            builder.route_where(color, receives & (ahead == d), d, RAMP)
    if end:
        builder.role("root", where=place == 0).thread().receive(1, x, "add")
        builder.role("end", where=place == end).thread().send(end % 2, x)
    for color in (0, 1):
        between = (place % 2 == color) & (place > 0) & (place < end)
        if between.any():
            role = builder.role(f"member {color}", where=between)
            role.thread().forward(1 - color, color, x)
    return builder.build(inputs=("x",), outputs=("x",))


def _directions(mesh: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """[Y, X] each: where the PE before lies on the snake, and the one behind."""
    back, ahead = np.full(mesh, W), np.full(mesh, E)
    back[1::2], ahead[1::2] = E, W
    back[::2, 0] = back[1::2, -1] = N
    ahead[::2, -1] = ahead[1::2, 0] = S
    return back, ahead


def apply(tiles: jax.Array, op: Op = "add") -> jax.Array:
    """Bulk level: [..., Y, X] to the tile of PE (0, 0), [..., 1, 1].

    Raises:
      WaferError: An unknown op.
    """
    tiles = jnp.asarray(tiles)
    *_, height, width = tiles.shape
    order = np.argsort(places((height, width)), axis=None)
    line = tiles.reshape(*tiles.shape[:-2], 1, -1)[..., order]
    return reduce_tree(line, whole(height * width, 0), "x", op)


@checked
def cost(hw: HardwareSpec, words: int) -> int:
    """Cycles: ``s + (P - 1)(2 R + 1 + h) + B`` with P = Y X, a chain's, exact."""
    stages = hw.num_pes - 1
    return hw.stream_setup_cycles + stages * pass_cycles(hw, 1) + words if stages else 0
