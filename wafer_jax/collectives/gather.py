"""Gather: one PE of a line collects the blocks of all.

The PEs on each side of the root take turns (`turns`), nearest first, so that a side needs one
colour and one input queue, and no core forwards anything. The root takes one side after the other.
"""

import jax
import jax.numpy as jnp

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.line_blocks import (
    STREAM,
    block,
    block_elements,
    copy_cycles,
    copy_own,
)
from wafer_jax.collectives.lines import Lines, check_position, line_length
from wafer_jax.collectives.scatter import ways
from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.collectives.turns import collect_cycles, paint_collect
from wafer_jax.hardware import RAMP, HardwareSpec
from wafer_jax.program import Program


@checked
def program(
    hw: HardwareSpec, words: int, axis: Axis = "x", root: int = 0, dtype: str = "float32"
) -> Program:
    """Collect tile x [n] of PE i of a line as block i of the root's tile y [P, n].

    Args:
      hw: Machine and mesh.
      words: 32-bit words per block; n is ``words`` float32, or twice as many 16-bit elements.
      axis: Lines are rows ("x") or columns ("y").
      root: Position of the collecting PE on the line.
      dtype: Element type.

    Raises:
      WaferError: A root off the line, an unknown dtype, or tiles over the SRAM budget.
    """
    builder = ProgramBuilder(hw, f"gather of {words} words along {axis} to {root}")
    lines = Lines(builder, axis)
    check_position(root, lines.length, "root")
    elements = block_elements(words, dtype)
    x = builder.tile("x", (elements,), dtype)
    sink = lines.role("root", [root])
    y = sink.tile("y", (lines.length, elements), dtype)
    copy_own(sink, x, block(y, root))
    for color, way in enumerate(ways(lines.length, root)):
        head = lines.back if way[0] > root else lines.forward
        paint_collect(lines, color, way, head)
        lines.route(color, [root], lines.forward if way[0] > root else lines.back, RAMP)
        for i in way:
            sink.thread(STREAM).receive(color, block(y, i))
        if way[:-1]:
            lines.role(f"side {color}", way[:-1]).thread().send(color, x).control(color, "advance")
        lines.role(f"end {color}", way[-1:]).thread().send(color, x)
    return builder.build(inputs=("x",), outputs=("y",))


switched = program
"""The name of `program` in ``wj.gather.switched(...)``."""


def apply(tiles: jax.Array, axis: Axis = "x", root: int = 0) -> jax.Array:
    """Bulk level: [n, Y, X] to the roots' blocks, [P, n, Y, 1] (axis "x") or [P, n, 1, X].

    Raises:
      WaferError: A root off the line, or an unknown axis.
    """
    where = axis_index(axis)
    check_position(root, tiles.shape[where], "root")
    return jnp.expand_dims(jnp.moveaxis(tiles, where, 0), where)


@checked
def cost(hw: HardwareSpec, words: int, axis: Axis = "x", root: int = 0) -> int:
    """Cycles to an end: ``s + 2 T_R + 1 + h + (P - 1) w``, and the turns, see `collect_cycles`.

    A turn is a control wavelet and a hop, or the root's set-up s if that is longer. Exact for a
    root at an end. A root inside the line takes the second side after the first. The first blocks
    of the second side wait in the input queue by then: their turns are over, up to
    ``2 T_R + 2 + 2 h + s`` cycles less than this, and they have taken the RAMP from the first
    side's words, up to as many cycles more as the queue holds, what is on the RAMP included.
    """
    length = line_length(hw, axis)
    check_position(root, length, "root")
    done = 0
    for way in ways(length, root):
        waiting = pass_cycles(hw, 1) if done else 0
        done += collect_cycles(hw, words, len(way), hw.stream_setup_cycles) - waiting
    return max(done, copy_cycles(hw, words))
