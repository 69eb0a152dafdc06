"""Tiles, kernels and the events of a thread's table (docs/semantics.md, section 2.2)."""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Any, Literal

from wafer_jax.arguments import shown, whole
from wafer_jax.errors import WaferError
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES

REGISTERS = 32
"""Registers of a PE."""

Combine = Literal["copy", "add", "max", "min"]
Relation = Literal["==", "!=", "<", ">="]
Command = Literal["none", "advance", "reset", "tear down"]
"""What a control wavelet does to the switches that it passes."""


class _Checked:
    """Refuses fields of a wrong kind, whoever makes the event; numpy's integers become Python's."""

    def __post_init__(self) -> None:
        for f in fields(self):  # pyright: ignore[reportArgumentType]
            value = getattr(self, f.name)
            if f.name in _CHECKS and not (value is None and f.default is None):
                what = f"{type(self).__name__}: {f.name}"
                object.__setattr__(self, f.name, _CHECKS[f.name](value, what))


@dataclass(frozen=True)
class Register:
    """One of a PE's int32 registers; stands where a number may come from a register."""

    index: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", whole(self.index, "the number of a register"))

    def __str__(self) -> str:
        return f"r{self.index}"

    @property
    def name(self) -> str:
        """As in a listing."""
        return str(self)


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

    def slice(
        self, start: int = 0, words: int | Register | None = None, stride: int = 1
    ) -> "Slice":
        """Words ``start, start + stride, ...`` of the tile; by default all that follow start.

        Raises:
          WaferError: Words outside the tile. If their number is in a register, the run finds out.
        """
        start, stride = whole(start, "the start of a slice"), whole(stride, "the stride of a slice")
        if isinstance(words, Register):
            return Slice(self.offset + start, stride, words, self.dtype)
        if words is None:
            words = -(-(self.words - start) // stride) if stride else 0
        words = whole(words, "the number of words of a slice")
        last = start + stride * (words - 1)
        if words < 1 or not (0 <= start < self.words and 0 <= last < self.words):
            raise WaferError(
                f"slice (start {start}, words {words}, stride {stride}) lies outside tile "
                f"{self.name!r} of {self.words} words"
            )
        return Slice(self.offset + start, stride, words, self.dtype)


@dataclass(frozen=True)
class Slice(_Checked):
    """Words ``offset + stride * i``, i in 0..words-1, of a PE's SRAM; a register may hold words."""

    offset: int
    stride: int
    words: int | Register
    dtype: str = "float32"


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A pure per-PE function ``fn(*inputs) -> output or tuple of outputs``.

    Two kernels with the same function, shapes and dtypes share one compiled body, wherever
    their tiles lie, so make ``fn`` once (a module-level function or a cached factory).
    """

    name: str
    fn: Callable


def as_slice(data: Any, where: str) -> Slice:
    """A slice as it is, a tile as all of its words.

    Raises:
      WaferError: Anything else.
    """
    if isinstance(data, Tile):
        return data.slice()
    if not isinstance(data, Slice):
        raise WaferError(f"{where} is {shown(data)}: give a tile, or a slice of one")
    return data


def _number_or_register(value: Any, where: str) -> int | Register:
    return value if isinstance(value, Register) else whole(value, where)


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise WaferError(f"{where} is {shown(value)}: give True or False")
    return value


def _kernel(value: Any, where: str) -> Kernel:
    if not isinstance(value, Kernel):
        raise WaferError(f"{where} is {shown(value)}: give wj.Kernel(name=..., fn=...)")
    if not callable(value.fn):
        raise WaferError(f"{where} {value.name!r} has fn={shown(value.fn)}, which is no function")
    return value


def _operands(values: Any, where: str) -> tuple[Tile | Register, ...]:
    if not isinstance(values, list | tuple):
        raise WaferError(f"{where} is {shown(values)}: give a list of tiles and registers")
    if bad := [v for v in values if not isinstance(v, Tile | Register)]:
        raise WaferError(f"{where} holds {shown(bad[0])}: give tiles and registers alone")
    return tuple(values)


_NUMBERS = ("color", "color_in", "color_out", "semaphore", "first", "count", "level", "register",
            "value", "target", "offset", "stride")  # fmt: skip
_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(_NUMBERS, whole),
    **dict.fromkeys(("words", "cycles", "segment"), _number_or_register),
    **dict.fromkeys(("inputs", "outputs"), _operands),
    "slice": as_slice,
    "kernel": _kernel,
    "wide": _flag,
}


@dataclass(frozen=True)
class Send(_Checked):
    """Memory to fabric; two ``wide`` streams share a cycle of the issue slot."""

    color: int
    slice: Slice
    wide: bool = False


@dataclass(frozen=True)
class SendControl(_Checked):
    """A control wavelet to fabric; its command applies at every switch that it passes."""

    color: int
    command: Command


@dataclass(frozen=True)
class Receive(_Checked):
    """Fabric to memory ("copy"), or fabric combined with memory to memory."""

    color: int
    slice: Slice
    combine: Combine = "copy"
    wide: bool = False


@dataclass(frozen=True)
class Forward(_Checked):
    """Fabric to fabric ("copy", no slice), or fabric combined with memory to fabric."""

    color_in: int
    color_out: int
    words: int | Register
    slice: Slice | None = None
    combine: Combine = "copy"
    wide: bool = False


@dataclass(frozen=True)
class Compute(_Checked):
    """Start a kernel that takes ``cycles``; registers among its operands are int32 scalars."""

    kernel: Kernel
    inputs: tuple[Tile | Register, ...]
    outputs: tuple[Tile | Register, ...]
    cycles: int | Register


@dataclass(frozen=True)
class Signal(_Checked):
    """Add one to a semaphore of the PE."""

    semaphore: int


@dataclass(frozen=True)
class Wait(_Checked):
    """Block until a semaphore of the PE is positive, then subtract one."""

    semaphore: int


@dataclass(frozen=True)
class Loop(_Checked):
    """Jump back to event ``first`` until the events in between ran ``count`` times."""

    first: int
    count: int
    level: int = 0


@dataclass(frozen=True)
class SetRegister(_Checked):
    """Set a register to a constant."""

    register: int
    value: int


@dataclass(frozen=True)
class AddToRegister(_Checked):
    """Add a constant to a register."""

    register: int
    value: int


@dataclass(frozen=True)
class Branch(_Checked):
    """Go on at event ``target`` if the register stands in the relation to the value."""

    register: int
    relation: Relation
    value: int
    target: int


@dataclass(frozen=True)
class Reconfigure(_Checked):
    """Install a segment's routes and queue bindings on the PE; a register may hold its number."""

    segment: int | Register


@dataclass(frozen=True)
class Halt:
    """End of a thread."""


Event = (
    Send
    | SendControl
    | Receive
    | Forward
    | Compute
    | Signal
    | Wait
    | Loop
    | SetRegister
    | AddToRegister
    | Branch
    | Reconfigure
    | Halt
)


def send_color(event: Event) -> int | None:
    """Colour on which an event sends."""
    match event:
        case Send(color=color) | SendControl(color=color) | Forward(color_out=color):
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


def event_words(event: Event) -> int | Register:
    """How often an event issues, or the register that says so."""
    match event:
        case Send(slice=s) | Receive(slice=s):
            return s.words
        case Forward(words=words):
            return words
    return 1


def is_wide(event: Event) -> bool:
    """Whether an event is a stream that leaves half of the issue slot to another wide one."""
    return getattr(event, "wide", False)


def registers_of(event: Event) -> tuple[int, ...]:
    """Registers that an event reads or writes."""
    match event:
        case SetRegister(register=r) | AddToRegister(register=r) | Branch(register=r):
            return (r,)
        case Reconfigure(segment=Register(index=r)):
            return (r,)
        case Compute(inputs=i, outputs=o, cycles=cycles):
            return tuple(r.index for r in (*i, *o, cycles) if isinstance(r, Register))
    words = event_words(event)
    return (words.index,) if isinstance(words, Register) else ()


def _place(s: Slice, tiles: Collection[Tile]) -> str:
    """Words of a slice in terms of the tile that holds them: ``x``, or ``x[2:6]``."""
    stride = f" stride {s.stride}" if s.stride != 1 else ""
    for tile in tiles:
        start = s.offset - tile.offset
        if start == 0 and s.words == tile.words:
            return tile.name + stride
        if 0 <= start < tile.words:
            end = s.words if start == 0 else f"{start}+{s.words}"
            if isinstance(s.words, int):
                end = start + s.words
            return f"{tile.name}[{start}:{'' if stride else end}]{stride}"
    return f"[{s.offset}:+{s.words}]{stride}"


def describe(event: Event, tiles: Collection[Tile] = ()) -> str:
    """One event as a line of text, slices by the names of their tiles."""

    def count(words: int | Register) -> str:
        return "1 word" if words == 1 else f"{words} words"

    def where(s: Slice | None) -> str:
        return "" if s is None else _place(s, tiles)

    wide = ", wide" if is_wide(event) else ""

    match event:
        case Send(color=c, slice=s):
            return f"SEND     {count(s.words)} of {where(s)} on colour {c}{wide}"
        case SendControl(color=c, command=command):
            return f"CONTROL  {command} on colour {c}"
        case Receive(color=c, slice=s, combine=how):
            into = "to" if how == "copy" else f"{how} to"
            return f"RECEIVE  {count(s.words)} from colour {c} {into} {where(s)}{wide}"
        case Forward(color_in=a, color_out=b, words=n, slice=s, combine=how):
            combined = f" {how} {where(s)}" if s else ""
            return f"FORWARD  {count(n)} from colour {a}{combined} on colour {b}{wide}"
        case Compute(kernel=k, inputs=i, outputs=o, cycles=n):
            args = ", ".join(t.name for t in i)
            return f"COMPUTE  {', '.join(t.name for t in o)} = {k.name}({args}), {n} cycles"
        case Signal(semaphore=s):
            return f"SIGNAL   semaphore {s}"
        case Wait(semaphore=s):
            return f"WAIT     semaphore {s}"
        case Loop(first=f, count=n):
            return f"LOOP     from {f}, {n} times in all"
        case SetRegister(register=r, value=v):
            return f"SET      r{r} = {v}"
        case AddToRegister(register=r, value=v):
            return f"ADD      r{r} += {v}"
        case Branch(register=r, relation=how, value=v, target=t):
            return f"BRANCH   to {t} if r{r} {how} {v}"
        case Reconfigure(segment=s):
            return f"RECONF   to segment {s}"
    return "HALT"
