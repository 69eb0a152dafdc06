"""Rectangles of PEs on wafers, each with a task."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from wafer_jax.models.mesh_memory import RegionBytes


@dataclass(frozen=True)
class Region:
    """A rectangle of PEs with one task.

    Attributes:
      name: "embedding", "layer 0" or "layers 0 to 2", ..., "head", or "embedding and head".
      wafer: Number of the wafer.
      origin: (y, x) of its north-western PE.
      mesh: (Y, X) PEs.
      memory: Bytes per PE.
      layers: Numbers of the layers that it holds; the embedding's and the head's holds none.
    """

    name: str
    wafer: int
    origin: tuple[int, int]
    mesh: tuple[int, int]
    memory: RegionBytes
    layers: range = range(0)

    @property
    def columns(self) -> tuple[int, int]:
        """First and last column."""
        return self.origin[1], self.origin[1] + self.mesh[1] - 1

    def hops_to(self, other: "Region") -> int:
        """Links from this region's nearest column to the other's farthest, row by row.

        What is handed over lies on every column of this region and is wanted on every column of
        the other, in the row of the same number.
        """
        first, last = other.columns
        west, east = self.columns
        middle = min(max((first + last) // 2, west), east)
        across = max(abs(middle - first), abs(middle - last))
        return across + abs(self.origin[0] - other.origin[0])


class Task(NamedTuple):
    """What a region is for, before it has a place."""

    name: str
    mesh: tuple[int, int]
    memory: RegionBytes
    layers: range = range(0)


def pack(tasks: Sequence[Task], wafer_mesh: tuple[int, int]) -> Iterator[Region]:
    """Rectangles in rows, each row as high as its highest rectangle, then the next wafer."""
    wafer = y = x = height = 0
    for name, mesh, memory, layers in tasks:
        if x + mesh[1] > wafer_mesh[1]:
            y, x, height = y + height, 0, 0
        if y + mesh[0] > wafer_mesh[0]:
            wafer, y, x, height = wafer + 1, 0, 0, 0
        yield Region(name, wafer, (y, x), mesh, memory, layers)
        x, height = x + mesh[1], max(height, mesh[0])
