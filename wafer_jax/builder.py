"""Build a program by hand: tiles, coloured routes, roles and their event tables.

b = ProgramBuilder(hw, "hello")
x = b.tile("x", (4,))
b.path(0, (0, 0), (2, 3))
b.role("source", at=(0, 0)).thread().send(0, x)
b.role("sink", at=(2, 3)).thread().receive(0, x)
program = b.build(inputs=["x"], outputs=["x"])
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import MappingProxyType

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.events import (
    AddToRegister,
    Branch,
    Combine,
    Compute,
    Event,
    Forward,
    Halt,
    Kernel,
    Loop,
    Receive,
    Register,
    Relation,
    Send,
    SetRegister,
    Signal,
    Slice,
    Tile,
    Wait,
    receive_color,
    send_color,
)
from wafer_jax.hardware import (
    DIRECTION_NAMES,
    DTYPE_BYTES,
    OPPOSITE,
    RAMP,
    STEP_YX,
    E,
    HardwareSpec,
    N,
    S,
    W,
)
from wafer_jax.program import NO_ROUTE, Program, Role
from wafer_jax.validation import validate

_OPPOSITE_RELATION: dict[Relation, Relation] = {"==": "!=", "!=": "==", "<": ">=", ">=": "<"}

Index = int | slice | Sequence[int] | np.ndarray


class ThreadBuilder:
    """Appends events to one thread; every method returns the builder, so calls chain."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._level = 0

    def _add(self, event: Event) -> "ThreadBuilder":
        self.events.append(event)
        return self

    def send(self, color: int, data: Tile | Slice) -> "ThreadBuilder":
        """Send a tile or slice on a colour."""
        return self._add(Send(color, _slice(data)))

    def receive(self, color: int, into: Tile | Slice, combine: Combine = "copy") -> "ThreadBuilder":
        """Receive words from a colour into a tile or slice, or add them to it."""
        return self._add(Receive(color, _slice(into), combine))

    def forward(
        self,
        color_in: int,
        color_out: int,
        data: Tile | Slice | None = None,
        combine: Combine = "add",
        *,
        words: int | Register = 0,
    ) -> "ThreadBuilder":
        """Pass words on from one colour to another, combined with a tile if given."""
        if data is None:
            if not isinstance(words, Register) and words < 1:
                raise WaferError(
                    f"forward {color_in} -> {color_out}: say how many words, or a tile"
                )
            return self._add(Forward(color_in, color_out, words))
        data = _slice(data)
        return self._add(Forward(color_in, color_out, data.words, data, combine))

    def compute(
        self,
        kernel: Kernel,
        inputs: Sequence[Tile | Register],
        outputs: Sequence[Tile | Register],
        cycles: int | Register,
    ) -> "ThreadBuilder":
        """Run a kernel on one tile or more; it takes ``cycles`` >= 1."""
        whole = isinstance(cycles, int | np.integer | Register)
        if not whole or (not isinstance(cycles, Register) and cycles < 1):
            raise WaferError(
                f"kernel {kernel.name!r} takes {cycles} cycles: give a whole number, at least 1"
            )
        cycles = cycles if isinstance(cycles, Register) else int(cycles)
        if not inputs:
            raise WaferError(
                f"kernel {kernel.name!r} has no input tile: give it one, if only a word"
            )
        return self._add(Compute(kernel, tuple(inputs), tuple(outputs), cycles))

    def signal(self, semaphore: int) -> "ThreadBuilder":
        """Add one to a semaphore."""
        return self._add(Signal(semaphore))

    def wait(self, semaphore: int) -> "ThreadBuilder":
        """Block until a semaphore is positive, then subtract one."""
        return self._add(Wait(semaphore))

    def set(self, register: Register, value: int) -> "ThreadBuilder":
        """Set a register to a constant."""
        return self._add(SetRegister(register.index, value))

    def add(self, register: Register, value: int) -> "ThreadBuilder":
        """Add a constant to a register."""
        return self._add(AddToRegister(register.index, value))

    @contextmanager
    def when(self, register: Register, relation: Relation, value: int) -> Iterator[None]:
        """Run the events of the ``with`` block only if the relation holds."""
        at = len(self.events)
        self.events.append(Halt())
        yield
        skip = _OPPOSITE_RELATION[relation]
        self.events[at] = Branch(register.index, skip, value, len(self.events))

    @contextmanager
    def loop(self, count: int) -> Iterator[None]:
        """Repeat the events of the ``with`` block ``count`` times."""
        if count < 1:
            raise WaferError(f"a loop of {count} rounds: at least 1 is needed")
        first, level = len(self.events), self._level
        self._level += 1
        yield
        self._level -= 1
        if count > 1 and len(self.events) > first:
            self.events.append(Loop(first, count, level))


class RoleBuilder:
    """One role: the PEs that play it, its threads, its tiles."""

    def __repr__(self) -> str:
        return (
            f"RoleBuilder({self.name!r}, {int(self.mask.sum())} PEs, {len(self.threads)} threads)"
        )

    def __init__(self, name: str, mask: np.ndarray, tiles: dict[str, Tile]) -> None:
        self.name = name
        self.mask = mask
        self.tiles = dict(tiles)
        self.threads: list[ThreadBuilder] = []
        self._queues: dict[tuple[str, int], int] = {}

    def thread(self, index: int = 0) -> ThreadBuilder:
        """Thread ``index`` of the role, made on first use."""
        while len(self.threads) <= index:
            self.threads.append(ThreadBuilder())
        return self.threads[index]

    def tile(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Tile:
        """Add a tile behind the role's others."""
        return _append_tile(self.tiles, name, shape, dtype, f"role {self.name!r}")

    def bind(
        self, color: int, *, input_queue: int | None = None, output_queue: int | None = None
    ) -> None:
        """Bind a colour to a chosen queue; unbound colours take the next free one."""
        if input_queue is not None:
            self._queues["in", color] = input_queue
        if output_queue is not None:
            self._queues["out", color] = output_queue

    def bound(self, end: str, colors: Sequence[int]) -> dict[int, int]:
        """Queue of each colour, chosen ones first, then the lowest free numbers in order."""
        chosen = {c: self._queues[end, c] for c in colors if (end, c) in self._queues}
        free = (q for q in range(len(colors) + len(chosen)) if q not in chosen.values())
        return {c: chosen[c] if c in chosen else next(free) for c in colors}


class ProgramBuilder:
    """Collects routes, tiles and roles, and builds a validated `Program`.

    Args:
      hw: The machine; ``hw.mesh`` is the mesh of the program.
      name: What the program does.
    """

    def __repr__(self) -> str:
        height, width = self.hw.mesh
        return (
            f"ProgramBuilder({self.name!r}, {height}x{width} PEs of {self.hw.name}, "
            f"colours {sorted(self._routes)}, roles {[role.name for role in self._roles]})"
        )

    def __init__(self, hw: HardwareSpec, name: str = "program") -> None:
        self.hw = hw
        self.name = name
        self._routes: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._tiles: dict[str, Tile] = {}
        self._roles: list[RoleBuilder] = []

    def tile(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Tile:
        """Add a tile to every role, present and future (before roles add their own)."""
        tile = _append_tile(self._tiles, name, shape, dtype, self.name)
        for role in self._roles:
            if any(t.offset + t.words > tile.offset for t in role.tiles.values()):
                raise WaferError(f"{self.name}: add common tile {name!r} before tiles of roles")
            role.tiles[name] = tile
        return tile

    def role(
        self, name: str, at: tuple[Index, Index] | None = None, where: np.ndarray | None = None
    ) -> RoleBuilder:
        """A new role for the PEs at ``(ys, xs)`` or where a [Y, X] mask holds.

        A PE plays the role that was assigned to it last; PEs without a role are idle.

        Raises:
          WaferError: A name that is taken, no PEs, or PEs off the mesh.
        """
        if any(role.name == name for role in self._roles):
            raise WaferError(f"{self.name}: role {name!r} exists already")
        mask = np.zeros(self.hw.mesh, bool) if where is None else self._mask(where)
        if at is not None:
            mask[self._region(*at)] = True
        # A computed mask may well be empty, on a line without middle PEs, say.
        if where is None and not mask.any():
            raise WaferError(f"{self.name}: role {name!r} has no PEs: give at=(ys, xs) or where")
        builder = RoleBuilder(name, mask, self._tiles)
        self._roles.append(builder)
        return builder

    def route(self, color: int, ys: Index, xs: Index, rx: int, tx: int | Sequence[int]) -> None:
        """Set the route of a colour on a region: receive from ``rx``, transmit to ``tx``.

        Raises:
          WaferError: A colour that the machine lacks, or a PE that already receives elsewhere.
        """
        self._paint(color, self._region(ys, xs), rx, tx)

    def route_where(self, color: int, mask: np.ndarray, rx: int, tx: int | Sequence[int]) -> None:
        """Like `route`, for the PEs of a [Y, X] mask."""
        self._paint(color, self._mask(mask), rx, tx)

    def path(self, color: int, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Route a colour from PE ``start`` (y, x) to PE ``end``, first along x, then along y.

        Painted over an existing path with the same start, it makes a multicast tree.
        """
        self._check(start)
        self._check(end)
        (y, x), rx = start, RAMP
        while (y, x) != end:
            step = (E if end[1] > x else W) if x != end[1] else (S if end[0] > y else N)
            self.route(color, y, x, rx, step)
            y, x, rx = y + STEP_YX[step][0], x + STEP_YX[step][1], OPPOSITE[step]
        self.route(color, y, x, rx, RAMP)

    def build(self, inputs: Sequence[str] = (), outputs: Sequence[str] = ()) -> Program:
        """Freeze into a validated program whose ``inputs`` are loaded and ``outputs`` read.

        Raises:
          WaferError: Anything that docs/semantics.md refuses before a run.
        """
        colors = tuple(sorted(self._routes))
        empty = np.zeros((0, *self.hw.mesh))
        rx = np.stack([self._routes[c][0] for c in colors]) if colors else empty.astype(np.int8)
        tx = np.stack([self._routes[c][1] for c in colors]) if colors else empty.astype(np.uint8)
        role_of = np.zeros(self.hw.mesh, np.int32)
        for i, role in enumerate(self._roles, start=1):
            role_of[role.mask] = i
        roles = [Role(name="idle", threads=((Halt(),),), tiles=MappingProxyType(self._tiles))]
        roles += [
            self._freeze(role, colors, tx, role_of == i)
            for i, role in enumerate(self._roles, start=1)
        ]
        used, role_of = np.unique(role_of, return_inverse=True)
        program = Program(
            name=self.name,
            hw=self.hw,
            colors=colors,
            rx=rx,
            tx=tx,
            role_of=role_of.reshape(self.hw.mesh).astype(np.int32),
            roles=tuple(roles[i] for i in used),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
        )
        for name in (*inputs, *outputs):
            if not any(name in r.tiles for r in program.roles):
                raise WaferError(f"{self.name}: no role has a tile {name!r}")
        validate(program)
        return program

    def _freeze(
        self, role: RoleBuilder, colors: tuple[int, ...], tx: np.ndarray, mask: np.ndarray
    ) -> Role:
        threads = tuple((*t.events, Halt()) for t in role.threads) or ((Halt(),),)
        events = [e for t in threads for e in t]
        sent = _in_order(send_color(e) for e in events)
        received = _in_order(receive_color(e) for e in events)
        delivered = [c for i, c in enumerate(colors) if (tx[i][mask] >> RAMP & 1).any()]
        return Role(
            name=role.name,
            threads=threads,
            tiles=MappingProxyType(role.tiles),
            output_queues=MappingProxyType(role.bound("out", sent)),
            input_queues=MappingProxyType(role.bound("in", _in_order([*received, *delivered]))),
        )

    def _paint(self, color: int, where, rx: int, tx: int | Sequence[int]) -> None:
        if not 0 <= color < self.hw.colors:
            raise WaferError(
                f"{self.name}: colour {color} does not exist, {self.hw.name} has 0 .. "
                f"{self.hw.colors - 1}"
            )
        targets = [tx] if isinstance(tx, int) else list(tx)
        for d in (*([] if rx == NO_ROUTE else [rx]), *targets):
            if isinstance(d, bool) or not isinstance(d, int) or not N <= d <= RAMP:
                raise WaferError(
                    f"{self.name}: colour {color}: {d!r} is none of N, E, S, W, RAMP = 0 .. 4"
                )
        if color not in self._routes:
            self._routes[color] = (
                np.full(self.hw.mesh, NO_ROUTE, np.int8),
                np.zeros(self.hw.mesh, np.uint8),
            )
        receive, transmit = self._routes[color]
        clash = (receive[where] != NO_ROUTE) & (receive[where] != rx)
        if clash.any():
            y, x = _first(where, clash, self.hw.mesh)
            raise WaferError(
                f"{self.name}: PE (y={y}, x={x}) would receive colour {color} from "
                f"{DIRECTION_NAMES[receive[y, x]]} and {DIRECTION_NAMES[rx]}: use another colour"
            )
        receive[where] = rx
        for d in targets:
            transmit[where] |= np.uint8(1 << d)

    def _region(self, ys: Index, xs: Index):
        height, width = self.hw.mesh
        try:
            y, x = np.arange(height)[_as_index(ys)], np.arange(width)[_as_index(xs)]
        except IndexError:
            raise WaferError(
                f"{self.name}: rows {ys}, columns {xs} reach beyond the {height}x{width} mesh"
            ) from None
        return np.ix_(np.atleast_1d(y), np.atleast_1d(x))

    def _mask(self, where: np.ndarray) -> np.ndarray:
        mask = np.array(where, bool)
        if mask.shape != self.hw.mesh:
            raise WaferError(f"{self.name}: a mask has shape {mask.shape}, not {self.hw.mesh}")
        return mask

    def _check(self, pe: tuple[int, int]) -> None:
        height, width = self.hw.mesh
        if not (0 <= pe[0] < height and 0 <= pe[1] < width):
            raise WaferError(
                f"{self.name}: PE (y={pe[0]}, x={pe[1]}) is not on the {height}x{width} mesh"
            )


def _append_tile(
    tiles: dict[str, Tile], name: str, shape: Sequence[int], dtype: str, where: str
) -> Tile:
    if name in tiles:
        raise WaferError(f"{where}: tile {name!r} exists already")
    whole = isinstance(shape, Sequence) and all(isinstance(n, int | np.integer) for n in shape)
    if not whole or any(n < 1 for n in shape):
        raise WaferError(f"{where}: tile {name!r} has shape {shape}: give positive whole numbers")
    if dtype not in DTYPE_BYTES:
        raise WaferError(f"{where}: tile {name!r}: dtype {dtype!r} is none of {list(DTYPE_BYTES)}")
    offset = max((t.offset + t.words for t in tiles.values()), default=0)
    tiles[name] = Tile(name=name, offset=offset, shape=tuple(int(n) for n in shape), dtype=dtype)
    return tiles[name]


def _slice(data: Tile | Slice) -> Slice:
    return data.slice() if isinstance(data, Tile) else data


def _as_index(index: Index):
    return index if isinstance(index, int | slice) else np.asarray(index, dtype=np.int64)


def _in_order(colors) -> list[int]:
    return list(dict.fromkeys(c for c in colors if c is not None))


def _first(where, clash: np.ndarray, mesh: tuple[int, int]) -> tuple[int, int]:
    marked = np.zeros(mesh, bool)
    marked[where] = clash
    return tuple(int(v) for v in np.argwhere(marked)[0])  # pyright: ignore[reportReturnType]
