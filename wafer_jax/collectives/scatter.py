"""Scatter: every PE of a line gets its own block of what one PE holds.

The root deals (`turns`): it sends the blocks nearest first, and after each one a control wavelet
that lets the next ones pass. So no core forwards anything, and each side of the root takes one
colour. A block of w words costs w + 1 cycles of the root's ramp, whatever the distance.
"""

import jax
import jax.numpy as jnp

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.line_blocks import (
    STREAM,
    block,
    block_elements,
    check_blocks,
    copy_cycles,
    copy_own,
)
from wafer_jax.collectives.lines import Lines, check_position, line_length
from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.collectives.turns import deal_cycles, paint_deal, send_turns
from wafer_jax.hardware import RAMP, HardwareSpec
from wafer_jax.program import Program


def ways(length: int, root: int) -> list[range]:
    """Positions on each side of the root, nearest first; the side with more of them first."""
    sides = [range(root - 1, -1, -1), range(root + 1, length)]
    return sorted((side for side in sides if side), key=len, reverse=True)


@checked
def program(
    hw: HardwareSpec, words: int, axis: Axis = "x", root: int = 0, dtype: str = "float32"
) -> Program:
    """Give block i of the root's tile x [P, n] to PE i of the line, as its tile y [n].

    Args:
      hw: Machine and mesh.
      words: 32-bit words per block; n is ``words`` float32, or twice as many 16-bit elements.
      axis: Lines are rows ("x") or columns ("y").
      root: Position of the source on the line.
      dtype: Element type.

    Raises:
      WaferError: A root off the line, an unknown dtype, or tiles over the SRAM budget.
    """
    builder = ProgramBuilder(hw, f"scatter of {words} words along {axis} from {root}")
    lines = Lines(builder, axis)
    check_position(root, lines.length, "root")
    elements = block_elements(words, dtype)
    y = builder.tile("y", (elements,), dtype)
    source = lines.role("root", [root])
    x = source.tile("x", (lines.length, elements), dtype)
    copy_own(source, block(x, root), y)
    for color, way in enumerate(ways(lines.length, root)):
        head = lines.back if way[0] > root else lines.forward
        paint_deal(lines, color, way, head)
        lines.route(color, [root], RAMP, lines.forward if way[0] > root else lines.back)
        send_turns(source.thread(STREAM), color, [block(x, i) for i in way])
        lines.role(f"side {color}", way).thread().receive(color, y)
    return builder.build(inputs=("x",), outputs=("y",))


switched = program
"""The name of `program` in ``wj.scatter.switched(...)``."""


def apply(tiles: jax.Array, axis: Axis = "x", root: int = 0) -> jax.Array:
    """Bulk level: [P, n, Y, X] at the roots to [n, Y, X].

    Raises:
      WaferError: A root off the line, another number of blocks, or an unknown axis.
    """
    where = axis_index(axis)
    length = tiles.shape[where]
    check_position(root, length, "root")
    check_blocks(tiles, length)
    held = jnp.take(tiles, root, axis=where)  # [P, n, Y] or [P, n, X]
    return jnp.moveaxis(held, 0, where % 3)


@checked
def cost(hw: HardwareSpec, words: int, axis: Axis = "x", root: int = 0) -> int:
    """Cycles from an end: ``max(s, 1) + (P - 1) w + (P - 2) (2 s + 1) + 2 T_R + 1 + h (P - 1)``.

    The root issues block by block, a control wavelet between two of them, with the set-up s for
    each; the last block then takes the way to the far end. A root inside the line deals to one
    side after the other. Or, if it takes longer, the copy of its own block. Exact.
    """
    length = line_length(hw, axis)
    check_position(root, length, "root")
    issued, done = max(1 - hw.stream_setup_cycles, 0), copy_cycles(hw, words)
    for way in ways(length, root):
        issued += deal_cycles(hw, words, len(way))
        done = max(done, issued + pass_cycles(hw, len(way)))
    return done
