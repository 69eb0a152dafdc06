"""Allreduce over a whole mesh: along every row, then along every column.

Any two allreduces of lines can follow each other, with colours and queues of their own; the second
one starts at each PE as soon as the first one is done there. All rows do the same, so the PEs of a
column are done at the same time and nobody waits (Luczynski et al., HPDC'24, X-Y).
"""

from collections.abc import Callable
from itertools import product
from typing import Literal, NamedTuple

import jax

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives import allreduce_ktree, allreduce_pipeline, allreduce_ring
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.line_blocks import block_elements
from wafer_jax.collectives.lines import line_length
from wafer_jax.collectives.parts import Part
from wafer_jax.collectives.tiles import Axis
from wafer_jax.collectives.tree_bulk import Op
from wafer_jax.errors import WaferError
from wafer_jax.events import Tile
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program

Algorithm = Literal["ktree", "pipeline", "ring"]


class _OnLines(NamedTuple):
    """An allreduce of lines; each takes k last, which only the K-tree heeds.

    Attributes:
      parts_of: (builder, tile, axis, first colour, k) to what positions do, and the next colour.
      apply: (tiles, axis, op, k) to tiles.
      cost: (hw, words, axis, k) to cycles.
    """

    parts_of: Callable[[ProgramBuilder, Tile, Axis, int, int], tuple[list[Part], int]]
    apply: Callable[[jax.Array, Axis, Op, int], jax.Array]
    cost: Callable[[HardwareSpec, int, Axis, int], int]


def _ktree_parts(
    builder: ProgramBuilder, tile: Tile, axis: Axis, first_color: int, k: int
) -> tuple[list[Part], int]:
    phases = allreduce_ktree.phases_of(line_length(builder.hw, axis), k)
    return allreduce_ktree.parts_of(builder, tile, phases, axis, True, first_color)


_ALGORITHMS = {
    "ktree": _OnLines(
        _ktree_parts,
        lambda tiles, axis, op, k: allreduce_ktree.apply(tiles, k, axis, op=op),
        lambda hw, words, axis, k: allreduce_ktree.cost(hw, words, k, axis),
    ),
    "pipeline": _OnLines(
        lambda builder, tile, axis, color, k: allreduce_pipeline.parts_of(
            builder, tile, axis, color
        ),
        lambda tiles, axis, op, k: allreduce_pipeline.apply(tiles, axis, op),
        lambda hw, words, axis, k: allreduce_pipeline.cost(hw, words, axis),
    ),
    "ring": _OnLines(
        lambda builder, tile, axis, color, k: allreduce_ring.parts_of(builder, tile, axis, color),
        lambda tiles, axis, op, k: allreduce_ring.apply(tiles, axis, op),
        lambda hw, words, axis, k: allreduce_ring.cost(hw, words, axis),
    ),
}


@checked
def program(
    hw: HardwareSpec,
    words: int,
    rows: Algorithm = "ktree",
    columns: Algorithm = "ktree",
    k: int = 2,
    dtype: str = "float32",
) -> Program:
    """Sum tile x over all PEs, in place, on every PE.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE; x is [words] float32, or [2 words] of a 16-bit type.
      rows: Allreduce along every row.
      columns: Allreduce along every column, of what the rows have.
      k: Phases of a K-tree.
      dtype: Element type.

    Raises:
      WaferError: An unknown algorithm; too few colours or input queues for both; tiles over the
        SRAM budget.
    """
    along_x, along_y = _named(rows), _named(columns)
    name = f"allreduce of {words} words over the mesh, rows by {rows}, columns by {columns}"
    builder = ProgramBuilder(hw, name)
    x = builder.tile("x", (block_elements(words, dtype),), dtype)
    in_rows, next_color = along_x.parts_of(builder, x, "x", 0, k)
    in_columns, _ = along_y.parts_of(builder, x, "y", next_color, k)
    for first, second in product(in_rows, in_columns):
        role = builder.role(f"{first.name} / {second.name}", at=(second.positions, first.positions))
        first.emit(role)
        second.emit(role)
    return builder.build(inputs=("x",), outputs=("x",))


rows_then_columns = program
"""The name of `program` in ``wj.allreduce.rows_then_columns(...)``."""


def apply(
    tiles: jax.Array,
    rows: Algorithm = "ktree",
    columns: Algorithm = "ktree",
    k: int = 2,
    op: Op = "add",
) -> jax.Array:
    """Bulk level: [l, ..., Y, X] to the same shape, the fabric's additions in the fabric's order.

    Raises:
      WaferError: An unknown algorithm or op; k < 1.
    """
    return _named(columns).apply(_named(rows).apply(tiles, "x", op, k), "y", op, k)


@checked
def cost(
    hw: HardwareSpec,
    words: int,
    rows: Algorithm = "ktree",
    columns: Algorithm = "ktree",
    k: int = 2,
) -> int:
    """Cycles: those along a row and those along a column.

    Exact where both are and all input queues are equally deep. Else the columns' K-tree may have
    queues of other depths than it would have alone, and a second side's words take the RAMP from
    a first side's as often as its queue holds words: up to the difference in depth for each phase.
    """
    along_x, along_y = _named(rows), _named(columns)
    return along_x.cost(hw, words, "x", k) + along_y.cost(hw, words, "y", k)


def _named(algorithm: str) -> _OnLines:
    if algorithm not in _ALGORITHMS:
        raise WaferError(f"allreduce {algorithm!r}: choose one of {', '.join(_ALGORITHMS)}")
    return _ALGORITHMS[algorithm]
