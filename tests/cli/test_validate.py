import sys

import pytest

from wafer_jax.report.published import COLUMNS

FAST = ("--family", "vector")
"""Closed forms: nothing is compiled."""


@pytest.fixture
def points(tmp_path):
    def write(*rows):
        path = tmp_path / "points.csv"
        path.write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
        return path

    return write


def instruction(value):
    return f"s,dsd_fmach_single_dispatch,WSE-3,1,1,n=4096,fp16,cycles,{value},cycles,[SIM]"


def test_the_summary_names_family_errors_and_bar(wafer):
    shown = wafer("validate", *FAST)
    assert shown.code == 0
    assert "median <= 5 %" in shown.out
    assert "dsd_fmach" not in shown.out


def test_every_point_on_demand(wafer):
    lines = wafer("validate", *FAST, "--all").out.splitlines()
    (line,) = (line for line in lines if "dsd_fmach_single_dispatch" in line)
    assert line.split() == [
        "dsd_fmach_single_dispatch", "n=4096", "1x1", "vendor", "simulator", "wse3", "cost",
        "1,040", "1,040", "cycles", "+0.0",
    ]  # fmt: skip


def test_json_has_all_of_it(wafer):
    record = wafer("validate", *FAST, "--json").json
    assert record["met"] is True
    (summary,) = record["summary"]
    assert (summary["family"], summary["met"]) == ("vector", True)
    assert len(record["points"]) == summary["points"]
    assert {p["level"] for p in record["points"]} == {"cost"}
    assert all(p["source"] for p in record["points"])
    assert record["unexpressed"] == []


def test_points_of_ones_own(wafer, points):
    path = points(instruction(1000), "s,wsFFT,CS-2,512,512,512^3,fp32,time,959,us,[PAPER]")
    shown = wafer("validate", "--points", path)
    assert shown.code == 0
    assert "line 3: wsFFT 512^3: no experiment of this name is modelled" in shown.out
    record = wafer("validate", "--points", path, "--json").json
    (point,) = record["points"]
    assert point["error_percent"] == pytest.approx(4.0)
    assert record["unexpressed"][0]["line"] == 3


def test_a_missed_bar_is_exit_1(wafer, points):
    shown = wafer("validate", "--points", points(instruction(500)))
    assert shown.code == 1
    assert shown.err == ""


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--family", "gem"), "unknown family 'gem': choose one of reduce"),
        (("--points", "missing.csv"), "cannot read missing.csv"),
        (("--plot", "missing/plot.png"), "no folder missing"),
        (("--plot", "plot.txt"), "ends in .png"),
    ],
)
def test_mistakes(wafer, arguments, error):
    assert error in wafer("validate", *arguments).error


def test_a_malformed_row_is_refused_with_its_line(wafer, points):
    error = wafer("validate", "--points", points(instruction(1040), "a,b")).error
    assert error == "points.csv, line 3: 2 fields instead of 11"


def test_the_plot(wafer, tmp_path, points):
    plot = tmp_path / "plot.svg"
    assert wafer("validate", *FAST, "--plot", plot).code == 0
    assert "<!-- vector (28) -->" in plot.read_text()
    path = points("s,turn_cost,WSE-3,,,,,turn_cost,0.5,cycles,[SIM]")
    assert wafer("validate", "--family", "vector", "--points", path, "--plot", plot).code == 0
    assert "cannot write" in wafer("validate", "--points", path, "--plot", path).error


def test_without_matplotlib(wafer, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install" in wafer("validate", *FAST, "--plot", "plot.png").error
