"""Published figures beside ours: the bars, the models behind them, and what is not compared."""

import re
from pathlib import Path

import numpy as np
import pytest

import wafer_jax as wj
from wafer_jax.collectives import gemv, stencil_cost
from wafer_jax.report import validation_p2p as p2p
from wafer_jax.report.published import COLUMNS, read_points, shipped_points
from wafer_jax.report.validation import family_names, validate
from wafer_jax.report.validation_other import best_product_cycles


def table(path, *rows):
    """A file of points; every row gives what differs from a vector instruction on the WSE-3."""
    base = {"source": "s", "experiment": "dsd_fmach_single_dispatch", "device": "WSE-3",
            "vector_len_or_matrix": "n=4096", "value": "1040", "unit": "cycles",
            "note": "[SIM]"}  # fmt: skip
    lines = [",".join((base | row).get(c, "") for c in COLUMNS) for row in rows]
    path.write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    ("family", "bar"),
    [("reduce", 2.0), ("gemm", 8.6), ("point-to-point", 3.04), ("stencil", 15.2), ("vector", 5.6)],
)
def test_no_figure_is_further_off(family, bar):
    found = validate(family)
    assert found.points
    assert len(found.unexpressed) == (3 if family == "gemm" else 0)
    assert found.met
    assert found.frame()["error_percent"].abs().max() <= bar


def test_the_models_say_the_same_of_sizes_that_are_not_published():
    """Set-up, issue, ramps and hops by hand; no number here comes from the code."""
    silicon, simulator = wj.hardware("wse3_silicon"), wj.hardware("wse3")
    for side, hops in (("east", 30), ("north", 9), ("south", 16)):
        assert p2p.latency(silicon, side, hops) == 1 + 16 + (4 + 1 + 2) + 2 * hops + (2 + 1) + 13
    assert p2p.latency(silicon, "west", 5, words=100) == 40 + 2 * 5 + 99
    for stages, words in ((3, 20), (5, 64)):
        by_hand = 1 + 16 + stages * (words + 4 + 1 + 2 + 2 + 2 + 5)
        assert p2p.relay_cycles(simulator, stages, words) == by_hand
    assert p2p.relay_line(simulator) == (1.0, 16.0, 17.0)


def test_a_slower_machine_is_slower():
    hw = wj.hardware("wse3").replace(hop_cycles=3, launch_cycles=30, task_cycles=20)
    assert p2p.latency(hw, "west", 10) == 1 + 30 + 7 + 30 + 3 + 20


def test_a_stencil_of_the_table_has_its_width_first(tmp_path):
    row = {"experiment": "stencil2d_star_r1_tiled", "vector_len_or_matrix": "tile 14x3 grid 44x11",
           "mesh_w": "5", "mesh_h": "5", "value": "500"}  # fmt: skip
    (point,) = validate(points=table(tmp_path / "p.csv", row)).points
    machine = wj.hardware("wse3", mesh=(5, 5))
    assert point.ours == stencil_cost.published(machine, 3, 14, 1, (5, 5))
    assert point.ours != stencil_cost.published(machine, 14, 3, 1, (5, 5))


@pytest.mark.parametrize("family", ["gemm", "stencil", "vector"])
def test_the_page_shows_what_is_printed(family):
    page = (Path(__file__).parents[2] / "docs" / "validation.md").read_text()
    (shown,) = re.findall(rf"^{family} .*%.*$", page, re.MULTILINE)
    (row,) = validate(family).summary().to_dict("records")
    figures = [f"{row[k]:.1f}" for k in
               ("median_percent", "worst_percent", "held_out_median_percent")]  # fmt: skip
    expected = [family, row["points"], row["held_out"], row["level"], *figures, row["bar"], "yes"]
    assert shown.split() == " ".join(map(str, expected)).split()


def test_what_is_shown_for_information():
    points = {p.experiment: p for p in validate("informational").points}
    assert points["per_wavelet"].ours == 1.0
    assert points["turn_cost"].ours == 0
    assert points["SUMMA_manual_4x4"].ours == pytest.approx(45783, rel=0.15)
    assert points["GEMV [1,16K]x[16K,16K]"].ours < points["GEMV [1,32K]x[32K,32K]"].ours
    hw = wj.hardware("wse2")
    on_one_grid = gemv.cost(hw.replace(mesh=(480, 480)), 16384, 16384, dtype="float16")
    assert 0 < best_product_cycles(hw, 16384, 16384) <= on_one_grid


def test_the_shipped_points_have_a_source_and_evidence():
    points = read_points(shipped_points())
    assert len(points) == 426
    assert all(p.source and p.unit for p in points)
    assert {p.kind for p in points} == {"silicon", "vendor simulator", "unclear"}


def test_median_worst_and_bar_are_those_of_the_errors(tmp_path):
    rows = [{"value": str(v)} for v in (1040 / 1.02, 1040 / 1.04, 1040 / 0.9)]
    found = validate(points=table(tmp_path / "p.csv", *rows))
    (summary,) = found.summary().to_dict("records")
    assert (summary["points"], summary["held_out"]) == (3, 3)
    assert summary["median_percent"] == pytest.approx(4)
    assert summary["worst_percent"] == pytest.approx(10)
    assert found.met
    assert np.allclose([p.error for p in found.points], [0.02, 0.04, -0.1])
    assert not validate(points=table(tmp_path / "q.csv", {"value": "500"})).met


def test_a_figure_within_half_a_cycle_meets_a_bar_in_percent(tmp_path):
    row = {"experiment": "relay_const", "vector_len_or_matrix": "", "unit": "cycles"}
    assert validate(points=table(tmp_path / "p.csv", row | {"value": "16.5"})).met
    assert not validate(points=table(tmp_path / "q.csv", row | {"value": "16.4"})).met


def test_silicon_is_compared_with_the_rates_of_silicon(tmp_path):
    row = {"experiment": "copy_fp16_rate", "value": "8", "unit": "elem/cycle"}
    rows = [row | {"note": note} for note in ("[HW]", "[SIM]", "[SIM-or-HW unclear]", "none")]
    points = validate(points=table(tmp_path / "p.csv", *rows)).points
    assert [p.kind for p in points] == ["silicon", "vendor simulator", "unclear", "unclear"]
    assert [p.preset for p in points] == ["wse3_silicon", "wse3", "wse3", "wse3"]
    assert points[0].ours == pytest.approx(4.82, rel=0.01)
    assert points[1].ours == 8.0


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"experiment": "wsFFT"}, "no experiment of this name"),
        ({"experiment": "whole_program x"}, "the host's traffic"),
        ({"device": "A100 x1"}, "no preset stands for the device 'A100 x1'"),
        ({"vector_len_or_matrix": "long"}, "'long' does not give n="),
        ({"vector_len_or_matrix": "n=0"}, "n=0: give a number above 0"),
        ({"experiment": "reduce1d_chain", "vector_len_or_matrix": "B=4"}, "not give the mesh"),
        ({"experiment": "stencil2d_star_r1_tiled", "mesh_w": "3", "mesh_h": "3"}, "tile WxH"),
        ({"experiment": "reduce1d_star", "vector_len_or_matrix": "B=4", "mesh_w": "3",
          "mesh_h": "1"}, "no reduce 'reduce1d_star'"),
        ({"experiment": "reduce1d_chain", "vector_len_or_matrix": "B=40000", "mesh_w": "3",
          "mesh_h": "1"}, "bytes of SRAM"),
        ({"experiment": "reduce1d_chain", "vector_len_or_matrix": "B=4", "mesh_w": "3000",
          "mesh_h": "1"}, "larger than the device"),
        ({"experiment": "p2p_straight_latency_west_median", "vector_len_or_matrix": "hops=9999"},
         "larger than the device"),
    ],
)  # fmt: skip
def test_a_row_without_a_figure_of_ours_says_why(tmp_path, row, reason):
    found = validate(points=table(tmp_path / "p.csv", row))
    assert not found.points
    (without,) = found.unexpressed
    assert without.line == 2
    assert reason in without.reason
    assert found.met
    assert found.frame().empty


GOOD = "s,relay_const,WSE-3,,,,,m,16.5,cycles,[SIM]"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["source,experiment"], "line 1: the columns must be source,experiment,device"),
        ([], "line 1: the columns"),
        ([",".join(COLUMNS)], "has no rows"),
        ([",".join(COLUMNS), GOOD, "a,b,c"], "line 3: 3 fields instead of 11"),
        ([",".join(COLUMNS), GOOD, "", GOOD.replace("16.5", "x")], "line 4: value = 'x' is not a"),
        ([",".join(COLUMNS), GOOD.replace("16.5", "-1")], "line 2: value = '-1'"),
        ([",".join(COLUMNS), GOOD.replace("16.5", "nan")], "line 2: value = 'nan'"),
        ([",".join(COLUMNS), GOOD.replace("WSE-3,,", "WSE-3,3,")], "line 2: mesh_w = '3', mesh_h"),
        ([",".join(COLUMNS), GOOD.replace("WSE-3,,", "WSE-3,3,0")], "line 2: mesh_w = '3', mesh_h"),
        ([",".join(COLUMNS), GOOD.replace("relay_const", "")], "line 2: the experiment is empty"),
        ([",".join(COLUMNS), GOOD, f'"{GOOD}'], "line 3: unexpected end of data"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path, lines, message):
    path = tmp_path / "points.csv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(wj.WaferError, match=message) as error:
        validate(points=path)
    assert "\n" not in str(error.value)


def test_families_are_named():
    with pytest.raises(wj.WaferError, match="choose one of reduce, "):
        validate("reduction")
    assert wj.validate is validate
    assert len(set(family_names())) == len(family_names())


def test_progress_names_what_is_compared(tmp_path):
    said = []
    validate(points=table(tmp_path / "p.csv", {}, {}), progress=said.append)
    assert said == [f"{i} of 2: dsd_fmach_single_dispatch n=4096" for i in (1, 2)]
