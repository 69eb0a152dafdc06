"""The events of one thread, appended by hand."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import get_args

from wafer_jax.arguments import shown, whole
from wafer_jax.errors import WaferError
from wafer_jax.events import (
    AddToRegister,
    Branch,
    Combine,
    Command,
    Compute,
    Event,
    Forward,
    Halt,
    Kernel,
    Loop,
    Receive,
    Reconfigure,
    Register,
    Relation,
    Send,
    SendControl,
    SetRegister,
    Signal,
    Slice,
    Tile,
    Wait,
    as_slice,
)
from wafer_jax.segment_builder import SegmentBuilder

_OPPOSITE_RELATION: dict[Relation, Relation] = {"==": "!=", "!=": "==", "<": ">=", ">=": "<"}


class ThreadBuilder:
    """Appends events to one thread; every method returns the builder, so calls chain."""

    def __init__(self, segments: Sequence[SegmentBuilder]) -> None:
        self.events: list[Event] = []
        self.open_blocks: list[str] = []
        self._segments = segments

    def _add(self, event: Event) -> "ThreadBuilder":
        self.events.append(event)
        return self

    def send(self, color: int, data: Tile | Slice, *, wide: bool = False) -> "ThreadBuilder":
        """Send a tile or slice on a colour; two wide streams share a cycle of the issue slot."""
        return self._add(Send(color, as_slice(data, "send: data"), wide))

    def control(self, color: int, command: Command) -> "ThreadBuilder":
        """Send a control wavelet: "none", "advance", "reset" or "tear down"."""
        return self._add(SendControl(color, command))

    def receive(
        self, color: int, into: Tile | Slice, combine: Combine = "copy", *, wide: bool = False
    ) -> "ThreadBuilder":
        """Receive words from a colour into a tile or slice, or add them to it."""
        return self._add(Receive(color, as_slice(into, "receive: into"), combine, wide))

    def forward(
        self,
        color_in: int,
        color_out: int,
        data: Tile | Slice | None = None,
        combine: Combine = "add",
        *,
        words: int | Register = 0,
        wide: bool = False,
    ) -> "ThreadBuilder":
        """Pass words on from one colour to another, combined with a tile if given."""
        if data is None:
            if not isinstance(words, Register) and whole(words, "forward: words") < 1:
                raise WaferError(
                    f"forward {color_in} -> {color_out}: say how many words, or a tile"
                )
            return self._add(Forward(color_in, color_out, words, wide=wide))
        data = as_slice(data, "forward: data")
        return self._add(Forward(color_in, color_out, data.words, data, combine, wide))

    def compute(
        self,
        kernel: Kernel,
        inputs: Sequence[Tile | Register],
        outputs: Sequence[Tile | Register],
        cycles: int | Register,
    ) -> "ThreadBuilder":
        """Run a kernel on one tile or more; it takes ``cycles`` >= 1."""
        event = Compute(kernel, inputs, outputs, cycles)  # pyright: ignore[reportArgumentType]
        if isinstance(event.cycles, int) and event.cycles < 1:
            raise WaferError(f"kernel {kernel.name!r} takes {cycles} cycles: give at least 1")
        if not event.inputs:
            raise WaferError(
                f"kernel {kernel.name!r} has no input tile: give it one, if only a word"
            )
        return self._add(event)

    def signal(self, semaphore: int) -> "ThreadBuilder":
        """Add one to a semaphore."""
        return self._add(Signal(semaphore))

    def wait(self, semaphore: int) -> "ThreadBuilder":
        """Block until a semaphore is positive, then subtract one."""
        return self._add(Wait(semaphore))

    def set(self, register: Register, value: int) -> "ThreadBuilder":
        """Set a register to a constant."""
        return self._add(SetRegister(_number(register), value))

    def add(self, register: Register, value: int) -> "ThreadBuilder":
        """Add a constant to a register."""
        return self._add(AddToRegister(_number(register), value))

    def reconfigure(self, segment: SegmentBuilder | int | Register) -> "ThreadBuilder":
        """Go to a segment, given as what `ProgramBuilder.segment` returned, by number (0 is the
        first), or in a register.
        """
        if isinstance(segment, SegmentBuilder):
            segment = own_number(segment, self._segments)
        return self._add(Reconfigure(segment))

    @contextmanager
    def when(self, register: Register, relation: Relation, value: int) -> Iterator[None]:
        """Run the events of the ``with`` block only if the relation holds."""
        if relation not in get_args(Relation):
            raise WaferError(f"when: {shown(relation)} is none of {', '.join(get_args(Relation))}")
        branch = Branch(_number(register), _OPPOSITE_RELATION[relation], value, 0)
        at = len(self.events)
        self.events.append(Halt())
        self.open_blocks.append("when")
        yield
        self.open_blocks.pop()
        self.events[at] = replace(branch, target=len(self.events))

    @contextmanager
    def loop(self, count: int) -> Iterator[None]:
        """Repeat the events of the ``with`` block ``count`` times."""
        count = whole(count, "the number of rounds of a loop")
        if count < 1:
            raise WaferError(f"a loop of {count} rounds: at least 1 is needed")
        first, level = len(self.events), self.open_blocks.count("loop")
        self.open_blocks.append("loop")
        yield
        self.open_blocks.pop()
        if count > 1 and len(self.events) > first:
            self.events.append(Loop(first, count, level))


def own_number(segment: SegmentBuilder, segments: Sequence[SegmentBuilder]) -> int:
    """Number of a segment among those of the program.

    Raises:
      WaferError: It is of another program, or no segment.
    """
    if not any(segment is own for own in segments):
        raise WaferError(
            f"{shown(segment)} is no segment of this program: give what its `segment` returned"
        )
    return segment.number


def _number(register: Register) -> int:
    if not isinstance(register, Register):
        raise WaferError(
            f"{shown(register)} stands where a register belongs: write wj.Register(3) for number 3"
        )
    return register.index
