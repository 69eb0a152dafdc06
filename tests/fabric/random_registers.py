"""What the threads of random programs do with registers.

A thread has registers of its own for the length of a stream, the rounds of a loop and what a
kernel finds in the data, so that whatever they decide about streams comes out equal at both ends.
A fourth holds a length only from the event before a stream, which is when it is read: the other
threads change it as they like. One more is shared by all threads of a PE, and decides only what
cannot hold up anyone.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from wafer_jax.builder import ThreadBuilder
from wafer_jax.events import (
    AddToRegister,
    Branch,
    Compute,
    Event,
    Forward,
    Kernel,
    Receive,
    Register,
    Relation,
    Send,
    SetRegister,
    Tile,
)

HEADERS = ("n0", "n1", "n2")
"""A tile of one word per thread, for a length that travels ahead of the words."""
RELATIONS: tuple[Relation, ...] = ("==", "!=", "<", ">=")
LONGEST = 4
"""Words that a kernel can ask for."""


# As in random_families: module-level functions that numpy and jax both run, NaNs included.
def less(n):
    return n - 1


def census(a):
    return (a[0] > 2).sum()


def weigh(b, n):
    return b - n.astype("float32"), n + 1


def say(n):
    return n.astype("float32").reshape(1)


def hear(t):
    return sum((t[0] > k).astype("int32") for k in range(LONGEST))


_KERNELS = (Kernel(name=f.__name__, fn=f) for f in (less, census, weigh, say, hear))
LESS, CENSUS, WEIGH, SAY, HEAR = _KERNELS

RAMPS = [
    ([start + step * i for i in range(rounds)], step)
    for start in range(-2, 5)
    for step in (-1, 0, 1)
    for rounds in range(1, 5)
    if 1 <= max(start, start + step * (rounds - 1)) <= 4
]
"""Lengths of a stream from round to round of a loop; those below 1 move nothing."""


@dataclass(frozen=True)
class Registers:
    """The registers of one thread, and what a random program does with them.

    ``endless``: a loop that misses the end of its count may go on; not where others meddle with it.
    """

    rng: Random
    thread: int
    threads: int
    tiles: Mapping[str, Tile]
    kernels: bool
    endless: bool = False

    @property
    def length(self) -> Register:
        return Register(4 * self.thread)

    @property
    def count(self) -> Register:
        return Register(4 * self.thread + 1)

    @property
    def data(self) -> Register:
        return Register(4 * self.thread + 2)

    @property
    def brief(self) -> Register:
        return Register(4 * self.thread + 3)

    @property
    def shared(self) -> Register:
        return Register(4 * self.threads)

    # ---- streams -----------------------------------------------------------------------------

    def stream(self, t: ThreadBuilder, words: int, one: Callable) -> int:
        """Write a stream, or a loop of them with lengths that change; the words that they move."""
        if self.rng.random() < 0.3:
            length = self.rng.randint(1, min(words, 4))
            t.set(self.brief, length)
            one(t, length, self.brief)
            return length
        fits = [r for r in RAMPS if sum(n for n in r[0] if n > 0) <= words]
        lengths, step = self.rng.choice(fits)
        t.set(self.length, lengths[0])
        with self._skipped_or_not(t), self.counted(t, len(lengths)):
            one(t, max(lengths), self.length)
            if step == -1 and self.kernels and self.rng.random() < 0.5:
                t.compute(LESS, [self.length], [self.length], self.rng.randint(1, 4))
            elif step:
                t.add(self.length, step)
        return sum(n for n in lengths if n > 0)

    @contextmanager
    def counted(self, t: ThreadBuilder, rounds: int) -> Iterator[None]:
        """A loop that counts its rounds in a register, up or down."""
        up, first = self.rng.random() < 0.5, len(t.events) + 1
        t.set(self.count, -rounds if up else rounds)
        yield
        if not up and self.kernels and self.rng.random() < 0.3:
            t.compute(LESS, [self.count], [self.count], 1)
        else:
            t.add(self.count, 1 if up else -1)
        relation, value = ("<", 0) if up else (">=", 1)
        if self.endless and self.rng.random() < 0.4:
            relation, value = "!=", 0
        t.events.append(Branch(self.count.index, relation, value, first))

    @contextmanager
    def _skipped_or_not(self, t: ThreadBuilder) -> Iterator[None]:
        """Now and then a condition that holds, and behind it a block whose condition does not."""
        if self.rng.random() < 0.6:
            yield
            return
        value = self.rng.randint(-3, 3)
        t.set(self.count, value)
        with t.when(self.count, "==", value):
            yield
        t.set(self.count, value)
        with t.when(self.count, "<", value):
            t.wait(0).wait(0)

    def announce(self, t: ThreadBuilder, send: Callable, one: Callable) -> None:
        """Send as many words as a kernel says, and how many they are ahead of them."""
        header = self.tiles[HEADERS[self.thread]]
        t.compute(CENSUS, [self.tiles["a"]], [self.data], self.rng.randint(1, 6))
        t.compute(SAY, [self.data], [header], self.rng.randint(1, 3))
        send(header)
        one(t, LONGEST, self.data)

    def listen(self, t: ThreadBuilder, receive: Callable, one: Callable) -> None:
        """Receive what another thread announced."""
        header = self.tiles[HEADERS[self.thread]]
        receive(header)
        t.compute(HEAR, [header], [self.data], self.rng.randint(1, 6))
        one(t, LONGEST, self.data)

    # ---- what holds up nobody ------------------------------------------------------------------

    def wander(self, t: ThreadBuilder, kernel: Callable) -> None:
        """Something that depends on the data, or on when threads get to it."""
        options = [
            self._change_shared,
            self._change_brief,
            lambda t: kernel(t, self.shared),
            self._perhaps,
        ]
        if self.kernels:
            options += [self._perhaps_by_data, self._rounds_by_data, self._weigh]
        self.rng.choice(options)(t)

    def _change_shared(self, t: ThreadBuilder) -> None:
        if self.rng.random() < 0.5:
            t.set(self.shared, self.rng.choice((-(2**20), -2, 0, 3, 25)))
        else:
            t.add(self.shared, self.rng.choice((-1, 1, 7)))

    def _change_brief(self, t: ThreadBuilder) -> None:
        register = Register(4 * self.rng.randrange(self.threads) + 3)
        with self.counted(t, self.rng.randint(1, 6)):
            t.set(register, self.rng.randint(-2, 5))

    def _perhaps(self, t: ThreadBuilder, register: Register | None = None) -> None:
        relation, value = self.rng.choice(RELATIONS), self.rng.randint(-1, 4)
        with t.when(register or self.shared, relation, value):
            self._change_shared(t)

    def _perhaps_by_data(self, t: ThreadBuilder) -> None:
        self._count_data(t)
        self._perhaps(t, self.data)

    def _rounds_by_data(self, t: ThreadBuilder) -> None:
        self._count_data(t)
        first = len(t.events)
        t.add(self.data, -1)
        t.compute(LESS, [self.shared], [self.shared], self.data)
        t.events.append(Branch(self.data.index, ">=", 0, first))

    def _count_data(self, t: ThreadBuilder) -> None:
        t.compute(CENSUS, [self.tiles["a"]], [self.data], self.rng.choice((1, 9, self.shared)))

    def _weigh(self, t: ThreadBuilder) -> None:
        b = self.tiles["b"]
        t.compute(WEIGH, [b, self.shared], [b, self.shared], self.rng.choice((2, self.shared)))

    def meddle(self, t: ThreadBuilder) -> None:
        """Change registers that another thread may be using."""
        for _ in range(self.rng.randint(1, 4)):
            register = Register(self.rng.randrange(4 * self.threads))
            self.rng.choice((t.set, t.add))(register, self.rng.randint(-2, 3))

    # ---- everything ----------------------------------------------------------------------------

    def everything(self, first: int, last: int) -> list[Event]:
        """Every kind of event with a register, and every kernel on every register."""
        a, b = self.tiles["a"], self.tiles["b"]
        piece, top = a.slice(0, self.shared), self.shared.index
        out: list[Event] = [
            Send(first, piece),
            Receive(first, piece),
            Forward(first, last, self.shared),
            SetRegister(top, 1),
            AddToRegister(top, 1),
            *(Branch(top, how, 0, 0) for how in RELATIONS),
        ]
        if self.kernels:
            out += [
                *(Compute(LESS, (r,), (r,), 1) for r in (self.length, self.count)),
                Compute(LESS, (self.shared,), (self.shared,), self.data),
                Compute(CENSUS, (a,), (self.data,), self.shared),
                Compute(WEIGH, (b, self.shared), (b, self.shared), 1),
                Compute(SAY, (self.data,), (self.tiles[HEADERS[self.thread]],), 1),
                Compute(HEAR, (self.tiles[HEADERS[self.thread]],), (self.data,), 1),
            ]
        return out
