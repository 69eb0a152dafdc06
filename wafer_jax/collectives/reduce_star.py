"""Star reduce: every PE's words go to the root of its line, which adds one sender after the other.

Depth 1, so the fewest stages, for B words of every PE through one core: Star of Luczynski et al.,
HPDC'24 (arXiv 2404.15888). The senders' order is kept by switches (`preorder_tree`), so one colour
and one queue do for a line of any length.
"""

import jax

from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.lines import line_length
from wafer_jax.collectives.preorder_bulk import reduce_preorder
from wafer_jax.collectives.preorder_tree import Parents, tree_program
from wafer_jax.collectives.tiles import Axis, axis_index
from wafer_jax.collectives.tree_bulk import Op
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program


def tree_of(length: int) -> Parents:
    """Every position's parent is position 0."""
    return (-1, *[0] * (length - 1))


@checked
def program(hw: HardwareSpec, words: int, axis: Axis = "x", dtype: str = "float32") -> Program:
    """Star reduce of tile x along every line, in place at position 0; other PEs keep their x.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE; x is [words] float32, or [2 words] of a 16-bit type.
      axis: Lines are rows ("x") or columns ("y").
      dtype: Element type.

    Raises:
      WaferError: Tiles over the SRAM budget.
    """
    parents = tree_of(line_length(hw, axis))
    return tree_program(hw, words, axis, parents, dtype, "star reduce")


def apply(tiles: jax.Array, axis: Axis = "x", op: Op = "add") -> jax.Array:
    """Bulk level: [..., Y, X] to the tiles at position 0, [..., Y, 1] (axis "x") or [..., 1, X].

    Raises:
      WaferError: An unknown axis or op.
    """
    return reduce_preorder(tiles, tree_of(tiles.shape[axis_index(axis)]), axis, op)


@checked
def cost(hw: HardwareSpec, words: int, axis: Axis = "x") -> int:
    """Cycles: ``s + 2 R + 1 + h + (P - 1) B``, and for P > 2 also ``(s + 1 + h) + (P - 3) g``.

    g is what passes between the last word of a sender and the first of the next: a control wavelet
    and a hop, ``1 + h``, or the root's set-up s if that is longer. The first sender's control
    wavelet is set up with nothing to hide it, hence s + 1 + h. Messages longer than a router's
    FIFO hide only as much of the set-up as the FIFO holds.

    Luczynski et al.'s ``B (P - 1) + 2 T_R + 1`` has none of these: on their device a sender's last
    word itself turns the switch of its own router, and the turn costs nothing in the model.
    """
    length = line_length(hw, axis)
    if length == 1:
        return 0
    setup, turn = hw.stream_setup_cycles, 1 + hw.hop_cycles
    waiting = hw.router_depth + hw.output_queue_depths[0] - 1
    shown = max(setup - waiting, 0) if words > waiting + 2 + hw.ramp_cycles else 0
    gaps = (setup + turn + (length - 3) * max(setup, turn + shown)) if length > 2 else 0
    return setup + pass_cycles(hw, 1) + (length - 1) * words + gaps
