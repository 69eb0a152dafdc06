"""Broadcast: one PE's words flood its line by multicast, at one word per cycle.

Every router passes a word on and delivers it to its PE in the same cycle, so one colour is enough
and no core takes part in the forwarding (Luczynski et al., HPDC'24, Broadcast).
"""

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.lines import Lines, check_position, line_length
from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.hardware import DTYPE_BYTES, RAMP, WORD_BYTES, HardwareSpec
from wafer_jax.program import Program


def paint(lines: Lines, color: int, root: int) -> None:
    """Route a colour from ``root`` to every other PE of its line."""
    last = lines.length - 1
    for ahead, behind, side in (
        (lines.back, lines.forward, range(root)),
        (lines.forward, lines.back, range(last, root, -1)),
    ):
        if side:
            lines.route(color, [root], RAMP, ahead)
            lines.route(color, side[:1], behind, RAMP)
            lines.route(color, side[1:], behind, (ahead, RAMP))


@checked
def program(
    hw: HardwareSpec, words: int, axis: Axis = "x", root: int = 0, dtype: str = "float32"
) -> Program:
    """Copy the root's tile x to the tile x of every PE of its line.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE; x is [words] float32, or [2 words] of a 16-bit type.
      axis: Lines are rows ("x") or columns ("y").
      root: Position of the source on the line.
      dtype: Element type.

    Raises:
      WaferError: A root off the line, or tiles over the SRAM budget.
    """
    builder = ProgramBuilder(hw, f"broadcast of {words} words along {axis} from {root}")
    lines = Lines(builder, axis)
    check_position(root, lines.length, "root")
    x = builder.tile("x", (words * (WORD_BYTES // DTYPE_BYTES[dtype]),), dtype)
    paint(lines, 0, root)
    if lines.length > 1:
        lines.role("source", [root]).thread().send(0, x)
        others = [i for i in range(lines.length) if i != root]
        lines.role("sink", others).thread().receive(0, x)
    return builder.build(inputs=("x",), outputs=("x",))


flood = program
"""The name of `program` in ``wj.broadcast.flood(...)``."""


def apply(tiles: jax.Array, axis: Axis = "x", root: int = 0) -> jax.Array:
    """Bulk level: [..., Y, X] to the same shape, every PE with its line's root's tile.

    Raises:
      WaferError: A root off the line, or an unknown axis.
    """
    where = tiles.ndim + axis_index(axis)
    check_position(root, tiles.shape[where], "root")
    source = lax.slice_in_dim(tiles, root, root + 1, axis=where)
    return jnp.broadcast_to(source, tiles.shape)


@checked
def cost(hw: HardwareSpec, words: int, axis: Axis = "x", root: int = 0) -> int:
    """Cycles: ``s + 2 R + 1 + h d + B`` with d the distance from the root to the far end.

    From an end, with h = 1, it is Luczynski et al.'s ``B + P + 2 T_R`` plus the set-up s.
    """
    length = line_length(hw, axis)
    check_position(root, length, "root")
    return hw.stream_setup_cycles + flood_cycles(hw, words, length, root) if length > 1 else 0


def flood_cycles(hw: HardwareSpec, words: int, length: int, root: int) -> int:
    """Cycles from the issue of the first word until the farthest PE has the last; 0 if alone."""
    distance = max(root, length - 1 - root)
    return pass_cycles(hw, distance) + words if distance else 0
