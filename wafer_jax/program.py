"""Programs for the fabric level: tiles, kernels, event tables, roles and routes.

A `Program` is what the host compiler produces and what the executor runs. Its meaning is
defined by docs/semantics.md. Build one with `ProgramBuilder`.

Axes: C colours in use, Y rows, X columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np

from wafer_jax.arguments import whole
from wafer_jax.errors import WaferError
from wafer_jax.events import (
    Event,
    Tile,
    describe,
)
from wafer_jax.hardware import DIRECTION_NAMES, WORD_BYTES, HardwareSpec

NO_ROUTE = -1
"""`rx` of a (PE, colour) that receives from nowhere."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Segment:
    """The routes of all (PE, colour) pairs while their PEs are in a segment.

    Axes: P switch positions; entries at and beyond ``positions`` mean nothing.

    Attributes:
      name: Unique within the program.
      rx: [P, C, Y, X] int8, receive direction or NO_ROUTE.
      tx: [P, C, Y, X] uint8, bit d set = transmits in direction d.
      positions: [C, Y, X] uint8, routes of each pair; a pair with two or more is a switch.
      ring: [C, Y, X] bool, an advance from the last position goes to position 0.
    """

    name: str
    rx: np.ndarray
    tx: np.ndarray
    positions: np.ndarray
    ring: np.ndarray


def fixed_segment(rx: np.ndarray, tx: np.ndarray, name: str = "first") -> Segment:
    """A segment without switches, of routes [C, Y, X]."""
    return Segment(
        name=name,
        rx=rx[None],
        tx=tx[None],
        positions=np.ones(rx.shape, np.uint8),
        ring=np.zeros(rx.shape, bool),
    )


@dataclass(frozen=True)
class Queues:
    """Queues that a role binds in a segment, by colour.

    Attributes:
      output: Of the colours that it sends on.
      input: Of the colours that are delivered to it.
    """

    output: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    input: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, kw_only=True)
class Role:
    """What all PEs of one kind run: a table of events per thread, and a layout of tiles.

    Attributes:
      name: Unique within the program.
      threads: One tuple of events per thread, each ending in `Halt`.
      tiles: Layout of the SRAM, by tile name.
      queues: What it binds in each segment; nothing in segments beyond the last given.
    """

    name: str
    threads: tuple[tuple[Event, ...], ...]
    tiles: Mapping[str, Tile] = field(default_factory=lambda: MappingProxyType({}))
    queues: tuple[Queues, ...] = ()

    def bound(self, segment: int) -> Queues:
        """The queues that it binds in a segment."""
        return self.queues[segment] if segment < len(self.queues) else Queues()

    @property
    def words(self) -> int:
        """Words of SRAM that the tiles span."""
        return max((t.offset + t.words for t in self.tiles.values()), default=0)

    def describe(self, thread: int, event: int) -> str:
        """One event of the role as text, tiles by name."""
        return describe(self.threads[thread][event], self.tiles.values())


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A program for a whole mesh.

    Attributes:
      name: What it does, for people.
      hw: Machine it was built for.
      colors: Colours in use, increasing device numbers; position = colour axis C.
      segments: The routes, by segment; every PE starts in the first.
      role_of: [Y, X] int32, index into ``roles``.
      roles: The distinct roles.
      inputs: Names of the tiles that the user loads.
      outputs: Names of the tiles that hold the result.
    """

    name: str
    hw: HardwareSpec
    colors: tuple[int, ...]
    segments: tuple[Segment, ...]
    role_of: np.ndarray
    roles: tuple[Role, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def rx(self) -> np.ndarray:
        """[C, Y, X] int8: receive directions at the start."""
        return self.segments[0].rx[0]

    @property
    def tx(self) -> np.ndarray:
        """[C, Y, X] uint8: transmit sets at the start."""
        return self.segments[0].tx[0]

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """All events of all roles."""
        return tuple(e for role in self.roles for thread in role.threads for e in thread)

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

    def queue_depths(self, segment: int) -> tuple[np.ndarray, np.ndarray]:
        """[C, Y, X] int32 each: depths of the bound output and input queues, 0 where none is."""
        output, input_ = (np.zeros(self.rx.shape, np.int32) for _ in range(2))
        for role, mask in zip(self.roles, self.role_masks, strict=True):
            queues = role.bound(segment)
            for depths, binding, available in (
                (output, queues.output, self.hw.output_queue_depths),
                (input_, queues.input, self.hw.input_queue_depths),
            ):
                for color, queue in binding.items():
                    depths[self.colors.index(color)][mask] = available[queue]
        return output, input_

    def role_at(self, y: int, x: int) -> Role:
        """Role of a PE."""
        height, width = self.hw.mesh
        y, x = whole(y, "y of a PE"), whole(x, "x of a PE")
        if not (0 <= y < height and 0 <= x < width):
            raise WaferError(f"PE (y={y}, x={x}) is not on the {height}x{width} mesh")
        return self.roles[self.role_of[y, x]]

    def at(self, y: int, x: int) -> str:
        """One PE's routes and event table as text: ``print(program.at(y=3, x=5))``."""
        role = self.role_at(y, x)
        lines = [f"PE (y={y}, x={x}) of {self.name!r}, role {role.name!r}"]
        for g, segment in enumerate(self.segments):
            if len(self.segments) > 1:
                lines.append(f"  segment {g} {segment.name!r}")
            lines += _routes_of(self, segment, y, x)
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


def _routes_of(program: Program, segment: Segment, y: int, x: int) -> list[str]:
    """A PE's routes in a segment, one line per colour and position."""
    lines = []
    for i, color in enumerate(program.colors):
        positions = int(segment.positions[i, y, x])
        for p in range(positions):
            rx, tx = int(segment.rx[p, i, y, x]), int(segment.tx[p, i, y, x])
            if rx != NO_ROUTE or positions > 1:
                source = "nowhere" if rx == NO_ROUTE else DIRECTION_NAMES[rx]
                where = f", position {p}" if positions > 1 else ""
                ring = ", a ring" if positions > 1 and segment.ring[i, y, x] and p == 0 else ""
                lines.append(f"  colour {color:2d}  {source} -> {direction_set(tx)}{where}{ring}")
    return lines


def direction_set(mask: int) -> str:
    """Render a transmit set: ``E+RAMP``."""
    return (
        "+".join(n for d, n in enumerate(DIRECTION_NAMES) if mask >> d & 1) or "nowhere (empty tx)"
    )
