"""How a wafer lies in lanes, and how it is cut into equal blocks of PEs, one per device.

Axes: R x C devices, n lanes of the whole wafer, m lanes of one block. Where the mesh is not
divisible the last blocks are padded with PEs like the ghost column: no routes, every thread halted.
"""

from dataclasses import dataclass

import jax
import numpy as np

SHARED_FIELDS = frozenset(
    "now stuck watchdog starved packet_words jitter "
    "table kernel_kind kernel_offsets footprint".split()
)
"""Fields of `WaferState` and `Code` that every device holds; the others have lanes last."""
FLAT_FIELDS = frozenset(("sram", "route_table", "switches", "route_classes"))
"""Fields of one axis that runs over something else and then, fastest, over lanes."""


def row_lanes(columns: int, ghosts: int = 1) -> int:
    """Lanes of a row of PEs with at least so many ghosts, an even number.

    XLA takes twice as long for planes of an odd number of lanes (measured on CPUs).
    """
    return columns + ghosts + (columns + ghosts) % 2


@dataclass(frozen=True)
class Blocks:
    """The cut.

    Attributes:
      devices: (R, C), blocks along y and x.
      wafer: (Y, X), PEs in all.
    """

    devices: tuple[int, int]
    wafer: tuple[int, int]

    @property
    def mesh(self) -> tuple[int, int]:
        """(rows, columns) of PEs in a block."""
        return -(-self.wafer[0] // self.devices[0]), -(-self.wafer[1] // self.devices[1])

    @property
    def row(self) -> int:
        """Lanes of a block's row; a cut in x needs a ghost for the neighbour on either side."""
        return row_lanes(self.mesh[1], ghosts=2 if self.devices[1] > 1 else 1)

    @property
    def lanes(self) -> int:
        """Lanes of a block, m."""
        return self.mesh[0] * self.row


def to_blocks(blocks: Blocks, plane: np.ndarray) -> np.ndarray:
    """[..., n] of the whole wafer to [R * C, ..., m]; padding repeats the ghost column."""
    (height, width), (rows, columns) = blocks.wafer, blocks.mesh
    down, across = blocks.devices
    lead = plane.shape[:-1]
    grid = plane.reshape(*lead, height, row_lanes(width))
    ghost = grid[..., :1, -1:]
    padded = np.empty((*lead, down * rows, across * columns), plane.dtype)
    padded[...] = ghost
    padded[..., :height, :width] = grid[..., :width]
    out = np.empty((*lead, down, rows, across, blocks.row), plane.dtype)
    out[...] = ghost[..., None, None]
    out[..., :columns] = padded.reshape(*lead, down, rows, across, columns)
    by_device = np.moveaxis(out, (-4, -2), (0, 1))
    return by_device.reshape(down * across, *lead, blocks.lanes)


def from_blocks(blocks: Blocks, parts: np.ndarray) -> np.ndarray:
    """The inverse of `to_blocks`."""
    (height, width), (rows, columns) = blocks.wafer, blocks.mesh
    down, across = blocks.devices
    lead = parts.shape[1:-1]
    grid = parts.reshape(down, across, *lead, rows, blocks.row)
    inner = np.moveaxis(grid[..., :columns], (0, 1), (-4, -2))
    out = np.empty((*lead, height, row_lanes(width)), parts.dtype)
    out[...] = grid[0, 0][..., :1, -1:]
    out[..., :width] = inner.reshape(*lead, down * rows, across * columns)[..., :height, :width]
    return out.reshape(*lead, height * row_lanes(width))


def field_name(path) -> str:
    """Name of the field that a path of `jax.tree_util` leads to."""
    return next(key.name for key in reversed(path) if isinstance(key, jax.tree_util.GetAttrKey))
