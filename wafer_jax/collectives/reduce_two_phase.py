"""Two-phase reduce: chains inside groups, then a chain over the groups' first PEs.

Less depth than one chain (about 2 sqrt(P) stages instead of P) for twice the words at a group's
root: Two-Phase of Luczynski et al., HPDC'24 (arXiv 2404.15888). Words of the second phase pass the
routers inside a group without touching its cores. Four colours.
"""

import jax

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.lines import Lines, line_length
from wafer_jax.collectives.tiles import Axis, axis_index, tile_size
from wafer_jax.collectives.tree import Group, Phases, emit, paint
from wafer_jax.collectives.tree_bulk import Op, reduce_tree
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.errors import WaferError
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES, HardwareSpec
from wafer_jax.program import Program


def phases_of(length: int, group: int) -> Phases:
    """Groups of ``group`` PEs, each with its first PE as root; the first group may be smaller.

    A smaller last group would start the second phase early and disturb its neighbour's first.

    Raises:
      WaferError: A group size below 1.
    """
    if group < 1:
        raise WaferError(f"groups of {group} PEs: choose at least 1")
    count = tile_size(length, group)
    sizes = [length - (count - 1) * group] + [group] * (count - 1)
    return tuple(Group(n, 0) for n in sizes), (Group(count, 0),)


@checked
def program(
    hw: HardwareSpec, words: int, group: int, axis: Axis = "x", dtype: str = "float32"
) -> Program:
    """Two-phase reduce of tile x along every line, in place at position 0.

    Roots of groups hold their group's sum afterwards, other PEs keep their x.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE; x is [words] float32, or [2 words] of a 16-bit type.
      group: PEs per group.
      axis: Lines are rows ("x") or columns ("y").
      dtype: Element type.

    Raises:
      WaferError: A group size below 1, or tiles over the SRAM budget.
    """
    name = f"two-phase reduce of {words} words along {axis} in groups of {group}"
    builder = ProgramBuilder(hw, name)
    lines = Lines(builder, axis)
    x = builder.tile("x", (words * (WORD_BYTES // DTYPE_BYTES[dtype]),), dtype)
    tree = paint(lines, hw, phases_of(lines.length, group), 0, name)
    for i, (steps, positions) in enumerate(tree.positions.items()):
        emit(lines.role(f"member {i}", positions).thread(), steps, x)
    return builder.build(inputs=("x",), outputs=("x",))


def apply(tiles: jax.Array, group: int, axis: Axis = "x", op: Op = "add") -> jax.Array:
    """Bulk level: [..., Y, X] to the tiles at position 0, [..., Y, 1] (axis "x") or [..., 1, X].

    Raises:
      WaferError: A group size below 1, an unknown axis or op.
    """
    return reduce_tree(tiles, phases_of(tiles.shape[axis_index(axis)], group), axis, op)


@checked
def cost(hw: HardwareSpec, words: int, group: int, axis: Axis = "x") -> int:
    """Cycles of G groups of S PEs, the first of S0, with c = 2 R + 1 + h per stage.

    ``[s + (S - 1) c + B] + s + (G - 2)(2 R + 1 + h S) + (2 R + 1 + h S0) + B``: a group's chain,
    then the chain of roots. The bracket vanishes for S = 1; one group alone is a chain. With
    h = 1, s = 0 and S0 = S it is ``2 B + (S - 1) c + (G - 1)(S + 2 R + 1)``, Luczynski et al.'s
    terms with the phases one after the other.
    """
    length = line_length(hw, axis)
    sizes = [g.size for g in phases_of(length, group)[0]]
    if length == 1:
        return 0
    chain = hw.stream_setup_cycles + (sizes[-1] - 1) * pass_cycles(hw, 1) + words
    if len(sizes) == 1:
        return chain
    hops = (len(sizes) - 2) * pass_cycles(hw, group) + pass_cycles(hw, sizes[0])
    return (chain if group > 1 else 0) + hw.stream_setup_cycles + hops + words
