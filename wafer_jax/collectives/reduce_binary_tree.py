"""Binary-tree reduce: in round i the PEs that still hold a sum combine in pairs 2^i apart.

Depth log2 P for B log2 P words through the root's core: Tree of Luczynski et al., HPDC'24
(arXiv 2404.15888). On a line that is no power of two the pairs at its end are missing. A PE's last
partner is added on the way to its own, so that the last stages are pipelined. A line of P PEs
takes about log2(P) / 2 + 2 colours.
"""

import jax

from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.lines import line_length
from wafer_jax.collectives.preorder_bulk import reduce_preorder
from wafer_jax.collectives.preorder_cost import critical_path_cycles
from wafer_jax.collectives.preorder_tree import Parents, tree_program
from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.collectives.tree_bulk import Op
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program


def tree_of(length: int) -> Parents:
    """The parent of a position is the position less its lowest bit."""
    return tuple(i - (i & -i) if i else -1 for i in range(length))


@checked
def program(hw: HardwareSpec, words: int, axis: Axis = "x", dtype: str = "float32") -> Program:
    """Binary-tree reduce of tile x along every line, in place at position 0.

    Other PEs hold their sum with all their partners but the last afterwards.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE; x is [words] float32, or [2 words] of a 16-bit type.
      axis: Lines are rows ("x") or columns ("y").
      dtype: Element type.

    Raises:
      WaferError: Too few colours, or tiles over the SRAM budget.
    """
    parents = tree_of(line_length(hw, axis))
    return tree_program(hw, words, axis, parents, dtype, "binary-tree reduce")


def apply(tiles: jax.Array, axis: Axis = "x", op: Op = "add") -> jax.Array:
    """Bulk level: [..., Y, X] to the tiles at position 0, [..., Y, 1] (axis "x") or [..., 1, X].

    Raises:
      WaferError: An unknown axis or op.
    """
    return reduce_preorder(tiles, tree_of(tiles.shape[axis_index(axis)]), axis, op)


@checked
def cost(hw: HardwareSpec, words: int, axis: Axis = "x") -> int:
    """Cycles of the critical path, with each link free when a word comes (`preorder_cost`).

    With P = 2^k and long vectors it is ``k B`` and the stages' latencies, like Luczynski et al.'s
    ``max(k B, ..) + (2 T_R + 1) k``. Exact up to 8 PEs. On longer lines words that wait for their
    turn share links with those of the subtree that they cross, which costs or saves up to 4 cycles
    (measured up to 64 PEs).
    """
    return critical_path_cycles(hw, words, tree_of(line_length(hw, axis)))
