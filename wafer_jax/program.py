"""Programs for the fabric level: tiles, kernels, event tables, roles and routes.

A `Program` is what the host compiler produces and what `step.run` executes. Its meaning is
defined by docs/semantics.md. Build one with `ProgramBuilder`.

Axes: C colours in use, Y rows, X columns.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.hardware import DIRECTION_NAMES, DTYPE_BYTES, RAMP, WORD_BYTES, HardwareSpec

NO_ROUTE = -1
"""`rx` of a (PE, colour) that receives from nowhere."""

Combine = Literal["copy", "add"]


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A named array in the SRAM of every PE of a role.

    Attributes:
      name: Unique within the role.
      offset: First word.
      shape: Shape of the array on one PE.
      dtype: "float32", "float16" or "bfloat16"; 16-bit elements lie two to a word.
    """

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def words(self) -> int:
        """Words of SRAM, an odd 16-bit element padded."""
        return -(-self.size * DTYPE_BYTES[self.dtype] // WORD_BYTES)

    def slice(self, start: int = 0, words: int | None = None, stride: int = 1) -> "Slice":
        """Words ``start, start + stride, ...`` of the tile; by default all that follow start."""
        if words is None:
            words = -(-(self.words - start) // stride)
        last = start + stride * (words - 1)
        if words < 1 or not (0 <= start < self.words and 0 <= last < self.words):
            raise WaferError(
                f"slice (start {start}, words {words}, stride {stride}) lies outside tile "
                f"{self.name!r} of {self.words} words"
            )
        return Slice(self.offset + start, stride, words, self.dtype)


@dataclass(frozen=True)
class Slice:
    """Words ``offset + stride * i`` for i in 0..words-1 of a PE's SRAM."""

    offset: int
    stride: int
    words: int
    dtype: str = "float32"


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A pure per-PE function ``fn(*inputs) -> output or tuple of outputs``.

    Two kernels with the same function, shapes and dtypes share one compiled body, wherever
    their tiles lie, so make ``fn`` once (a module-level function or a cached factory).
    """

    name: str
    fn: Callable


@dataclass(frozen=True)
class Send:
    """Memory to fabric."""

    color: int
    slice: Slice


@dataclass(frozen=True)
class Receive:
    """Fabric to memory ("copy"), or fabric plus memory to memory ("add")."""

    color: int
    slice: Slice
    combine: Combine = "copy"


@dataclass(frozen=True)
class Forward:
    """Fabric to fabric ("copy", no slice), or fabric plus memory to fabric ("add")."""

    color_in: int
    color_out: int
    words: int
    slice: Slice | None = None
    combine: Combine = "copy"


@dataclass(frozen=True)
class Compute:
    """Start a kernel that takes ``cycles``."""

    kernel: Kernel
    inputs: tuple[Tile, ...]
    outputs: tuple[Tile, ...]
    cycles: int


@dataclass(frozen=True)
class Signal:
    """Add one to a semaphore of the PE."""

    semaphore: int


@dataclass(frozen=True)
class Wait:
    """Block until a semaphore of the PE is positive, then subtract one."""

    semaphore: int


@dataclass(frozen=True)
class Loop:
    """Jump back to event ``first`` until the events in between ran ``count`` times."""

    first: int
    count: int
    level: int = 0


@dataclass(frozen=True)
class Halt:
    """End of a thread."""


Event = Send | Receive | Forward | Compute | Signal | Wait | Loop | Halt


def send_color(event: Event) -> int | None:
    """Colour on which an event sends."""
    match event:
        case Send(color=color) | Forward(color_out=color):
            return color
    return None


def receive_color(event: Event) -> int | None:
    """Colour from which an event receives."""
    match event:
        case Receive(color=color) | Forward(color_in=color):
            return color
    return None


def event_slice(event: Event) -> Slice | None:
    """Slice of SRAM that an event streams."""
    return getattr(event, "slice", None)


def event_words(event: Event) -> int:
    """How often an event issues."""
    match event:
        case Send(slice=s) | Receive(slice=s):
            return s.words
        case Forward(words=words):
            return words
    return 1


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
        names = {(t.offset, t.words): t.name for t in self.tiles.values()}
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
    return "+".join(n for d, n in enumerate(DIRECTION_NAMES) if mask >> d & 1) or "nowhere"


def describe(event: Event, names: Mapping[tuple[int, int], str] = MappingProxyType({})) -> str:
    """One event as a line of text; ``names`` maps (offset, words) to a tile's name."""

    def where(s: Slice | None) -> str:
        if s is None:
            return ""
        stride = f" stride {s.stride}" if s.stride != 1 else ""
        return names.get((s.offset, s.words), f"[{s.offset}:+{s.words}]") + stride

    match event:
        case Send(color=c, slice=s):
            return f"SEND     {s.words} words of {where(s)} on colour {c}"
        case Receive(color=c, slice=s, combine=how):
            into = "add to" if how == "add" else "to"
            return f"RECEIVE  {s.words} words from colour {c} {into} {where(s)}"
        case Forward(color_in=a, color_out=b, words=n, slice=s):
            plus = f" plus {where(s)}" if s else ""
            return f"FORWARD  {n} words from colour {a}{plus} on colour {b}"
        case Compute(kernel=k, inputs=i, outputs=o, cycles=n):
            args = ", ".join(t.name for t in i)
            return f"COMPUTE  {', '.join(t.name for t in o)} = {k.name}({args}), {n} cycles"
        case Signal(semaphore=s):
            return f"SIGNAL   semaphore {s}"
        case Wait(semaphore=s):
            return f"WAIT     semaphore {s}"
        case Loop(first=f, count=n):
            return f"LOOP     from {f}, {n} times in all"
    return "HALT"


def validate(program: Program) -> None:
    """Check what docs/semantics.md refuses before a run.

    Raises:
      WaferError: Naming the PE, the colour or tile, the amount and the limit.
    """
    _validate_shapes(program)
    for role, mask in zip(program.roles, program.role_masks, strict=True):
        _validate_budget(program, role)
        if mask.any():
            _validate_colors(program, role, mask)


def _validate_shapes(program: Program) -> None:
    hw, shape = program.hw, (len(program.colors), *program.hw.mesh)
    if program.rx.shape != shape or program.tx.shape != shape:
        raise WaferError(f"{program.name}: routes have shape {program.rx.shape}, not {shape}")
    if program.role_of.shape != hw.mesh:
        raise WaferError(
            f"{program.name}: role_of has shape {program.role_of.shape}, not {hw.mesh}"
        )
    if len(program.colors) > hw.colors or any(not 0 <= c < hw.colors for c in program.colors):
        raise WaferError(
            f"{program.name}: uses colours {program.colors}, but {hw.name} has {hw.colors} (0 .. "
            f"{hw.colors - 1})"
        )
    if program.num_threads > hw.threads:
        raise WaferError(
            f"{program.name}: a role uses {program.num_threads} threads, {hw.name} has {hw.threads}"
        )


def _validate_budget(program: Program, role: Role) -> None:
    used, limit = role.words * WORD_BYTES, program.hw.data_bytes
    if used > limit:
        largest = max(role.tiles.values(), key=lambda t: t.words)
        raise WaferError(
            f"{program.name}: role {role.name!r} needs {used} bytes of SRAM per PE, {limit} are "
            f"free; largest tile {largest.name!r} has {largest.words * WORD_BYTES}: use more PEs"
        )


def _validate_colors(program: Program, role: Role, mask: np.ndarray) -> None:
    y, x = (int(v) for v in np.argwhere(mask)[0])
    here = f"{program.name}: role {role.name!r} (e.g. PE y={y}, x={x})"
    for end, color_of, queues, depths in (
        ("sends on", send_color, role.output_queues, program.hw.output_queue_depths),
        ("receives from", receive_color, role.input_queues, program.hw.input_queue_depths),
    ):
        owner: dict[int, int] = {}
        for t, events in enumerate(role.threads):
            for color in (c for c in map(color_of, events) if c is not None):
                if owner.setdefault(color, t) != t:
                    raise WaferError(f"{here}: threads {owner[color]} and {t} both use the end "
                                     f"that {end} colour {color}; one thread owns it")  # fmt: skip
        if len(set(queues.values())) < len(queues) or any(
            not 0 <= q < len(depths) for q in queues.values()
        ):
            raise WaferError(f"{here}: {len(queues)} colours need {len(queues)} distinct queues, "
                             f"{program.hw.name} has {len(depths)}")  # fmt: skip
        if missing := set(owner) - set(queues):
            raise WaferError(f"{here}: {end} colour {min(missing)} without a queue")
        for color in owner:
            if color not in program.colors:
                raise WaferError(f"{here}: {end} colour {color}, which has no route")
            i = program.colors.index(color)
            wired = program.rx[i] == RAMP if end == "sends on" else program.tx[i] >> RAMP & 1 == 1
            if bad := np.argwhere(mask & ~wired).tolist():
                raise WaferError(
                    f"{program.name}: PE (y={bad[0][0]}, x={bad[0][1]}) {end} colour {color}, but "
                    f"its router is not connected to the RAMP for it: paint the route"
                )
