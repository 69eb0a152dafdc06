"""The event tables of all roles as columns of integers.

Axes: R roles, T threads, E events per thread.
"""

import numpy as np

from wafer_jax.events import (
    AddToRegister,
    Branch,
    Compute,
    Event,
    Forward,
    Halt,
    Loop,
    Receive,
    Reconfigure,
    Register,
    Send,
    SendControl,
    SetRegister,
    Signal,
    Slice,
    Wait,
    event_slice,
    event_words,
    is_wide,
    receive_color,
    send_color,
)
from wafer_jax.program import Program
from wafer_jax.step_spec import halt_bit, pair_bit

COPY = 0
COMBINES: tuple[tuple[str, str], ...] = tuple(
    (how, dtype) for how in ("add", "max", "min") for dtype in ("float32", "float16", "bfloat16")
)
"""Ways to combine two words; code k stands for ``COMBINES[k - 1]``."""
READS, WRITES = 1, 2
"""Bits of an event's memory mode; the combine code lies above them."""
MODE_SHIFT = 2

FIELDS = ("need_in", "need_out", "words", "setup", "duration", "first", "count", "level")
VALUE_FIELDS = ("offset", "stride", "mode", "color_in", "color_out", "kernel")
REGISTER_FIELDS = ("words_from", "cycles_from", "operation", "register", "value", "target")
"""``words_from`` and ``cycles_from`` name a register, or are -1."""
DYNAMIC_FIELDS = ("control", "segment", "segment_from")
"""A command's code, or 0; 1 + the number of a segment, or 0; a register that holds it, or -1."""
COMMANDS = ("none", "advance", "reset", "tear down")
"""Command code k stands for ``COMMANDS[k - 1]``."""
NO_OPERATION, SET, ADD = range(3)
BRANCHES = ("==", "!=", "<", ">=")
"""Operation ADD + 1 + k branches if the relation ``BRANCHES[k]`` holds."""


def event_table(
    program: Program, instances: list[Compute], wide_masks: bool
) -> dict[str, np.ndarray]:
    """Fields of every event, [R + 1, T, E] int32; kernel instances are appended on the way."""
    longest = max((len(t) for r in program.roles for t in r.threads), default=1)
    shape = (len(program.roles) + 1, program.num_threads, longest)
    names = FIELDS + VALUE_FIELDS + REGISTER_FIELDS + DYNAMIC_FIELDS
    table = {name: np.zeros(shape, np.int32) for name in names}
    for name in ("words_from", "cycles_from", "segment_from"):
        table[name][:] = -1
    table["need_in"][:] = halt_bit(wide_masks)
    table["kernel"][:] = -1
    index = {c: i for i, c in enumerate(program.colors)}
    numbers: dict[tuple, int] = {}
    for r, role in enumerate(program.roles):
        for t, events in enumerate(role.threads):
            for e, event in enumerate(events):
                row = event_row(event, index, program.hw.stream_setup_cycles)
                if isinstance(event, Halt):
                    continue
                if isinstance(event, Compute):
                    key = (event.kernel.fn, event.inputs, event.outputs)
                    if key not in numbers:
                        numbers[key] = len(instances)
                        instances.append(event)
                    row["kernel"] = numbers[key]
                for name, value in row.items():
                    table[name][r, t, e] = value
                if is_wide(event):
                    table["need_out"][r, t, e] |= pair_bit(wide_masks)
    return table


def combine_code(how: str, data: Slice | None) -> int:
    """Code of a combination: COPY, or 1 + its place in ``COMBINES``."""
    if how == "copy" or data is None:
        return COPY
    return 1 + COMBINES.index((how, data.dtype))


def event_row(event: Event, index: dict[int, int], setup_cycles: int) -> dict[str, int]:
    """Fields of one event; absent ones keep their default."""
    words = event_words(event)
    row = {"need_in": 0, "words": 1}
    row |= {"words_from": words.index} if isinstance(words, Register) else {"words": words}
    if (color := receive_color(event)) is not None:
        row |= {"need_in": 1 << index[color], "color_in": index[color]}
    if (color := send_color(event)) is not None:
        row |= {"need_out": 1 << index[color], "color_out": index[color]}
    if (data := event_slice(event)) is not None:
        row |= {"offset": data.offset, "stride": data.stride}
    match event:
        case Send():
            row |= {"setup": setup_cycles, "mode": READS}
        case SendControl(command=command):
            row |= {"setup": setup_cycles, "control": 1 + COMMANDS.index(command)}
        case Reconfigure(segment=Register(index=r)):
            row["segment_from"] = r
        case Reconfigure(segment=int(number)):
            row["segment"] = 1 + number
        case Receive(combine=how, slice=s):
            code = combine_code(how, s)
            row |= {"setup": setup_cycles, "mode": WRITES | (READS if code else 0)}
            row["mode"] |= code << MODE_SHIFT
        case Forward(combine=how, slice=s):
            code = combine_code(how, s)
            row |= {"setup": setup_cycles, "mode": (READS if code else 0) | code << MODE_SHIFT}
        case Signal(semaphore=s):
            row["need_out"] = 1 << (len(index) + s)
        case Wait(semaphore=s):
            row["need_in"] = 1 << (len(index) + s)
        case Compute(cycles=Register(index=r)):
            row |= {"duration": 1, "cycles_from": r}
        case Compute(cycles=int(cycles)):
            row["duration"] = cycles
        case SetRegister(register=r, value=value):
            row |= {"operation": SET, "register": r, "value": value}
        case AddToRegister(register=r, value=value):
            row |= {"operation": ADD, "register": r, "value": value}
        case Branch(register=r, relation=how, value=value, target=target):
            operation = ADD + 1 + BRANCHES.index(how)
            row |= {"operation": operation, "register": r, "value": value, "target": target}
        case Loop(first=first, count=count, level=level):
            row |= {"first": first, "count": count, "level": level}
    return row
