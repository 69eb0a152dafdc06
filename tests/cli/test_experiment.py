import json

import pytest

from wafer_jax.report.experiments import experiment_names


def test_the_list(wafer):
    shown = wafer("experiment").out
    assert "waferllm-figure-9 " in shown
    assert "MeshGEMV against" in shown
    listed = wafer("experiment", "--json").json["experiments"]
    assert listed == experiment_names()
    assert {"waferllm-figure-9", "waferllm-figure-10", "meshrt-table-1"} <= set(listed)


def test_an_experiment_is_shown_and_written(wafer, tmp_path):
    done = wafer("experiment", "meshrt-table-1", "--quick", "--out", tmp_path / "out")
    assert done.code == 0
    assert "Cycles on the wafer (level cost)" in done.out
    assert "Host synchronisation: O(1), about 7,000 cycles" in done.out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {f"meshrt-table-1.{end}" for end in ("md", "png", "json")}
    record = json.loads((tmp_path / "out" / "meshrt-table-1.json").read_text())
    assert record["preset"] == "wse3"
    again = wafer("experiment", "meshrt-table-1", "--quick", "--json").json
    assert again["command"] == "experiment"
    assert again["statements"] == record["statements"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "unknown experiment 'nosuch'; known are waferllm-figure-9"),
        (["nosuch", "--out", "here"], "unknown experiment 'nosuch'"),
        (["meshrt-table-1", "--out", "no/such"], "no folder no"),
        (["meshrt-table-1", "--out", "a" * 300], "File name too long"),
        (["--quick"], "need the NAME"),
    ],
)
def test_mistakes_are_one_line(wafer, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in wafer("experiment", *arguments).error
    assert list(tmp_path.iterdir()) == []
