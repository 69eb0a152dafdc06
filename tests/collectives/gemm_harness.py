"""Shared by the tests of the matrix products: operands, the oracle without compiled kernels, keys.

Kernels of jax would be compiled for every shape that the oracle meets; in sweeps over meshes NumPy
functions of the same names stand for them. One run per algorithm uses the kernels themselves.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from lines_harness import Oracle, integers

from wafer_jax import Jitter
from wafer_jax.events import Compute, Kernel
from wafer_jax.program import Program

SIZES = (5, 13, 7)
"""m, k, n: pairwise distinct, and most meshes divide none of them."""
MESHES = ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2), (3, 3), (4, 4), (2, 3), (3, 4), (4, 2))


def operands(algorithm, mesh, sizes=SIZES, make=integers):
    """Dense a [m, k] and b [k, n], and their tiles as the algorithm cuts them."""
    m, k, n = sizes
    a, b = make(m, k, seed=1), make(k, n, seed=2)
    return a, b, *algorithm.tile_operands(jnp.asarray(a), jnp.asarray(b), mesh)


def numpy_realign(left, *tiles):
    """The alignment kernel once more, as a loop over the blocks' new places."""
    count = len(tiles) // 2
    own, received = tiles[:count], tiles[count:]
    moved = int(np.clip(left[0], -count, count))
    kept = {i - moved: own[i] for i in range(count)}
    came = {i - moved + (count if moved > 0 else -count): received[i] for i in range(count)}
    return (left - np.float32(moved), *({**came, **kept}[i] for i in range(count)))


NUMPY_KERNELS: Mapping[str, Callable] = {
    "gemm": lambda c, a, b: c + a @ b,
    "realign": numpy_realign,
}


def with_numpy_kernels(program: Program, kernels=NUMPY_KERNELS) -> Program:
    """The program with kernels that the oracle can run without compiling anything."""

    def plain(event):
        if isinstance(event, Compute) and event.kernel.name in kernels:
            name = event.kernel.name
            return replace(event, kernel=Kernel(name=name, fn=kernels[name]))
        return event

    roles = tuple(
        replace(role, threads=tuple(tuple(map(plain, thread)) for thread in role.threads))
        for role in program.roles
    )
    return replace(program, roles=roles)


def oracle_values(program: Program, tiles, jitter=None, kernels=NUMPY_KERNELS) -> np.ndarray:
    """Tile c [..., Y, X] after the oracle ran the program with NumPy's kernels."""
    assert set(tiles) == set(program.inputs)
    oracle = Oracle(with_numpy_kernels(program, kernels), tiles, jitter=jitter).run()
    assert not any(pe.faults for pe in oracle.pes.values())
    return oracle.tile("c")


def values_under_keys(program: Program, tiles, kernels=NUMPY_KERNELS) -> Iterator[np.ndarray]:
    """Tile c under twenty keys, which start and stall the PEs differently."""
    for key in range(20):
        yield oracle_values(program, tiles, Jitter(key, 40, 15), kernels)
