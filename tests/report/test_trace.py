"""Traces: strictly in the Trace Event Format, and what the recording says."""

import json

import numpy as np
import pytest
from random_families import FAMILIES
from random_programs import random_program

import wafer_jax as wj
from wafer_jax.errors import WaferError
from wafer_jax.report import trace
from wafer_jax.report.activity import COLOR_BITS, MEANING, Activity

SEEDS = [3 + len(FAMILIES) * k for k in range(3)]
REQUIRED = {
    "M": {"ph", "name", "pid", "tid", "ts", "args"},
    "X": {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"},
    "C": {"ph", "name", "pid", "ts", "args"},
    "i": {"ph", "s", "name", "cat", "pid", "tid", "ts", "args"},
}
METADATA = {
    "process_name": {"name": str},
    "process_sort_index": {"sort_index": int},
    "thread_name": {"name": str},
    "thread_sort_index": {"sort_index": int},
}


def recorded(seed, **options):
    program, _ = random_program(seed)
    return wj.record(program, values="none", jitter=wj.Jitter(seed, 9, 5), **options)


def saved(recording, path):
    recording.save_trace(path)
    return json.loads(path.read_text())


def whole(value, least=0):
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_format(document):
    """What Perfetto's and Chrome's importers ask of a JSON trace."""
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    events = document["traceEvents"]
    assert events
    named: dict[str, set] = {name: set() for name in METADATA}
    for event in events:
        assert set(event) == REQUIRED[event["ph"]]
        assert isinstance(event["name"], str)
        assert event["name"]
        assert whole(event["pid"], 1)
        assert whole(event["ts"])
        assert isinstance(event["args"], dict)
        if "tid" in event:
            assert whole(event["tid"], 1)
        match event["ph"]:
            case "M":
                kinds = METADATA[event["name"]]
                assert {k: type(v) for k, v in event["args"].items()} == kinds
                at = event["pid"] if event["name"].startswith("process") else event["tid"]
                assert at not in named[event["name"]]
                named[event["name"]].add(at)
            case "X":
                assert whole(event["dur"], 1)
            case "C":
                assert event["args"]
                assert all(whole(v) for v in event["args"].values())
            case "i":
                assert event["s"] in ("g", "p", "t")
    order = [event["ts"] for event in events if event["ph"] != "M"]
    assert order == sorted(order)
    assert [e["ph"] == "M" for e in events] == sorted(e["ph"] == "M" for e in events)[::-1]
    slices = [e for e in events if e["ph"] == "X"]
    assert {e["tid"] for e in slices} <= named["thread_name"] == named["thread_sort_index"]
    assert {e["pid"] for e in events} == named["process_name"] == named["process_sort_index"]
    owner: dict[int, int] = {}
    free: dict[int, int] = {}
    for event in slices:
        assert owner.setdefault(event["tid"], event["pid"]) == event["pid"]
        assert event["ts"] >= free.get(event["tid"], 0), "slices of a track overlap"
        free[event["tid"]] = event["ts"] + event["dur"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_trace_is_well_formed_and_says_what_was_recorded(seed, tmp_path):
    recording = recorded(seed)
    document = saved(recording, tmp_path / "trace.json")
    check_format(document)
    events = document["traceEvents"]
    codes = np.repeat(recording.threads, recording.span, axis=0)
    for activity in Activity:
        cycles = sum(
            e["dur"] for e in events if e["ph"] == "X" and e["cat"] == activity.name.lower()
        )
        expected = (codes >> COLOR_BITS == activity).sum()
        assert cycles == (0 if activity is Activity.HALTED else expected), activity
    moved = sum(e["dur"] for e in events if e.get("cat") == "router")
    bits = np.unpackbits(recording.left.view(np.uint8))
    assert moved == bits.sum() > 0
    faults = [e["name"] for e in events if e["ph"] == "i"]
    assert sorted(faults) == sorted(f.kind.name.lower() for f in recording.result.faults)
    names = {e["name"] for e in events if e["ph"] == "X" and e["cat"] == "needs_word"}
    assert names <= {
        f"{MEANING[Activity.NEEDS_WORD]}, colour {c}" for c in recording.program.colors
    }


def test_counters_follow_the_queues(tmp_path):
    recording = recorded(SEEDS[0])
    events = saved(recording, tmp_path / "trace.json")["traceEvents"]
    color = recording.program.colors[0]
    steps = [
        (e["ts"], e["args"]["words"])
        for e in events
        if e["ph"] == "C" and e["pid"] == 1 + 3 + 1 and e["name"] == f"router queue, colour {color}"
    ]
    fills = recording.queues(1, 1)[f"router {color}"].to_numpy()
    changes = np.flatnonzero(np.diff(fills, prepend=-1))
    assert steps == list(
        zip(recording.start[changes].tolist(), fills[changes].tolist(), strict=True)
    )


def test_a_region_and_a_window_are_traced_alone(tmp_path):
    recording = recorded(SEEDS[0], region=np.s_[0:1, 1:3], window=(10, 60))
    document = saved(recording, tmp_path / "trace.json")
    check_format(document)
    events = document["traceEvents"]
    assert {e["pid"] for e in events} == {2, 3}
    assert all(10 <= e["ts"] and e["ts"] + e.get("dur", 0) <= 60 for e in events if e["ph"] != "M")


def test_a_broken_trace_is_seen(tmp_path):
    document = saved(recorded(SEEDS[0]), tmp_path / "trace.json")
    events = document["traceEvents"]
    last = max((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"])
    for change in ({"dur": 0}, {"ts": -1}, {"ts": 1.5}, {"pid": 0}, {"tid": 10**6}):
        bad = [e if e is not last else {**e, **change} for e in events]
        with pytest.raises(AssertionError):
            check_format({**document, "traceEvents": bad})
    with pytest.raises(AssertionError):
        check_format({**document, "traceEvents": [*events, last]})


def test_a_trace_is_bounded_and_whole_or_absent(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "MAX_EVENTS", 50)
    with pytest.raises(WaferError, match="over 50 events"):
        recorded(SEEDS[0]).save_trace(tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []
