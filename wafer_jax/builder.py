"""Build a program by hand: tiles, coloured routes, roles and their event tables.

b = ProgramBuilder(hw, "hello")
x = b.tile("x", (4,))
b.path(0, (0, 0), (2, 3))
b.role("source", at=(0, 0)).thread().send(0, x)
b.role("sink", at=(2, 3)).thread().receive(0, x)
program = b.build(inputs=["x"], outputs=["x"])
"""

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from wafer_jax.arguments import is_whole, shown, whole
from wafer_jax.errors import WaferError
from wafer_jax.events import Halt, Tile, receive_color, send_color
from wafer_jax.hardware import DTYPE_BYTES, RAMP, HardwareSpec
from wafer_jax.program import Program, Queues, Role, Segment
from wafer_jax.segment_builder import Index, Route, SegmentBuilder, as_mask, region
from wafer_jax.thread_builder import ThreadBuilder, own_number
from wafer_jax.validation import validate


class RoleBuilder:
    """One role: the PEs that play it, its threads, its tiles."""

    def __repr__(self) -> str:
        return (
            f"RoleBuilder({self.name!r}, {int(self.mask.sum())} PEs, {len(self.threads)} threads)"
        )

    def __init__(
        self,
        hw: HardwareSpec,
        name: str,
        mask: np.ndarray,
        tiles: dict[str, Tile],
        segments: Sequence[SegmentBuilder],
    ) -> None:
        self.hw = hw
        self.name = name
        self.mask = mask
        self.tiles = dict(tiles)
        self.threads: list[ThreadBuilder] = []
        self._segments = segments
        self._queues: dict[tuple[str, int, int], int] = {}

    def thread(self, index: int = 0) -> ThreadBuilder:
        """Thread ``index`` of the role, made on first use."""
        index = whole(index, f"role {self.name!r}: the number of a thread")
        if not 0 <= index < self.hw.threads:
            raise WaferError(
                f"role {self.name!r}: there is no thread {index}, {self.hw.name} has "
                f"{self.hw.threads} (0 .. {self.hw.threads - 1})"
            )
        while len(self.threads) <= index:
            self.threads.append(ThreadBuilder(self._segments))
        return self.threads[index]

    def tile(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Tile:
        """Add a tile behind the role's others."""
        return _append_tile(self.tiles, name, shape, dtype, f"role {self.name!r}")

    def bind(
        self,
        color: int,
        *,
        input_queue: int | None = None,
        output_queue: int | None = None,
        segment: SegmentBuilder | None = None,
    ) -> None:
        """Bind a colour to a chosen queue, in the first segment if none is named.

        Unbound colours take the next free queue.
        """
        number = 0 if segment is None else own_number(segment, self._segments)
        color = whole(color, f"role {self.name!r}: the colour to bind")
        for end, queue in (("in", input_queue), ("out", output_queue)):
            if queue is not None:
                self._queues[end, color, number] = whole(queue, f"role {self.name!r}: a queue")

    def bound(self, end: str, colors: Sequence[int], segment: int) -> dict[int, int]:
        """Queue of each colour, chosen ones first, then the lowest free numbers in order."""
        asked = {c: self._queues.get((end, c, segment)) for c in colors}
        chosen = {c: q for c, q in asked.items() if q is not None}
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
            f"segments {[segment.name for segment in self._segments]}, "
            f"roles {[role.name for role in self._roles]})"
        )

    def __init__(self, hw: HardwareSpec, name: str = "program") -> None:
        if not isinstance(hw, HardwareSpec):
            raise WaferError(f"a program for {shown(hw)}: give a machine, as wj.hardware() returns")
        self.hw = hw
        self.name = name
        self._segments = [SegmentBuilder(hw, "first", 0, name)]
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
        mask = np.zeros(self.hw.mesh, bool) if where is None else as_mask(self.hw, self.name, where)
        if at is not None:
            if not isinstance(at, tuple | list) or len(at) != 2:
                raise WaferError(f"{self.name}: role {name!r}: at={shown(at)} is not (ys, xs)")
            mask[region(self.hw, self.name, *at)] = True
        # A computed mask may well be empty, on a line without middle PEs, say.
        if where is None and not mask.any():
            raise WaferError(f"{self.name}: role {name!r} has no PEs: give at=(ys, xs) or where")
        builder = RoleBuilder(self.hw, name, mask, self._tiles, self._segments)
        self._roles.append(builder)
        return builder

    def segment(self, name: str) -> SegmentBuilder:
        """A further segment, to be painted and installed with `ThreadBuilder.reconfigure`.

        Raises:
          WaferError: A name that is taken.
        """
        if any(segment.name == name for segment in self._segments):
            raise WaferError(f"{self.name}: segment {name!r} exists already")
        self._segments.append(SegmentBuilder(self.hw, name, len(self._segments), self.name))
        return self._segments[-1]

    def route(self, color: int, ys: Index, xs: Index, rx: int, tx: int | Sequence[int]) -> None:
        """`SegmentBuilder.route` in the first segment."""
        self._segments[0].route(color, ys, xs, rx, tx)

    def route_where(self, color: int, mask: np.ndarray, rx: int, tx: int | Sequence[int]) -> None:
        """`SegmentBuilder.route_where` in the first segment."""
        self._segments[0].route_where(color, mask, rx, tx)

    def path(self, color: int, start: tuple[int, int], end: tuple[int, int]) -> None:
        """`SegmentBuilder.path` in the first segment."""
        self._segments[0].path(color, start, end)

    def switch(
        self, color: int, ys: Index, xs: Index, *positions: Route, ring: bool = False
    ) -> None:
        """`SegmentBuilder.switch` in the first segment."""
        self._segments[0].switch(color, ys, xs, *positions, ring=ring)

    def build(
        self, inputs: Sequence[str | Tile] = (), outputs: Sequence[str | Tile] = ()
    ) -> Program:
        """Freeze into a validated program whose ``inputs`` are loaded and ``outputs`` read.

        Raises:
          WaferError: Anything that docs/semantics.md refuses before a run.
        """
        for role in self._roles:
            for t, thread in enumerate(role.threads):
                if thread.open_blocks:
                    raise WaferError(
                        f"{self.name}: role {role.name!r}, thread {t} is inside "
                        f"`with {thread.open_blocks[-1]}`: build after its end"
                    )
        inputs, outputs = _names(inputs, "inputs"), _names(outputs, "outputs")
        colors = tuple(sorted({c for segment in self._segments for c in segment.colors}))
        first = self._segments[0].freeze(colors, None)
        segments = (first, *(s.freeze(colors, first) for s in self._segments[1:]))
        role_of = np.zeros(self.hw.mesh, np.int32)
        for i, role in enumerate(self._roles, start=1):
            role_of[role.mask] = i
        roles = [Role(name="idle", threads=((Halt(),),), tiles=MappingProxyType(self._tiles))]
        roles += [
            self._freeze(role, segments, colors, role_of == i)
            for i, role in enumerate(self._roles, start=1)
        ]
        used, role_of = np.unique(role_of, return_inverse=True)
        program = Program(
            name=self.name,
            hw=self.hw,
            colors=colors,
            segments=segments,
            role_of=role_of.reshape(self.hw.mesh).astype(np.int32),
            roles=tuple(roles[i] for i in used),
            inputs=inputs,
            outputs=outputs,
        )
        for name in (*inputs, *outputs):
            if not any(name in r.tiles for r in program.roles):
                raise WaferError(f"{self.name}: no role has a tile {name!r}")
        validate(program)
        return program

    def _freeze(
        self,
        role: RoleBuilder,
        segments: Sequence[Segment],
        colors: tuple[int, ...],
        mask: np.ndarray,
    ) -> Role:
        threads = tuple((*t.events, Halt()) for t in role.threads) or ((Halt(),),)
        return Role(
            name=role.name,
            threads=threads,
            tiles=MappingProxyType(role.tiles),
            queues=tuple(
                _bind(role, number, segment, colors, mask, only_wired=len(segments) > 1)
                for number, segment in enumerate(segments)
            ),
        )


def _bind(
    role: RoleBuilder,
    number: int,
    segment: Segment,
    colors: tuple[int, ...],
    mask: np.ndarray,
    *,
    only_wired: bool,
) -> Queues:
    """Queues of a role in a segment: of the colours that it sends and that are delivered to it.

    With several segments a colour needs a queue only in those that connect it to the RAMP.
    """
    events = [e for t in role.threads for e in t.events]
    sent = _in_order(send_color(e) for e in events)
    received = _in_order(receive_color(e) for e in events)
    from_ramp = (segment.rx == RAMP)[..., mask].any(axis=(0, 2))
    to_ramp = (segment.tx >> RAMP & 1 == 1)[..., mask].any(axis=(0, 2))
    if only_wired:
        sent = [c for c in sent if c in colors and from_ramp[colors.index(c)]]
        received = [c for c in received if c in colors and to_ramp[colors.index(c)]]
    delivered = [c for i, c in enumerate(colors) if to_ramp[i]]
    return Queues(
        output=MappingProxyType(role.bound("out", sent, number)),
        input=MappingProxyType(role.bound("in", _in_order([*received, *delivered]), number)),
    )


def _append_tile(
    tiles: dict[str, Tile], name: str, shape: Sequence[int], dtype: str, where: str
) -> Tile:
    if name in tiles:
        raise WaferError(f"{where}: tile {name!r} exists already")
    if not isinstance(shape, Sequence) or not all(is_whole(n) and int(n) >= 1 for n in shape):
        raise WaferError(
            f"{where}: tile {name!r} has shape {shown(shape)}: give positive whole numbers"
        )
    if dtype not in list(DTYPE_BYTES):
        raise WaferError(
            f"{where}: tile {name!r}: dtype {shown(dtype)} is none of {list(DTYPE_BYTES)}"
        )
    offset = max((t.offset + t.words for t in tiles.values()), default=0)
    tiles[name] = Tile(name=name, offset=offset, shape=tuple(int(n) for n in shape), dtype=dtype)
    return tiles[name]


def _names(tiles: Sequence[str | Tile], what: str) -> tuple[str, ...]:
    if not isinstance(tiles, list | tuple) or not all(isinstance(t, str | Tile) for t in tiles):
        raise WaferError(f"{what}={shown(tiles)}: give a list of the names of tiles")
    return tuple(t.name if isinstance(t, Tile) else t for t in tiles)


def _in_order(colors) -> list[int]:
    return list(dict.fromkeys(c for c in colors if c is not None))
