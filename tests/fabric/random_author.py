"""Random programs whose routes stay: trees, word counts, slices, loops, signals, kernels.

How most programs come to an end: every stream has a random *position*, and each thread runs its
events in the order of their positions. The unfinished stream with the lowest position can always
go on, so nothing waits in a circle until a mishap makes it.
"""

from collections import defaultdict
from collections.abc import Callable
from random import Random

import numpy as np
from oracle_state import ELEMENT
from random_families import BLEND, COMMON, LOADED, MIRROR, SKEW, TILES, TURN, Family
from random_padding import pad
from random_registers import HEADERS, Registers
from random_trees import Position, Tree, grow_trees

from wafer_jax.builder import ProgramBuilder, RoleBuilder, ThreadBuilder
from wafer_jax.events import Combine, Register, Slice
from wafer_jax.hardware import OPPOSITE, RAMP, STEP_YX, HardwareSpec
from wafer_jax.program import NO_ROUTE, Program

MISHAPS = (
    "lost_rx",
    "lost_rx",
    "stray_tx",
    "stray_tx",
    "tree_meets_tree",
    "extra_send",
    "extra_send",
    "extra_send",
    "extra_receive",
    "overheard",
    "overheard",
    "lone_wait",
    "shuffle",
    "sleeper",
    "read_poison",
    "read_poison",
)
REGISTER_MISHAPS = (*MISHAPS, *("out_of_bounds", "meddle") * 5)
LAST = 100.0
"""A position behind all others."""


class Author:
    """Draws one program. ``plan`` collects (position, how to write it) per PE and thread."""

    def __init__(self, family: Family, rng: Random, hw: HardwareSpec, lean: bool) -> None:
        self.family, self.rng, self.hw, self.lean = family, rng, hw, lean
        height, width = family.mesh
        rows = 1 if family.rows_alike else height
        self.pes = [(y, x) for y in range(rows) for x in range(width)]
        self.num_threads = {pe: rng.randint(1, family.threads) for pe in self.pes}
        self.num_threads[rng.choice(self.pes)] = family.threads
        self.plan: dict[tuple[Position, int], list[tuple[float, Callable]]] = defaultdict(list)
        self.mishap = rng.choice(self._mishaps()) if rng.random() < 0.5 else None

    def write(self, name: str) -> tuple[Program, dict[str, np.ndarray]]:
        b = ProgramBuilder(self.hw, name)
        self.tiles = {name: b.tile(name, *TILES[name]) for name in COMMON}
        if self.family.register_kernels:
            self.tiles |= {name: b.tile(name, (1,)) for name in HEADERS}
        self.hubs = self._reserve()
        self.trees = self._grow()
        self._plan_streams()
        self._plan_kernels()
        self._plan_signals()
        self._meet_mishap()
        self._paint(b)
        for pe in self.pes:
            self._write_role(b, pe)
        program = b.build(inputs=LOADED, outputs=tuple(TILES))
        return (program if self.lean else pad(program, self.family)), self._load()

    def _mishaps(self) -> tuple[str, ...]:
        return REGISTER_MISHAPS if self.family.registers else MISHAPS

    def _moment(self) -> float:
        """A position among those of the streams."""
        return self.rng.random()

    # ---- routes ------------------------------------------------------------------------------

    def _grow(self) -> list[Tree]:
        places = {c: [pe for pe in self.pes if pe != hub] for c, hub in self.hubs.items()}
        return grow_trees(self.rng, places, self.family.trees, self.family.words)

    def _reserve(self) -> dict[int, Position | None]:
        """Per colour a PE outside all trees, whose router could transmit everywhere."""
        spare = len(self.pes) > 1 and not self.lean
        return {c: self.rng.choice(self.pes) if spare else None for c in self.family.colors}

    def _paint(self, b: ProgramBuilder) -> None:
        """Paint the trees, and routes that no word should ever take wherever a colour is free."""
        for tree in self.trees:
            for pe, rx in tree.rx.items():
                b.route(tree.color, *self._where(pe), rx, sorted(tree.tx[pe]))
        for color in self.family.colors:
            used = {pe for t in self.trees if t.color == color for pe in t.rx}
            for pe in self.pes:
                if pe not in used and (pe == self.hubs[color] or self.rng.random() < 0.6):
                    rx = self.rng.choice((0, 1, 2, 3, NO_ROUTE, RAMP))
                    tx = self.rng.sample(range(5), self.rng.randint(0, 3))
                    if pe == self.hubs[color]:
                        rx, tx = self.rng.randrange(4), range(5)
                    b.route(color, *self._where(pe), rx, tx)

    def _where(self, pe: Position) -> tuple[int | slice, int]:
        return (slice(None) if self.family.rows_alike else pe[0]), pe[1]

    # ---- events ------------------------------------------------------------------------------

    def _thread(self, pe: Position) -> int:
        return self.rng.randrange(self.num_threads[pe])

    def _plan_streams(self) -> None:
        forwards = {(t.feeder.color, t.source) for t in self.trees if t.feeder}
        for tree in self.trees:
            out = self._thread(tree.source)
            alone = not tree.feeder and not any(t.feeder is tree for t in self.trees)
            if alone and tree.dtype == "float32" and self.family.register_kernels:
                tree.announced = self.rng.random() < 0.4
            if tree.feeder:
                emit = self._forward(tree.feeder.color, tree)
            else:
                emit = self._send(tree)
                tree.owners[tree.source, "send"] = out
            self.plan[tree.source, out].append((tree.rank, emit))
            for pe in tree.sinks:
                if (tree.color, pe) in forwards:
                    continue
                others = [t for t in range(self.num_threads[pe]) if pe != tree.source or t != out]
                thread = self.rng.choice(others or [out])
                self.plan[pe, thread].append((tree.rank, self._receive(tree)))
                tree.owners[pe, "receive"] = thread

    def _send(self, tree: Tree) -> Callable:
        def one(t: ThreadBuilder, most: int, words: int | Register) -> None:
            t.send(tree.color, self._slice(tree.dtype, most, words, written=True))

        def announce(t: ThreadBuilder) -> None:
            self.registers.announce(t, lambda header: t.send(tree.color, header), one)

        return announce if tree.announced else lambda t: self._stream(t, tree.words, one)

    def _receive(self, tree: Tree) -> Callable:
        def one(t: ThreadBuilder, most: int, words: int | Register) -> None:
            combines = self.rng.random() < 0.4
            into = self._slice(tree.dtype, most, words, written=combines)
            t.receive(tree.color, into, self._combine() if combines else "copy")

        def listen(t: ThreadBuilder) -> None:
            self.registers.listen(t, lambda header: t.receive(tree.color, header), one)

        return listen if tree.announced else lambda t: self._stream(t, tree.words, one)

    def _forward(self, color_in: int, tree: Tree) -> Callable:
        def one(t: ThreadBuilder, most: int, words: int | Register) -> None:
            if self.rng.random() < 0.5:
                t.forward(color_in, tree.color, words=words)
            else:
                data = self._slice(tree.dtype, most, words, written=True)
                t.forward(color_in, tree.color, data, self._combine())

        return lambda t: self._stream(t, tree.words, one)

    def _combine(self) -> Combine:
        """How to combine; where poison may come in, only by an add.

        Which NaN a maximum is depends on the processor, and with it whether it is poison again.
        """
        if not self.family.registers or self.mishap in ("read_poison", "out_of_bounds"):
            return "add"
        return self.rng.choice(self.family.combines)

    def _stream(self, t: ThreadBuilder, words: int, one: Callable) -> None:
        """Write ``words`` words in pieces of at most 6: single events, loops and nested loops."""
        while words > 0:
            if self.family.registers and self.rng.random() < 0.6:
                words -= self.registers.stream(t, words, one)
                continue
            piece = self.rng.randint(1, min(words, 6))
            rounds = self.rng.randint(1, min(words // piece, 4))
            inner = self.rng.choice([n for n in (1, 2, 3) if rounds % n == 0])
            with t.loop(rounds // inner), t.loop(inner):
                one(t, piece, piece)
                if rounds > 1 and self.rng.random() < 0.2:
                    self._kernel(t)
            words -= piece * rounds

    def _slice(self, dtype: str, most: int, words: int | Register, *, written: bool) -> Slice:
        """A random slice of a random tile; ``written`` ones hold values (but for a mishap)."""
        dynamic = isinstance(words, Register)
        if self.mishap == "out_of_bounds" and dynamic and self.rng.random() < 0.4:
            end = max(t.offset + t.words for t in self.tiles.values())
            first = self.rng.choice([t for t in self.tiles.values() if t.dtype == dtype])
            return Slice(first.offset, self.rng.choice((-end, end, 2**20)), words, dtype)
        poison = self.mishap == "read_poison" and self.rng.random() < 0.3
        fits = [
            name
            for name, t in self.tiles.items()
            if t.dtype == dtype and t.words >= most and name not in HEADERS
        ]
        names = [n for n in fits if n not in LOADED]
        if not (poison and names):
            names = [n for n in fits if n in LOADED or not written]
        tile = self.tiles[self.rng.choice(names)]
        limit = (tile.words - 1) // (most - 1) if most > 1 else 3
        stride = self.rng.randint(1, min(max(limit, 1), 3))
        start = self.rng.randint(0, tile.words - 1 - stride * (most - 1))
        return tile.slice(start, words, stride)

    def _plan_kernels(self) -> None:
        times = (2, 4, 6) if self.family.registers else (0, 0, 1, 1, 2)
        for pe in self.pes:
            for _ in range(self.rng.choice(times)):
                self.plan[pe, self._thread(pe)].append((self._moment(), self._kernel))

    def _kernel(self, t: ThreadBuilder) -> None:
        if self.family.registers and self.rng.random() < 0.6:
            return self.registers.wander(t, self._plain_kernel)
        return self._plain_kernel(t)

    def _plain_kernel(self, t: ThreadBuilder, register: Register | None = None) -> None:
        a, b, h, g = (self.tiles[n] for n in COMMON[:4])
        kernel, inputs, outputs = self.rng.choice(
            ((TURN, (a,), (b,)), (BLEND, (a, b), (a, b)), (SKEW, (h,), (h,)), (MIRROR, (g,), (g,)))
        )
        cycles = self.rng.choice((1, 2, self.rng.randint(3, 12), self.rng.randint(20, 40)))
        t.compute(kernel, inputs, outputs, register or cycles)

    def _plan_signals(self) -> None:
        """Signals at a position, and as many waits at a later one in another thread."""
        for pe in (pe for pe in self.pes if self.num_threads[pe] > 1 and self.rng.random() < 0.5):
            first, second = self.rng.sample(range(self.num_threads[pe]), 2)
            before, after = sorted((self._moment(), self._moment()))
            semaphore, times = self.rng.randrange(self.family.semaphores), self.rng.randint(1, 3)
            self.plan[pe, first].append((before, _repeat("signal", semaphore, times)))
            self.plan[pe, second].append((after, _repeat("wait", semaphore, times)))

    # ---- mishaps -----------------------------------------------------------------------------

    def _meet_mishap(self) -> None:
        """Break a route, an order or a word count (`_slice` looks after "read_poison")."""
        rng, tree = self.rng, self.rng.choice(self.trees)
        pe, victim = rng.choice(list(tree.rx)), rng.choice(list(self.plan))
        match self.mishap:
            case "lost_rx" if pe != tree.source:
                tree.rx[pe] = NO_ROUTE
            case "stray_tx" if len(self.pes) > 1:
                tree.tx[pe].add(rng.randrange(4))
            case "tree_meets_tree":
                self._collide()
            case "overheard":
                tree.tx[pe].add(RAMP)
            case "extra_send" | "extra_receive":
                ends = [o for o in tree.owners.items() if self.mishap.endswith(o[0][1])]
                if not ends:
                    return
                (pe, end), thread = rng.choice(ends)
                words = rng.randint(1, 3)
                piece = self._slice(tree.dtype, words, words, written=True)
                self.plan[pe, thread].append((LAST, lambda t: getattr(t, end)(tree.color, piece)))
            case "lone_wait":
                self.plan[victim].append((self._moment(), self._wait_for_ever))
            case "shuffle":
                self.plan[victim] = [(self._moment(), emit) for _, emit in self.plan[victim]]
            case "sleeper":
                self.plan[victim] = []
            case "meddle":
                for _ in range(3):
                    self.plan[victim].append((self._moment(), lambda t: self.registers.meddle(t)))

    def _wait_for_ever(self, t: ThreadBuilder) -> None:
        t.wait(self.family.semaphores - 1)

    def _collide(self) -> None:
        """Let some PE transmit to a neighbour that listens elsewhere, if there is one."""
        wrong = [
            (tree, pe, d)
            for tree in self.trees
            for other in self.trees
            for pe in tree.rx
            for d, (dy, dx) in enumerate(STEP_YX)
            if tree.color == other.color
            and (at := (pe[0] + dy, pe[1] + dx)) in other.rx
            and other.rx[at] != OPPOSITE[d]
            and tree.rx[pe] != d
        ]
        if wrong:
            tree, pe, d = self.rng.choice(wrong)
            tree.tx[pe].add(d)

    # ---- roles -------------------------------------------------------------------------------

    def _write_role(self, b: ProgramBuilder, pe: Position) -> RoleBuilder:
        role = b.role(f"pe {pe[0]} {pe[1]}", at=self._where(pe))
        self._bind_queues(role, pe)
        for name in ("pad", "e"):
            if pe == self.pes[0] or self.rng.random() < 0.5:
                role.tile(name, *TILES[name])
        self.tiles = role.tiles
        for t in range(self.num_threads[pe]):
            thread = role.thread(t)
            self.registers = self._registers(t)
            for _, emit in sorted(self.plan[pe, t], key=lambda act: act[0]):
                emit(thread)
        return role

    def _registers(self, thread: int) -> Registers:
        return Registers(
            self.rng,
            thread,
            self.family.threads,
            self.tiles,
            kernels=self.family.register_kernels,
            endless=self.mishap != "meddle",
        )

    def _bind_queues(self, role: RoleBuilder, pe: Position) -> None:
        order = self.rng.sample(range(len(self.family.colors)), len(self.family.colors))
        for color, queue in zip(self.family.colors, order, strict=True):
            role.bind(color, input_queue=queue, output_queue=queue)

    def _load(self) -> dict[str, np.ndarray]:
        """Small integers, exact in every element type."""
        rng = np.random.default_rng(self.rng.getrandbits(32))
        return {
            name: rng.integers(-4, 9, (*TILES[name][0], *self.family.mesh)).astype(
                ELEMENT[TILES[name][1]]
            )
            for name in LOADED
        }


def _repeat(what: str, semaphore: int, times: int) -> Callable[[ThreadBuilder], None]:
    def emit(t: ThreadBuilder) -> None:
        with t.loop(times):
            getattr(t, what)(semaphore)

    return emit
