"""Asynchrony on purpose: start skew and stalls as a function of a key (semantics, section 6)."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.arguments import whole
from wafer_jax.blocks import row_lanes
from wafer_jax.errors import WaferError
from wafer_jax.program import NO_ROUTE, Program, Role, Segment

START_THREAD = 255
"""Stands for the whole PE in the hash of its start skew."""


@dataclass(frozen=True)
class Jitter:
    """Make PEs start at different times and stall before events; one key is always one run.

    Attributes:
      key: 0 .. 2^32 - 1.
      start_cycles: Every PE starts up to so many cycles late.
      event_cycles: Every event is late by up to so many cycles.
    """

    key: int
    start_cycles: int = 0
    event_cycles: int = 0

    def __post_init__(self) -> None:
        for name in ("key", "start_cycles", "event_cycles"):
            object.__setattr__(self, name, whole(getattr(self, name), f"jitter {name}"))
        if not 0 <= self.key < 1 << 32:
            raise WaferError(f"jitter key {self.key} is not in 0 .. 2^32 - 1")
        for name in ("start_cycles", "event_cycles"):
            if not 0 <= getattr(self, name) < 1 << 20:
                raise WaferError(f"jitter {name} = {getattr(self, name)} is not in 0 .. 2^20 - 1")

    def as_array(self) -> jax.Array:
        """[3] uint32: key, start_cycles, event_cycles."""
        return jnp.array([self.key, self.start_cycles, self.event_cycles], jnp.uint32)


def stall(
    key: jax.Array, pe: jax.Array, thread: jax.Array, ordinal: jax.Array, limit: jax.Array
) -> jax.Array:
    """Cycles of one stall, 0 .. limit, as int32.

    The hash is the finaliser of MurmurHash3 over a sum of odd multiples, all modulo 2^32.

    Args:
      key: [] uint32.
      pe: [n] uint32, y * X + x.
      thread: Its number.
      ordinal: Events that it loaded before.
      limit: [] uint32.
    """
    h = key + pe * jnp.uint32(0x9E3779B1)
    h = h + thread.astype(jnp.uint32) * jnp.uint32(0x85EBCA6B)
    h = h + ordinal.astype(jnp.uint32) * jnp.uint32(0xC2B2AE35)
    h = (h ^ h >> 16) * jnp.uint32(0x85EBCA6B)
    h = (h ^ h >> 13) * jnp.uint32(0xC2B2AE35)
    return ((h ^ h >> 16) % (limit + 1)).astype(jnp.int32)


def pe_of_lane(mesh: tuple[int, int]) -> jax.Array:
    """[n] uint32: y * X + x of every lane; ghosts have any."""
    height, width = mesh
    row = row_lanes(width)
    lane = jnp.arange(height * row, dtype=jnp.uint32)
    return lane // row * width + lane % row


def replicate(program: Program, count: int) -> Program:
    """Stack ``count`` copies of a program along Y, an inert row of PEs between two.

    One run then tries ``count`` different stalls, without a batch axis: the executor does not
    know. Copy i lies in rows ``i * (Y + 1)`` to ``i * (Y + 1) + Y - 1``.

    Raises:
      WaferError: Less than one copy, or more rows than a mesh may have.
    """
    if whole(count, "the number of replicas") < 1:
        raise WaferError(f"{count} replicas: ask for at least 1")
    height, width = program.hw.mesh
    rows = count * (height + 1) - 1
    device = max(rows, program.hw.device_mesh[0]), program.hw.device_mesh[1]
    hw = program.hw.replace(device_mesh=device, mesh=(rows, width))

    def stack(grid: np.ndarray, fill: int) -> np.ndarray:
        wall = np.full((*grid.shape[:-2], 1, width), fill, grid.dtype)
        copies = [np.concatenate([grid, wall], axis=-2)] * count
        return np.concatenate(copies, axis=-2)[..., :rows, :]

    wall_role = Role(name="wall", threads=program.roles[0].threads[:0])
    segments = tuple(
        Segment(
            name=segment.name,
            rx=stack(segment.rx, NO_ROUTE),
            tx=stack(segment.tx, 0),
            positions=stack(segment.positions, 1),
            ring=stack(segment.ring, 0),
        )
        for segment in program.segments
    )
    return replace(
        program,
        name=f"{count} replicas of {program.name}",
        hw=hw,
        segments=segments,
        role_of=stack(program.role_of, len(program.roles)),
        roles=(*program.roles, wall_role),
    )
