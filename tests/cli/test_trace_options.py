"""``wafer-jax run --trace``."""

import json

import numpy as np
import pytest

import wafer_jax as wj

PROGRAM = wj.reduce.chain(wj.hardware("toy", mesh=(1, 3)), words=4)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "chain.npz"
    wj.save_program(PROGRAM, path, {"x": np.ones((4, 1, 3), np.float32)})
    return path


def test_a_run_is_traced(wafer, file, tmp_path):
    out = tmp_path / "trace.json"
    record = wafer("run", file, "--trace", out, "--json").json
    assert record["cycles"] == wj.run(PROGRAM, values="none").cycles
    events = json.loads(out.read_text())["traceEvents"]
    assert {e["pid"] for e in events} == {1, 2, 3}
    shown = wafer("run", file, "--trace", out).out
    assert "of 1x3 PEs, open it in ui.perfetto.dev" in shown
    assert "of PE-cycles wait for" in shown


def test_a_region_and_a_window_are_traced(wafer, file, tmp_path):
    out = tmp_path / "trace.json"
    chosen = ("--trace-region", "0:1,1:2", "--trace-window", "2:5", "--values", "none")
    assert wafer("run", file, "--trace", out, *chosen).code == 0
    events = json.loads(out.read_text())["traceEvents"]
    assert {e["pid"] for e in events} == {2}
    assert {e["ts"] for e in events if e["ph"] != "M"} <= {2, 3, 4}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trace-region", "0:1,0:1"], "--trace-region needs --trace"),
        (["--trace", "{out}", "--trace-region", "0:1"], "rows,columns such as 0:4,2:8"),
        (["--trace", "{out}", "--trace-region", "0:1,0:9"], "beyond the 1x3 mesh"),
        (["--trace", "{out}", "--trace-window", "-1:4"], "cycles such as 0:5000"),
        (["--trace", "{out}", "--trace-window", "5:5"], "a later one after the last"),
        (["--trace", "{out}/absent/trace.json"], "no folder"),
        (["--trace", "{out}", "--checkpoint", "{out}.d"], "leave one of them out"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(wafer, file, tmp_path, options, message):
    out = tmp_path / "trace.json"
    assert message in wafer("run", file, *(o.format(out=out) for o in options)).error
    assert list(tmp_path.iterdir()) == []
