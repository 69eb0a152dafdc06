"""Pipeline allreduce: the sum runs hop by hop through all cores to one end of the line, and back.

The all-reduce of TPU pods and of the wafer vendor's own collectives, WaferLLM's baseline for GEMV
(arXiv 2502.04563, section 6.1): every core on the way adds its words to those that pass, so there
are N routing stages over N hops; the end then multicasts the sum over N hops back. The critical
path is ``2 alpha N + beta N``, with three colours whatever the length.

It is a chain reduce to position 0, then a broadcast. The end sends nothing back before it has the
whole sum: words that turned there at once would take its issue slot twice, too.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from wafer_jax.builder import ProgramBuilder, ThreadBuilder
from wafer_jax.collectives import allreduce_ktree
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.line_blocks import block_elements
from wafer_jax.collectives.lines import line_length
from wafer_jax.collectives.parts import Part, add_roles, nothing
from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.collectives.tree import whole
from wafer_jax.collectives.tree_bulk import Op, reduce_tree
from wafer_jax.events import Tile
from wafer_jax.hardware import HardwareSpec
from wafer_jax.plmr import plmr
from wafer_jax.program import Program


@checked
def program(hw: HardwareSpec, words: int, axis: Axis = "x", dtype: str = "float32") -> Program:
    """Sum tile x along every line, in place, on every PE.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE; x is [words] float32, or [2 words] of a 16-bit type.
      axis: Lines are rows ("x") or columns ("y").
      dtype: Element type.

    Raises:
      WaferError: An unknown dtype, too few colours, or tiles over the SRAM budget.
    """
    builder = ProgramBuilder(hw, f"pipeline allreduce of {words} words along {axis}")
    x = builder.tile("x", (block_elements(words, dtype),), dtype)
    add_to(builder, x, axis)
    return builder.build(inputs=("x",), outputs=("x",))


def add_to(
    builder: ProgramBuilder,
    tile: Tile,
    axis: Axis,
    before: Callable[[ThreadBuilder], object] = nothing,
) -> None:
    """Add the allreduce of ``tile`` to a program: routes, and one role per position on a line.

    Args:
      builder: The program, with no other roles.
      tile: What is summed, in place.
      axis: Lines are rows ("x") or columns ("y").
      before: Appends what every PE does first.

    Raises:
      WaferError: Too few colours.
    """
    add_roles(builder, axis, parts_of(builder, tile, axis)[0], before)


def parts_of(
    builder: ProgramBuilder, tile: Tile, axis: Axis, first_color: int = 0
) -> tuple[list[Part], int]:
    """Paint the routes of `add_to`; what the positions do, and the next free colour."""
    phases = whole(line_length(builder.hw, axis), 0)
    return allreduce_ktree.parts_of(builder, tile, phases, axis, True, first_color)


def apply(tiles: jax.Array, axis: Axis = "x", op: Op = "add") -> jax.Array:
    """Bulk level: [..., Y, X] to the same shape, the fabric's additions in the fabric's order.

    Raises:
      WaferError: An unknown axis or op.
    """
    total = reduce_tree(tiles, whole(tiles.shape[axis_index(axis)], 0), axis, op)
    return jnp.broadcast_to(total, tiles.shape)


@checked
def cost(hw: HardwareSpec, words: int, axis: Axis = "x") -> int:
    """Cycles: ``2 alpha (P - 1) + beta P + 2 (s + B)`` on a line of P PEs, exact.

    alpha is a hop, beta = 2 T_R + 1 a stage through a core (P - 1 of the sum, one of the
    broadcast), s the stream set-up, B the words, which each way takes once. WaferLLM's critical
    path ``2 alpha N + beta N`` (section 6.1) with its transfer times; Chain, then Broadcast, of
    Luczynski et al., HPDC'24.
    """
    length, device = line_length(hw, axis), plmr(hw)
    if length == 1:
        return 0
    path = 2 * device.alpha_cycles * (length - 1) + device.beta_cycles * length
    return path + 2 * (hw.stream_setup_cycles + words)
