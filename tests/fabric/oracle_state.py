"""What the oracle keeps: FIFOs, threads, PEs, and how elements lie in words."""

from collections import Counter, deque
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from wafer_jax.events import Event, Slice, Tile

POISON = 0x7FBD7FBD
ELEMENT = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


class Fifo:
    """Words in order, each with the cycle from which it may leave (section 1, FIFOs)."""

    def __init__(self, capacity: int, latency: int) -> None:
        self.capacity = capacity
        self.latency = latency
        self.words: deque[tuple[int, int]] = deque()

    def has_room(self) -> bool:
        return len(self.words) < self.capacity

    def has_head(self, now: int) -> bool:
        return bool(self.words) and self.words[0][0] <= now

    def in_flight(self, now: int) -> bool:
        return bool(self.words) and self.words[-1][0] > now

    def ready(self, now: int) -> int:
        return sum(ready_at <= now for ready_at, _ in self.words)

    def push(self, word: int, now: int) -> None:
        assert self.has_room()
        self.words.append((now + self.latency, word))

    def pop(self) -> int:
        return self.words.popleft()[1]


@dataclass
class Thread:
    """One thread's place in its table; a thread that its role lacks has an empty table."""

    events: tuple[Event, ...]
    pc: int = 0
    left: int = 0
    ready_at: int = 0
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
    """Everything that lies on one PE."""

    threads: list[Thread]
    sram: np.ndarray
    routes: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)  # (rx, tx) by colour
    router: dict[int, Fifo] = field(default_factory=dict)
    queue: dict[int, Fifo] = field(default_factory=dict)
    color_pointer: int = 0
    thread_pointer: int = 0
    semaphores: Counter = field(default_factory=Counter)
    running: list[Running] = field(default_factory=list)
    sent: Counter = field(default_factory=Counter)
    received: Counter = field(default_factory=Counter)
    faults: int = 0
    fault_cycle: int = -1


def add_words(memory: int, word: int, piece: Slice) -> int:
    """``memory + word`` in the element type: one float32, or two halves each on its own.

    Halves are added as float32 and rounded once, which is exactly an add of halves.
    """
    both = np.array([memory, word], np.uint32).view(ELEMENT[piece.dtype])
    with np.errstate(all="ignore"):
        left, right = both.astype(np.float32).reshape(2, -1)
        total = (left + right).astype(both.dtype)
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
