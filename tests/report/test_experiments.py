"""Experiments: what they are, how they are written, and their figures against other sources."""

import json

import matplotlib
import pandas as pd
import pytest

import wafer_jax as wj
from wafer_jax.collectives import gemm as gemm_mesh
from wafer_jax.collectives import gemm_summa
from wafer_jax.report import experiments
from wafer_jax.report.experiment import (
    Experiment,
    Reading,
    Section,
    Statement,
    check_folder,
    settings,
)
from wafer_jax.report.experiment_claims import verdict_of
from wafer_jax.report.provenance import provenance

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def gemm():
    return wj.experiment("waferllm-figure-9", quick=True)


@pytest.fixture(scope="module")
def gemv():
    return wj.experiment("waferllm-figure-10", quick=True)


@pytest.fixture(scope="module")
def coordination():
    return wj.experiment("meshrt-table-1", quick=True)


@pytest.fixture
def small():
    """An experiment that took nothing to do."""
    return Experiment(
        name="small",
        title="A small one",
        origin=provenance(wj.hardware("toy"), level="cost"),
        sections=(Section("T", pd.DataFrame({"n": [1], "a_cycles": [1234]}), "A note."),),
        statements=(Statement("It is fast", (Reading("ours", "very", "yes"),), "Because."),),
        figures=pd.DataFrame({"cycles": [1234], "level": ["cost"]}),
        draw=lambda figure: figure.subplots().plot([1, 2]),
        plot_inches=(2, 2),
    )


def test_writing_gives_a_page_a_plot_and_figures(small, tmp_path):
    paths = small.write(tmp_path / "new")
    assert [p.name for p in paths] == ["small.md", "small.png", "small.json"]
    page, picture, figures = paths
    assert "| 1 | 1,234 |" in page.read_text()
    assert "**yes**. very" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    record = json.loads(figures.read_text())
    assert record["preset_hash"] == wj.hardware("toy").hash
    assert {"version", "jax_version", "level"} <= set(record)
    assert record["figures"] == [{"cycles": 1234, "level": "cost"}]
    assert "1,234" in str(small)


def test_a_plot_that_fails_leaves_nothing(small, tmp_path):
    broken = Experiment(**vars(small) | {"draw": lambda figure: 1 / 0})
    (tmp_path / "small.md").write_text("what was there")
    with pytest.raises(ZeroDivisionError):
        broken.write(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["small.md"]
    assert (tmp_path / "small.md").read_text() == "what was there"


def test_folders_that_cannot_be_written(small, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(wj.WaferError, match="no folder"):
        check_folder(tmp_path / "none" / "out", "small")
    with pytest.raises(wj.WaferError, match="file is a file"):
        check_folder(tmp_path / "file", "small")
    (tmp_path / "small.png").mkdir()
    with pytest.raises(wj.WaferError, match="it is a folder"):
        small.write(tmp_path)


def test_unknown_names_and_keys():
    with pytest.raises(wj.WaferError, match="known are waferllm-figure-9, waferllm-figure-10"):
        wj.experiment("figure-9")
    for name in (None, 9, ["waferllm-figure-9"]):
        with pytest.raises(wj.WaferError, match="unknown experiment"):
            wj.experiment(name)  # pyright: ignore[reportArgumentType]
    with pytest.raises(wj.WaferError, match="unknown or missing key"):
        settings("waferllm-figure-9", False, Reading)


def test_quick_changes_only_what_runs_on_the_fabric(gemm):
    module = experiments._known()["waferllm-figure-9"]
    full, quick = (settings(module.NAME, q, module.Settings) for q in (False, True))
    assert full.fabric_grids != quick.fabric_grids
    assert (full.sizes, full.grids) == (quick.sizes, quick.grids)


@pytest.mark.parametrize("name", ["gemm", "gemv", "coordination"])
def test_every_figure_has_a_level_and_fabric_is_beside_cost(name, request):
    done = request.getfixturevalue(name)
    assert set(done.figures["level"]) <= {"cost", "published"}
    (fabric,) = (s.frame for s in done.sections if "fabric_cycles" in s.frame)
    assert (fabric["fabric_cycles"] - fabric["cost_cycles"] == fabric["difference_cycles"]).all()
    assert fabric["difference_percent"].abs().max() < 10
    assert done.statements
    json.dumps(done.record(), allow_nan=False)
    assert "nan" not in str(done)


def cycles(done, method, size, grid):
    rows = done.figures.query("method == @method and size == @size and grid == @grid")
    return int(rows["cycles"].iloc[0])


def verdicts(done, beginning):
    (statement,) = (s for s in done.statements if s.claim.startswith(beginning))
    return [reading.verdict for reading in statement.readings]


def test_gemm_figures_are_those_of_the_costs(gemm):
    hw = wj.hardware("wse2", mesh=(360, 360))
    sizes = {"m": 4096, "k": 4096, "n": 4096, "dtype": "float16"}
    assert cycles(gemm, "MeshGEMM", 4096, 360) == gemm_mesh.cost(hw, align="left", **sizes)
    assert cycles(gemm, "SUMMA", 4096, 360) == gemm_summa.cost(hw, **sizes)
    row = gemm.figures.query("method == 'SUMMA' and size == 2048 and grid == 720").iloc[0]
    assert row["compute_cycles"] + row["communication_cycles"] == row["cycles"]
    assert row["vector_percent"] == pytest.approx(100 * 27 / 4 / 67)


def test_only_lines_that_every_step_pays_reproduce_figure_9(gemm):
    assert verdicts(gemm, "SUMMA and Cannon drop") == ["no", "partly", "partly"]
    assert verdicts(gemm, "2K from 360 x 360 to 720 x 720: SUMMA")[0] == "no"
    assert cycles(gemm, "SUMMA unison", 2048, 720) > 2 * cycles(gemm, "SUMMA unison", 2048, 360)
    assert cycles(gemm, "SUMMA serial", 8192, 720) > cycles(gemm, "SUMMA unison", 8192, 720)


def test_gathered_tiles_are_shown_only_where_they_fit(gemm):
    shown = gemm.figures.query("method == 'all-gather'")[["size", "grid"]].to_numpy().tolist()
    assert shown == [[2048, 600], [2048, 720]]
    words = [-(-((-(-2048 // grid)) ** 2) // 2) for grid in (480, 600)]
    gathered = [2 * grid * 4 * n for grid, n in zip((480, 600), words, strict=True)]
    assert gathered[1] < wj.hardware("wse2").data_bytes < gathered[0]


def test_gemv_reproduces_figure_10(gemv):
    for beginning in ("Communication", "MeshGEMV is about 4.6", "8K and 16K", "MeshGEMV's turning"):
        assert verdicts(gemv, beginning)[0] == "yes", beginning
    assert cycles(gemv, "pipeline", 16384, 720) == 5364
    assert cycles(gemv, "read off", 16384, 600) == 1450


def test_coordination_is_of_the_orders_of_the_table(coordination):
    frame = coordination.sections[0].frame
    assert list(frame["PEs"])[-1] == 1170 * 755
    assert frame["line_all-to-all_cycles"].between(1e5, 1e6).sum() == 3
    assert frame["line_broadcast_cycles"].between(100, 1000).sum() == 3
    host = coordination.sections[1].frame
    assert host["cycles"].iloc[0] == pytest.approx(4 / 1.5e11 * 1.1e9)
    assert verdicts(coordination, "Host") == ["not modelled"]


def test_verdicts():
    assert [verdict_of(v) for v in ([True], [True, False], [False])] == ["yes", "partly", "no"]
