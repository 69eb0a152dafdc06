"""A recording as a trace for ui.perfetto.dev or chrome://tracing.

The format is Chrome's "Trace Event Format": a process per PE, in it a track per
thread and one per colour that leaves its router, and counters of the words in its queues. One
cycle is written as one microsecond.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wafer_jax._version import __version__
from wafer_jax.errors import WaferError
from wafer_jax.program import direction_set
from wafer_jax.report.activity import COLOR_BITS, COLORED, MEANING, Activity
from wafer_jax.report.files import atomic
from wafer_jax.report.slices import Slices, join

if TYPE_CHECKING:
    from wafer_jax.report.recording import Recording

MAX_EVENTS = 1_000_000
"""About 150 MB; the viewers grow slow beyond."""
_TRACKS = 64
"""Track numbers per PE: threads from 1, routers from `_ROUTER`."""
_ROUTER = 30


def save_trace(recording: "Recording", path: str | Path) -> None:
    """Write the trace of a recording; the file appears whole or not at all.

    Args:
      recording: Its region and window are written.
      path: Ending in ``.json``.

    Raises:
      WaferError: More than `MAX_EVENTS` events, or a path that cannot be written.
    """
    with atomic(path) as temporary:
        events = []
        for event in trace_events(recording):
            events.append(event)
            if len(events) > MAX_EVENTS:
                raise WaferError(
                    f"{recording.program.name}: its trace has over {MAX_EVENTS:,} events: record "
                    f"a smaller region or a shorter window"
                )
        # Metadata first, then by time; viewers and people both read in that order.
        events.sort(key=lambda event: (event["ph"] != "M", event["ts"]))
        about = {"program": recording.program.name, "machine": recording.program.hw.name,
                 "wafer_jax": __version__, "time": "1 us is 1 cycle"}  # fmt: skip
        with temporary.open("w", encoding="utf-8") as out:
            out.write('{"displayTimeUnit": "ns", "otherData": ' + json.dumps(about))
            out.write(', "traceEvents": [\n')
            out.write(",\n".join(json.dumps(event) for event in events))
            out.write("\n]}\n")


def trace_events(recording: "Recording") -> Iterator[dict[str, Any]]:
    """The events of a trace, PE by PE."""
    width = recording.program.hw.mesh[1]
    for y in recording.ys.tolist():
        for x in recording.xs.tolist():
            process = y * width + x + 1
            yield from _metadata(recording, y, x, process)
            for t in range(recording.threads.shape[1]):
                yield from _thread(recording, recording.slices(y, x, t), process, 1 + t)
            yield from _router(recording, y, x, process)
            yield from _counters(recording, y, x, process)
            yield from _faults(recording, y, x, process)


def _metadata(recording: "Recording", y: int, x: int, process: int) -> Iterator[dict[str, Any]]:
    role = recording.program.role_at(y, x)
    tracks = {1 + t: f"thread {t}" for t in range(len(role.threads))}
    row, column = recording.at(y, x)
    used = np.bitwise_or.reduce(recording.left[:, row, column], initial=0)
    for c, color in enumerate(recording.program.colors):
        if used >> c & 1:
            ways = f" to {direction_set(int(recording.tx[c, y, x]))}"
            tracks[_ROUTER + c] = f"router, colour {color}{'' if c in recording.changing else ways}"

    def note(kind: str, track: int, **args: Any) -> dict[str, Any]:
        return {"ph": "M", "name": kind, "pid": process, "tid": _tid(process, track), "ts": 0,
                "args": args}  # fmt: skip

    yield note("process_name", 1, name=f"PE (y={y}, x={x}) {role.name}")
    yield note("process_sort_index", 1, sort_index=process)
    for track, name in tracks.items():
        yield note("thread_name", track, name=name)
        yield note("thread_sort_index", track, sort_index=track)


def _tid(process: int, track: int) -> int:
    """Track numbers are unique in the whole trace."""
    return process * _TRACKS + track


def _thread(
    recording: "Recording", slices: Slices, process: int, track: int
) -> Iterator[dict[str, Any]]:
    for code, start, cycles in zip(*(a.tolist() for a in slices), strict=True):
        activity = Activity(code >> COLOR_BITS)
        if activity is Activity.HALTED:
            continue
        name, args = MEANING[activity], {}
        if activity in COLORED:
            color = recording.program.colors[code & ((1 << COLOR_BITS) - 1)]
            name, args = f"{name}, colour {color}", {"color": color}
        yield {"ph": "X", "name": name, "cat": activity.name.lower(), "pid": process,
               "tid": _tid(process, track), "ts": start, "dur": cycles, "args": args}  # fmt: skip


def _router(recording: "Recording", y: int, x: int, process: int) -> Iterator[dict[str, Any]]:
    row, column = recording.at(y, x)
    for c, color in enumerate(recording.program.colors):
        left = recording.left[:, row, column] >> np.uint32(c) & 1
        if not left.any():
            continue
        for moved, start, cycles in zip(
            *(a.tolist() for a in join(left, recording.start, recording.span)), strict=True
        ):
            if moved:
                yield {"ph": "X", "name": f"colour {color}", "cat": "router", "pid": process,
                       "tid": _tid(process, _ROUTER + c), "ts": start, "dur": cycles,
                       "args": {"words": cycles}}  # fmt: skip


def _counters(recording: "Recording", y: int, x: int, process: int) -> Iterator[dict[str, Any]]:
    row, column = recording.at(y, x)
    for kind, words in (("router", recording.router_words), ("input", recording.input_words)):
        for c, color in enumerate(recording.program.colors):
            fills = words[:, c, row, column]
            if not fills.any():
                continue
            found = join(fills, recording.start, recording.span)
            for fill, start in zip(found.code.tolist(), found.start.tolist(), strict=True):
                yield {"ph": "C", "name": f"{kind} queue, colour {color}", "pid": process,
                       "ts": start, "args": {"words": fill}}  # fmt: skip


def _faults(recording: "Recording", y: int, x: int, process: int) -> Iterator[dict[str, Any]]:
    first, last = recording.window
    for fault in recording.result.faults:
        if (fault.y, fault.x) == (y, x) and first <= fault.cycle <= last:
            yield {"ph": "i", "s": "p", "name": str(fault.kind.name).lower(), "cat": "fault",
                   "pid": process, "tid": _tid(process, 1), "ts": fault.cycle,
                   "args": {"what": fault.what}}  # fmt: skip
