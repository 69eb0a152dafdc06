"""Sweeps: the grid, the table that is gone on with, and what a configuration may say."""

import json
import os
from dataclasses import replace

import pandas as pd
import pytest
import yaml

import wafer_jax as wj
from wafer_jax.cli import main
from wafer_jax.collectives import allreduce_ktree, reduce_chain
from wafer_jax.runtime import sweep as sweeps
from wafer_jax.runtime.sweep_config import AlgorithmGrid, SweepConfig, load_sweep

GRID = {
    "level": "cost",
    "presets": ["toy", "wse2"],
    "meshes": [[1, 4], [1, 6]],
    "changes": [{}, {"hop_cycles": 2}],
    "algorithms": [
        {"name": "allreduce.ktree", "words": [3, 5], "k": [1, 2]},
        {"name": "reduce.chain", "words": 3},
    ],
}


@pytest.fixture
def config(tmp_path):
    """Writes a configuration, GRID with some keys changed."""

    def write(**changes):
        path = tmp_path / "grid.yaml"
        path.write_text(yaml.safe_dump({**GRID, **changes}))
        return path

    return write


@pytest.fixture
def evaluated(monkeypatch):
    """The points that are evaluated, not only looked up."""
    seen = []
    evaluate = sweeps.evaluate
    monkeypatch.setattr(sweeps, "evaluate", lambda point: seen.append(point) or evaluate(point))
    return seen


def test_every_point_has_its_cost(config):
    frame = wj.sweep(config())
    assert len(frame) == 2 * 2 * 2 * (4 + 1) == load_sweep(config()).num_points
    for row in frame.to_dict("records"):
        changes = {"hop_cycles": 2} if pd.notna(row["hop_cycles"]) else {}
        hw = wj.hardware(row["preset"], mesh=(row["mesh_y"], row["mesh_x"])).replace(**changes)
        words = row["words"]
        if row["algorithm"] == "reduce.chain":
            cycles = reduce_chain.cost(hw, words)
        else:
            cycles = allreduce_ktree.cost(hw, words, row["k"])
        assert row["cycles"] == cycles
        assert row["seconds"] == cycles / hw.clock_hz
        assert (row["preset_hash"], row["version"]) == (hw.hash, wj.__version__)
        assert row["level"] == "cost"


def test_the_fabric_agrees_with_a_run_of_ones_own():
    grid = SweepConfig(
        presets=("toy",),
        meshes=((1, 3),),
        algorithms=(AlgorithmGrid(name="reduce.chain", parameters=(("words", (4,)),)),),
    )
    (row,) = wj.sweep(grid).to_dict("records")
    program = wj.reduce.chain(wj.hardware("toy", mesh=(1, 3)), words=4)
    assert row["cycles"] == wj.run(program, values="none").cycles
    assert (row["level"], row["faults"], row["error"]) == ("fabric", 0, None)


def test_a_stopped_sweep_goes_on_where_it_was(config, tmp_path, evaluated):
    table = tmp_path / "table.jsonl"

    def stop(number, of, point):
        assert (of, str(point)[:9]) == (40, "allreduce" if number % 5 < 4 else "reduce.ch")
        if number == 13:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wj.sweep(config(), table, progress=stop)
    assert len(table.read_text().splitlines()) == 13
    frame = wj.sweep(config(), table)
    assert len(evaluated) == 40
    assert len(table.read_text().splitlines()) == 40
    assert frame.equals(wj.sweep(config(), table))
    assert frame.equals(wj.sweep(config()))
    assert len(evaluated) == 80


def test_a_grown_grid_runs_what_is_new(config, tmp_path, evaluated):
    table = tmp_path / "table.jsonl"
    wj.sweep(config(), table)
    evaluated.clear()
    frame = wj.sweep(config(meshes=[[1, 6], [1, 9]]), table)
    assert {point.mesh for point in evaluated} == {(1, 9)}
    assert len(evaluated) == 20
    assert sorted(set(frame["mesh_x"])) == [6, 9]


def test_another_version_or_machine_is_another_point(config, monkeypatch):
    point = next(load_sweep(config()).points())
    key = sweeps.key_of(point)
    for changes in ({"level": "fabric"}, {"mesh": (1, 5)}, {"changes": (("clock_hz", 1e9),)}):
        assert sweeps.key_of(replace(point, **changes)) != key
    monkeypatch.setattr(sweeps, "__version__", "0.0.0")
    assert sweeps.key_of(point) != key
    monkeypatch.undo()
    spec = wj.hardware("toy").replace(router_depth=3)
    monkeypatch.setattr(sweeps, "hardware", lambda _: spec)
    assert sweeps.key_of(point) != key


def test_a_torn_last_line_is_cut_off(config, tmp_path, evaluated):
    table = tmp_path / "table.jsonl"
    whole = wj.sweep(config(), table)
    text = table.read_bytes()
    table.write_bytes(text[:-20])
    evaluated.clear()
    assert wj.sweep(config(), table).equals(whole)
    assert len(evaluated) == 1
    assert table.read_bytes() == text


def test_points_that_fail_are_rows(config, tmp_path, evaluated):
    grid = config(
        level="fabric",
        presets=["toy"],
        changes=[{}],
        meshes=[[1, 1000], [1, 3]],
        algorithms=[{"name": "reduce.chain", "words": [100_000, 4]}],
    )
    frame = wj.sweep(grid, tmp_path / "t.jsonl")
    assert list(frame["error"].isna()) == [False, False, False, True]
    assert list(frame["cycles"].isna()) == [True, True, True, False]
    assert "larger than the device toy" in frame["error"][0]
    assert "SRAM" in frame["error"][2]
    assert "\n" not in frame["error"][2]
    evaluated.clear()
    assert wj.sweep(grid, tmp_path / "t.jsonl").equals(frame)
    assert not evaluated


def test_a_defect_in_a_point_does_not_end_the_sweep(config, monkeypatch):
    def broken(hw, words):
        raise ZeroDivisionError("by\nzero")

    algorithm = sweeps.ALGORITHMS["reduce.chain"]
    monkeypatch.setitem(sweeps.ALGORITHMS, "reduce.chain", replace(algorithm, cost=broken))
    frame = wj.sweep(config())
    assert set(frame["error"].dropna()) == {"ZeroDivisionError: by zero"}
    assert frame["error"].notna().sum() == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"level": "bulk"}, "level 'bulk': choose fabric or cost"),
        ({"level": [1]}, "choose fabric or cost"),
        ({"odd": 1}, "unknown key 'odd'; known keys are algorithms, changes"),
        ({"presets": []}, "the grid has no point"),
        ({"presets": ["wse9"]}, "unknown preset 'wse9'"),
        ({"presets": "wse2"}, "presets takes a list of names"),
        ({"meshes": [4]}, "meshes takes a list of"),
        ({"meshes": [[4]]}, r"mesh \[4\] is not \[rows, columns\]"),
        ({"meshes": [[True, 1]]}, "is not"),
        ({"changes": [{"mesh": [1, 1]}]}, "a mesh is given under meshes"),
        ({"changes": [{"hops": 1}]}, "unknown key hops"),
        ({"changes": [{"hop_cycles": 99}]}, "hop_cycles = 99 is not in"),
        ({"changes": [{"name": {"a": 1}}]}, "is no number, text or list"),
        ({"algorithms": [{"words": 3}]}, "an algorithm takes its name"),
        ({"algorithms": [{"name": "sort", "words": 3}]}, "unknown algorithm 'sort'; known are all"),
        ({"algorithms": [{"name": "reduce.chain"}]}, "parameter 'words' is missing"),
        ({"algorithms": [{"name": "reduce.chain", "words": "3"}]}, "words = '3' is not a whole"),
        (
            {"algorithms": [{"name": "reduce.chain", "words": [4, 0]}]},
            "words = 0: a size is at lea",
        ),
        ({"algorithms": [{"name": "reduce.chain", "words": True}]}, "words = True is not a whole"),
        ({"algorithms": [{"name": "reduce.chain", "words": 3, "k": 2}]}, "unknown parameter 'k'"),
        (
            {"algorithms": [{"name": "allreduce.ktree", "words": [3] * 120, "k": [1] * 120}]},
            "over the",
        ),
    ],
)
def test_configurations_that_cannot_be(config, changes, message):
    with pytest.raises(wj.WaferError, match=r"^grid\.yaml: .*" + message) as error:
        load_sweep(config(**changes))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "[1]", "a: b: c", "!!python/object/apply:os.system ['ls']"])
def test_files_that_are_no_configuration(tmp_path, text):
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(wj.WaferError, match=r"grid\.yaml") as error:
        load_sweep(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("line", ["odd", "{}", "[]", '{"key": 3}', "[" * 100_000])
def test_a_file_that_is_no_table_is_left_alone(config, tmp_path, line):
    table = tmp_path / "notes.txt"
    table.write_text(line + "\n" + line)
    with pytest.raises(wj.WaferError, match=r"notes\.txt: line 1 is no row of a sweep"):
        wj.sweep(config(), table)
    assert table.read_text() == line + "\n" + line


@pytest.mark.parametrize("text", ["one line of notes", '{"key": "x"}', "{"])
def test_a_foreign_line_without_end_is_left_alone(config, tmp_path, text):
    table = tmp_path / "note.txt"
    table.write_text(text)
    with pytest.raises(wj.WaferError, match=r"note\.txt: line 1 is no row of a sweep"):
        wj.sweep(config(), table)
    assert table.read_text() == text


def test_notes_behind_the_rows_are_left_alone(config, tmp_path):
    table = tmp_path / "table.jsonl"
    wj.sweep(config(), table)
    text = table.read_text()
    table.write_text(text + "my notes")
    with pytest.raises(wj.WaferError, match="line 41 is no row"):
        wj.sweep(config(), table)
    table.write_text(text + '{"ke')
    wj.sweep(config(), table)
    assert table.read_text() == text


def test_a_pipe_is_no_table(config, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(wj.WaferError, match="a device or a pipe"):
        wj.sweep(config(), tmp_path / "pipe")


def test_the_shipped_experiment_is_valid():
    grid = load_sweep("ktree")
    assert grid.level == "fabric"
    assert grid.num_points == len({sweeps.key_of(point) for point in grid.points()})


class TestCommand:
    def test_rows_and_a_table(self, config, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert main(["sweep", str(config()), "--json"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert len(record["rows"]) == 40
        assert record["level"] == "cost"
        assert record["table"] == "grid.jsonl"
        assert len((tmp_path / "grid.jsonl").read_text().splitlines()) == 40

    def test_failures_are_told(self, config, tmp_path, capsys):
        grid = config(presets=["toy"], changes=[{}], meshes=[[1, 1000], [1, 4]])
        assert main(["sweep", str(grid), "--out", str(tmp_path / "t.jsonl")]) == 0
        out = capsys.readouterr().out
        assert "5 of 10 points failed" in out
        assert "1x1000" in out

    def test_interrupted(self, config, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(sweeps, "evaluate", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        table = tmp_path / "t.jsonl"
        assert main(["sweep", str(config()), "--out", str(table)]) == 130
        assert "t.jsonl has what was done; the same command goes on" in capsys.readouterr().err
        assert table.read_text() == ""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["absent"], "cannot read"),
            (["{config}", "--out", "{config}"], "it is the input"),
            (["{folder}"], "is a folder"),
            (["{config}", "--out", "absent/t.jsonl"], "cannot write absent/t.jsonl"),
        ],
    )
    def test_mistakes(self, config, tmp_path, capsys, arguments, message):
        names = {"config": config(), "folder": tmp_path}
        assert main(["sweep", *(a.format(**names) for a in arguments)]) == 2
        err = capsys.readouterr().err
        assert message in err
        assert err.count("\n") == 1
