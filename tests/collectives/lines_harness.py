"""Shared by the tests of collectives on lines: machines, and the oracle as a fast cycle counter.

The oracle agrees with the executor cycle for cycle (tests/fabric) and compiles nothing, so sweeps
over shapes use it; each algorithm also runs on the executor.
"""

import sys
from itertools import product
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from wafer_jax.hardware import HardwareSpec, hardware
from wafer_jax.jitter import Jitter
from wafer_jax.program import Program

sys.path.append(str(Path(__file__).parent.parent / "fabric"))
from oracle import Oracle
from oracle_state import read_tile

LINES = ((1, 1), (1, 2), (1, 3), (1, 5), (1, 8), (5, 1), (8, 1), (2, 3), (3, 2), (3, 8), (5, 5))
VALUE_LINES = ((1, 1), (1, 2), (3, 1), (8, 3), (2, 5))
"""Fewer, for values: the bulk level compiles for every shape."""
WORDS = (1, 2, 7)
MACHINES = (
    {},
    {"hop_cycles": 2, "ramp_cycles": 3, "stream_setup_cycles": 4},
    {"stream_setup_cycles": 1, "router_depth": 1, "input_queue_depths": (1,) * 8},
    {"ramp_cycles": 2, "input_queue_depths": (9, 6, 5, 4, 3, 2, 2, 2), "router_depth": 4},
)


def toy(mesh: tuple[int, int], **changes) -> HardwareSpec:
    """The toy machine with enough colours and queues for deep trees."""
    base = {"colors": 24, "input_queue_depths": (2,) * 8, "device_mesh": (256, 1024)}
    return hardware("toy").replace(**{**base, "mesh": mesh, **changes})


def machines(meshes=LINES):
    """Machines of every mesh and latency, with an axis and a number of words."""
    for mesh, axis, changes, words in product(meshes, "xy", MACHINES, WORDS):
        yield toy(mesh, **changes), axis, words


def oracle_cycles(program: Program) -> int:
    """Cycles of a program that ends well."""
    final = Oracle(program, {}, values=False).run().snapshot()
    assert final["halted"].all()
    assert not final["faults"].any()
    return int(final["ready_at"].max())


def oracle_tile(
    program: Program,
    x: np.ndarray | dict[str, np.ndarray],
    name: str = "x",
    jitter: Jitter | None = None,
) -> np.ndarray:
    """A tile [..., Y, X] after the oracle ran a program with input x, or several by name."""
    oracle = Oracle(program, x if isinstance(x, dict) else {"x": x}, True, jitter).run()
    height, width = program.hw.mesh
    tiles = [
        [read_tile(oracle.pes[y, i].sram, program.role_at(y, i).tiles[name]) for i in range(width)]
        for y in range(height)
    ]
    return np.moveaxis(np.array(tiles), (0, 1), (-2, -1))


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Random normal numbers in the storage type."""
    numbers = np.random.default_rng(seed).standard_normal(shape)
    return numbers.astype(jnp.dtype(dtype))


def integers(*shape: int, seed: int = 0) -> np.ndarray:
    """Small integers as float32: sums are exact in any order."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def same_bits(a, b) -> bool:
    """Whether two arrays are equal in shape, type and every bit."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
