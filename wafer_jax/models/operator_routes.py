"""Routes that the operators of a model install: colours, and input queues of a PE.

The counts are those of the collectives' own programs with every PE busy. Streams between regions
have no program; they take a colour each.
"""

from dataclasses import dataclass

from wafer_jax.collectives import allreduce_ktree, interleave
from wafer_jax.collectives.tiles import Axis, axis_index


@dataclass(frozen=True)
class Routes:
    """The routes of one collective on lines of one length; another length has others.

    Attributes:
      name: Which.
      colors: Colours.
      input_queues: Queues of the PE that receives most.
    """

    name: str
    colors: int
    input_queues: int


def tree_routes(mesh: tuple[int, int], axis: Axis, k: int) -> Routes:
    """A K-tree allreduce."""
    length = mesh[axis_index(axis)]
    return Routes(f"K-tree along {axis} over {length} PEs", *allreduce_ktree.needs(length, k))


def gemm_routes(mesh: tuple[int, int]) -> Routes:
    """MeshGEMM that is aligned on chip: a ring each way per axis."""
    axes = sum(length > 1 for length in mesh)
    return Routes(f"MeshGEMM on {mesh[0]}x{mesh[1]} PEs", 2 * interleave.COLORS * axes, 2 * axes)


def transposed_routes(mesh: tuple[int, int]) -> Routes:
    """Transposed MeshGEMM: a ring along y, chains both ways along x."""
    chains = 4 * (mesh[1] > 1)
    name = f"transposed MeshGEMM on {mesh[0]}x{mesh[1]} PEs"
    return Routes(name, interleave.COLORS + chains, 1 + (chains > 0) * 2)


SHIFT_ROUTES = Routes("KV shift", 2, 1)
"""Rows take turns."""
STREAM_ROUTES = Routes("stream between regions", 1, 1)
