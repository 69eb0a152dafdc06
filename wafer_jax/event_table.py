"""The event tables of all roles as columns of integers.

Axes: R roles, T threads, E events per thread.
"""

import numpy as np

from wafer_jax.events import (
    Compute,
    Event,
    Forward,
    Halt,
    Loop,
    Receive,
    Send,
    Signal,
    Wait,
    event_slice,
    event_words,
    receive_color,
    send_color,
)
from wafer_jax.program import Program

COPY, ADD_F32, ADD_F16, ADD_BF16 = range(4)
_ADD_CODE = {"float32": ADD_F32, "float16": ADD_F16, "bfloat16": ADD_BF16}
READS, WRITES = 1, 2
"""Bits of an event's memory mode; the combine code lies above them."""
MODE_SHIFT = 2

FIELDS = ("need_in", "need_out", "words", "setup", "duration", "first", "count", "level")
VALUE_FIELDS = ("offset", "stride", "mode", "color_in", "color_out", "kernel")


def event_table(
    program: Program, instances: list[Compute], semaphores: int
) -> dict[str, np.ndarray]:
    """Fields of every event, [R + 1, T, E] int32; kernel instances are appended on the way."""
    longest = max((len(t) for r in program.roles for t in r.threads), default=1)
    shape = (len(program.roles) + 1, program.num_threads, longest)
    table = {name: np.zeros(shape, np.int32) for name in FIELDS + VALUE_FIELDS}
    halt = 1 << (30 if len(program.colors) + semaphores > 14 else 14)
    table["need_in"][:] = halt
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
    return table


def event_row(event: Event, index: dict[int, int], setup_cycles: int) -> dict[str, int]:
    """Fields of one event; absent ones keep their default."""
    row = {"need_in": 0, "words": event_words(event)}
    if (color := receive_color(event)) is not None:
        row |= {"need_in": 1 << index[color], "color_in": index[color]}
    if (color := send_color(event)) is not None:
        row |= {"need_out": 1 << index[color], "color_out": index[color]}
    if (data := event_slice(event)) is not None:
        row |= {"offset": data.offset, "stride": data.stride}
    match event:
        case Send():
            row |= {"setup": setup_cycles, "mode": READS}
        case Receive(combine=how, slice=s):
            code = _ADD_CODE[s.dtype] if how == "add" else COPY
            row |= {"setup": setup_cycles, "mode": WRITES | (READS if code else 0)}
            row["mode"] |= code << MODE_SHIFT
        case Forward(combine=how, slice=s):
            code = _ADD_CODE[s.dtype] if s is not None and how == "add" else COPY
            row |= {"setup": setup_cycles, "mode": (READS if code else 0) | code << MODE_SHIFT}
        case Signal(semaphore=s):
            row["need_out"] = 1 << (len(index) + s)
        case Wait(semaphore=s):
            row["need_in"] = 1 << (len(index) + s)
        case Compute(cycles=cycles):
            row["duration"] = cycles
        case Loop(first=first, count=count, level=level):
            row |= {"first": first, "count": count, "level": level}
    return row
