"""What the oracle keeps: FIFOs, threads, PEs, and how elements lie in words."""

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from wafer_jax.events import Combine, Command, Event, Register, Tile

if TYPE_CHECKING:
    from oracle_routes import Routes

POISON = 0x7FBD7FBD
COMBINE = {"add": np.add, "max": np.maximum, "min": np.minimum}
ELEMENT = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Word:
    """Data, or with a command a control wavelet; and the segment in which it was sent."""

    data: int
    segment: int
    command: Command | None = None


class Fifo:
    """Words in order, each with the cycle from which it may leave (section 1, FIFOs).

    Without a route it has neither capacity nor latency.
    """

    def __init__(self) -> None:
        self.capacity = 0
        self.latency = 0
        self.words: deque[tuple[int, Word]] = deque()

    @property
    def head(self) -> Word:
        return self.words[0][1]

    def has_room(self) -> bool:
        return len(self.words) < self.capacity

    def has_head(self, now: int) -> bool:
        return bool(self.words) and self.words[0][0] <= now

    def in_flight(self, now: int) -> bool:
        return bool(self.words) and self.words[-1][0] > now

    def ready(self, now: int) -> int:
        return sum(ready_at <= now for ready_at, _ in self.words)

    def push(self, word: Word, now: int) -> bool:
        """Append a word; whether the one ahead of it holds it up in the pipeline."""
        assert self.has_room()
        earliest = self.words[-1][0] + 1 if self.words else 0
        self.words.append((max(now + self.latency, earliest), word))
        return earliest > now + self.latency

    def pop(self) -> Word:
        return self.words.popleft()[1]


@dataclass
class Thread:
    """One thread's place in its table; a thread that its role lacks has an empty table.

    ``words`` is how many the current event moves if it is a stream, ``loaded`` how many events
    came before it, and ``idle_from`` the cycle after its last issue.
    """

    number: int
    events: tuple[Event, ...]
    pc: int = 0
    words: int = 0
    left: int = 0
    loaded: int = 0
    ready_at: int = 0
    idle_from: int = 0
    halted: bool = False
    loop_counters: Counter = field(default_factory=Counter)

    @property
    def event(self) -> Event:
        return self.events[self.pc]


@dataclass
class Running:
    """A kernel under way in cycles ``first .. last``, and the words that it must have alone."""

    first: int
    last: int
    inputs: set[int]
    outputs: set[int]


@dataclass
class Pe:
    """Everything that lies on one PE ``at`` (y, x); ``number`` is its place in row-major order.

    ``tables`` are the routes of every segment and colour, ``routes`` the current (rx, tx) by
    colour. ``link_free`` (by direction) and ``slot_free`` are the cycles from which the links and
    the issue slot are free.
    """

    number: int
    at: tuple[int, int]
    threads: list[Thread]
    sram: np.ndarray
    tables: "list[list[Routes]]"
    router: list[Fifo]
    queue: list[Fifo]
    segment: int = 0
    positions: Counter = field(default_factory=Counter)
    routes: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    color_pointer: int = 0
    thread_pointer: int = 0
    link_free: dict[int, int] = field(default_factory=dict)
    slot_free: int = 0
    semaphores: Counter = field(default_factory=Counter)
    registers: Counter = field(default_factory=Counter)
    running: list[Running] = field(default_factory=list)
    sent: Counter = field(default_factory=Counter)
    received: Counter = field(default_factory=Counter)
    faults: int = 0
    fault_cycle: int = -1

    def value(self, number: int | Register) -> int:
        """A number, be it a constant or in a register."""
        return self.registers[number.index] if isinstance(number, Register) else number


def signed(value: int) -> int:
    """``value`` modulo 2^32, as an int32."""
    return (value + 2**31) % 2**32 - 2**31


def combine_words(how: Combine, memory: int, word: int, dtype: str) -> int:
    """``memory (+) word`` in the element type: one float32, or two halves each on its own.

    Halves are combined as float32 and rounded once, which is exact for max and min, and exactly
    an add of halves.
    """
    both = np.array([memory, word], np.uint32).view(ELEMENT[dtype])
    with np.errstate(all="ignore"):
        left, right = both.astype(np.float32).reshape(2, -1)
        total = COMBINE[how](left, right).astype(both.dtype)
    return int(total.view(np.uint32)[0])


def addresses(tile: Tile) -> range:
    return range(tile.offset, tile.offset + tile.words)


def read_tile(sram: np.ndarray, tile: Tile) -> np.ndarray:
    words = sram[tile.offset : tile.offset + tile.words].copy()
    return words.view(ELEMENT[tile.dtype])[: tile.size].reshape(tile.shape)


def write_tile(sram: np.ndarray, tile: Tile, value: np.ndarray) -> None:
    """Element 0 goes to the low half of a 16-bit tile's first word; an odd tail is zero."""
    element = np.dtype(ELEMENT[tile.dtype])
    padded = np.zeros(tile.words * 4 // element.itemsize, element)
    padded[: tile.size] = np.asarray(value, element).reshape(tile.size)
    sram[tile.offset : tile.offset + tile.words] = padded.view(np.uint32)
