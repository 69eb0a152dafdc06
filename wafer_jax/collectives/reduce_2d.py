"""Two-dimensional reduce: every row to its first PE, then the first column to the corner.

X-then-Y of Luczynski et al., HPDC'24 (arXiv 2404.15888): any reduce over a pre-order tree along x,
the same along y. A PE of the first column starts with its column when its own row is done.
"""

from collections.abc import Callable
from math import isqrt

import jax

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives import reduce_auto_gen, reduce_binary_tree, reduce_star
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.lines import Lines
from wafer_jax.collectives.preorder_bulk import reduce_preorder
from wafer_jax.collectives.preorder_cost import critical_path_cycles
from wafer_jax.collectives.preorder_tree import (
    Parents,
    chain_tree,
    colors_of,
    emit,
    paint,
    two_phase_tree,
)
from wafer_jax.collectives.tree_bulk import Op
from wafer_jax.errors import WaferError
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES, HardwareSpec
from wafer_jax.program import Program

SCHEMES: dict[str, Callable[[HardwareSpec, int, int], Parents]] = {
    "auto_gen": reduce_auto_gen.tree_of,
    "binary_tree": lambda hw, words, length: reduce_binary_tree.tree_of(length),
    "chain": lambda hw, words, length: chain_tree(length),
    "star": lambda hw, words, length: reduce_star.tree_of(length),
    "two_phase": lambda hw, words, length: two_phase_tree(length, isqrt(length)),
}
"""Tree of a line from the machine, the words and the length; two-phase has groups of sqrt(P)."""


def trees_of(hw: HardwareSpec, words: int, scheme: str = "auto_gen") -> tuple[Parents, Parents]:
    """The trees along x and along y.

    Raises:
      WaferError: An unknown scheme.
    """
    if scheme not in SCHEMES:
        raise WaferError(f"scheme {scheme!r} of a reduce: choose one of {', '.join(SCHEMES)}")
    height, width = hw.mesh
    return SCHEMES[scheme](hw, words, width), SCHEMES[scheme](hw, words, height)


@checked
def program(
    hw: HardwareSpec, words: int, scheme: str = "auto_gen", dtype: str = "float32"
) -> Program:
    """Reduce tile x of the whole mesh, in place at PE (0, 0); other PEs hold parts of the sum.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE; x is [words] float32, or [2 words] of a 16-bit type.
      scheme: Reduce along either axis, one of `SCHEMES`.
      dtype: Element type.

    Raises:
      WaferError: An unknown scheme, too few colours, or tiles over the SRAM budget.
    """
    along_x, along_y = trees_of(hw, words, scheme)
    name = f"reduce of {words} words along rows, then the first column ({scheme})"
    builder = ProgramBuilder(hw, name)
    x = builder.tile("x", (words * (WORD_BYTES // DTYPE_BYTES[dtype]),), dtype)
    rows, column = Lines(builder, "x"), Lines(builder, "y", across=[0])
    first, *others = paint(rows, hw, along_x, 0, name).items()
    for i, (member, positions) in enumerate(others):
        emit(rows.role(f"row member {i}", positions).thread(), member, x)
    members = paint(column, hw, along_y, colors_of(along_x), name)
    for i, (member, positions) in enumerate(members.items()):
        thread = column.role(f"column member {i}", positions).thread()
        emit(thread, first[0], x)
        emit(thread, member, x)
    return builder.build(inputs=("x",), outputs=("x",))


def apply(tiles: jax.Array, along_x: Parents, along_y: Parents, op: Op = "add") -> jax.Array:
    """Bulk level: [..., Y, X] to the tile of PE (0, 0), [..., 1, 1], over the trees of `trees_of`.

    Raises:
      WaferError: No pre-order trees over the mesh, or an unknown op.
    """
    return reduce_preorder(reduce_preorder(tiles, along_x, "x", op), along_y, "y", op)


@checked
def cost(hw: HardwareSpec, words: int, scheme: str = "auto_gen") -> int:
    """Cycles: those of a row, then those of a column; every PE of the column starts together.

    Exact where the trees' own costs are.

    Raises:
      WaferError: An unknown scheme.
    """
    along_x, along_y = trees_of(hw, words, scheme)
    return critical_path_cycles(hw, words, along_x) + critical_path_cycles(hw, words, along_y)
