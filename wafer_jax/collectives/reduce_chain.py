"""Chain reduce: every line's words are summed hop by hop into its root.

The far end sends, every PE on the way adds its own words to those that pass, so a stage costs a
ramp down, one issue and a ramp up, and the words follow each other at one per cycle. With the root
at an end this is the Chain of Luczynski et al., HPDC'24 (arXiv 2404.15888): two colours, depth
P - 1. With the root inside the line two half-chains meet at it.
"""

import jax

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.lines import Lines, check_position, line_length
from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.collectives.tree import emit, paint, whole
from wafer_jax.collectives.tree_bulk import Op, reduce_tree
from wafer_jax.collectives.tree_cost import pass_cycles, tree_cycles
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES, HardwareSpec
from wafer_jax.program import Program


@checked
def program(
    hw: HardwareSpec, words: int, axis: Axis = "x", root: int = 0, dtype: str = "float32"
) -> Program:
    """Chain reduce of tile x along every line, in place at the root; other PEs keep their x.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE; x is [words] float32, or [2 words] of a 16-bit type.
      axis: Lines are rows ("x") or columns ("y").
      root: Position of the sum on the line.
      dtype: Element type.

    Raises:
      WaferError: A root off the line, or tiles over the SRAM budget.
    """
    name = f"chain reduce of {words} words along {axis} to {root}"
    builder = ProgramBuilder(hw, name)
    lines = Lines(builder, axis)
    check_position(root, lines.length, "root")
    x = builder.tile("x", (words * (WORD_BYTES // DTYPE_BYTES[dtype]),), dtype)
    tree = paint(lines, hw, whole(lines.length, root), 0, name)
    for i, (steps, positions) in enumerate(tree.positions.items()):
        emit(lines.role(f"member {i}", positions).thread(), steps, x)
    return builder.build(inputs=("x",), outputs=("x",))


def apply(tiles: jax.Array, axis: Axis = "x", root: int = 0, op: Op = "add") -> jax.Array:
    """Bulk level: [..., Y, X] to the root's tiles [..., Y, 1] (axis "x") or [..., 1, X].

    Raises:
      WaferError: A root off the line, an unknown axis or op.
    """
    length = tiles.shape[axis_index(axis)]
    check_position(root, length, "root")
    return reduce_tree(tiles, whole(length, root), axis, op)


@checked
def cost(hw: HardwareSpec, words: int, axis: Axis = "x", root: int = 0) -> int:
    """Cycles: ``s + (P - 1)(2 R + 1 + h) + B`` for a root at an end of a line of P PEs.

    s is the stream set-up, R the ramp's and h the hop's latency, B the words; with h = 1 it is
    Chain of Luczynski et al., section 3, plus s. A root inside the line receives its two sides one
    after the other, ``tree_cost`` has the cycles; the second side's words fill its input queue
    meanwhile and delay the first side at the RAMP by as many cycles, which is counted.
    """
    length = line_length(hw, axis)
    check_position(root, length, "root")
    if length == 1:
        return 0
    if root in (0, length - 1):
        return hw.stream_setup_cycles + (length - 1) * pass_cycles(hw, 1) + words
    return tree_cycles(hw, whole(length, root), length, words)
