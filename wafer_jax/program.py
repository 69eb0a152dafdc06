"""Programs for the fabric level: tiles, kernels, event tables, roles and routes.

A `Program` is what the host compiler produces and what the executor runs. Its meaning is
defined by docs/semantics.md. Build one with `ProgramBuilder`.

Axes: C colours in use, Y rows, X columns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.events import (
    Event,
    Register,
    Tile,
    describe,
)
from wafer_jax.hardware import DIRECTION_NAMES, WORD_BYTES, HardwareSpec

NO_ROUTE = -1
"""`rx` of a (PE, colour) that receives from nowhere."""


@dataclass(frozen=True, kw_only=True)
class Role:
    """What all PEs of one kind run: a table of events per thread, and a layout of tiles.

    Attributes:
      name: Unique within the program.
      threads: One tuple of events per thread, each ending in `Halt`.
      tiles: Layout of the SRAM, by tile name.
      output_queues: Bound output queue of each colour that the role sends on.
      input_queues: Bound input queue of each colour that is delivered to the role.
    """

    name: str
    threads: tuple[tuple[Event, ...], ...]
    tiles: Mapping[str, Tile] = field(default_factory=lambda: MappingProxyType({}))
    output_queues: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    input_queues: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def words(self) -> int:
        """Words of SRAM that the tiles span."""
        return max((t.offset + t.words for t in self.tiles.values()), default=0)

    def describe(self, thread: int, event: int) -> str:
        """One event of the role as text, tiles by name."""
        names: dict[tuple[int, int | Register], str] = {
            (t.offset, t.words): t.name for t in self.tiles.values()
        }
        return describe(self.threads[thread][event], names)


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A program for a whole mesh.

    Attributes:
      name: What it does, for people.
      hw: Machine it was built for.
      colors: Colours in use, increasing device numbers; position = colour axis C.
      rx: [C, Y, X] int8, receive direction or NO_ROUTE.
      tx: [C, Y, X] uint8, bit d set = transmits in direction d.
      role_of: [Y, X] int32, index into ``roles``.
      roles: The distinct roles.
      inputs: Names of the tiles that the user loads.
      outputs: Names of the tiles that hold the result.
    """

    name: str
    hw: HardwareSpec
    colors: tuple[int, ...]
    rx: np.ndarray
    tx: np.ndarray
    role_of: np.ndarray
    roles: tuple[Role, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def num_threads(self) -> int:
        """Threads that the busiest role uses."""
        return max((len(r.threads) for r in self.roles), default=0) or 1

    @property
    def sram_words(self) -> int:
        """Words of SRAM per PE that the run holds."""
        return max((r.words for r in self.roles), default=0)

    @cached_property
    def role_masks(self) -> tuple[np.ndarray, ...]:
        """[Y, X] bool per role."""
        return tuple(self.role_of == i for i in range(len(self.roles)))

    @cached_property
    def output_depths(self) -> np.ndarray:
        """[C, Y, X] int32: depth of the output queue bound to each sending colour, else 0."""
        return self._depths(lambda r: r.output_queues, self.hw.output_queue_depths)

    @cached_property
    def input_depths(self) -> np.ndarray:
        """[C, Y, X] int32: depth of the input queue bound to each delivered colour, else 0."""
        return self._depths(lambda r: r.input_queues, self.hw.input_queue_depths)

    def _depths(self, binding: Callable, depths: tuple[int, ...]) -> np.ndarray:
        out = np.zeros(self.rx.shape, np.int32)
        for role, mask in zip(self.roles, self.role_masks, strict=True):
            for color, queue in binding(role).items():
                out[self.colors.index(color)][mask] = depths[queue]
        return out

    def role_at(self, y: int, x: int) -> Role:
        """Role of a PE."""
        height, width = self.hw.mesh
        if not (0 <= y < height and 0 <= x < width):
            raise WaferError(f"PE (y={y}, x={x}) is not on the {height}x{width} mesh")
        return self.roles[self.role_of[y, x]]

    def at(self, y: int, x: int) -> str:
        """One PE's routes and event table as text: ``print(program.at(y=3, x=5))``."""
        role = self.role_at(y, x)
        lines = [f"PE (y={y}, x={x}) of {self.name!r}, role {role.name!r}"]
        for i, color in enumerate(self.colors):
            if (rx := int(self.rx[i, y, x])) != NO_ROUTE:
                targets = direction_set(int(self.tx[i, y, x]))
                lines.append(f"  colour {color:2d}  {DIRECTION_NAMES[rx]} -> {targets}")
        for t, events in enumerate(role.threads):
            lines.append(f"  thread {t}")
            lines += [f"    {i:3d}  {role.describe(t, i)}" for i in range(len(events))]
        used = role.words * WORD_BYTES
        lines.append(f"  SRAM {used} of {self.hw.data_bytes} bytes")
        return "\n".join(lines)

    def __repr__(self) -> str:
        height, width = self.hw.mesh
        return (
            f"Program({self.name!r}, {height}x{width} PEs of {self.hw.name}, "
            f"{len(self.colors)} colours, {len(self.roles)} roles)"
        )


def direction_set(mask: int) -> str:
    """Render a transmit set: ``E+RAMP``."""
    return (
        "+".join(n for d, n in enumerate(DIRECTION_NAMES) if mask >> d & 1) or "nowhere (empty tx)"
    )
