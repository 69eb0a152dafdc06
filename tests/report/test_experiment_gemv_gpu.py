"""Table 6 of WaferLLM: the search, the energies, and their statements."""

import numpy as np
import pytest

import wafer_jax as wj
from wafer_jax.collectives import gemv
from wafer_jax.report import experiment_gemv_gpu
from wafer_jax.report.experiment import settings
from wafer_jax.report.gpu_energy import energy_ratio, gpu_name


@pytest.fixture(scope="module")
def done():
    return wj.experiment("waferllm-table-6", quick=True)


def test_energies_of_the_published_times_are_the_published_ones(done):
    rows = done.sections[1].frame.query("level == 'formula'")
    assert len(rows) == 6
    assert np.abs(rows["ours"] - rows["paper"]).max() < 0.01
    assert rows["met"].all()


def test_a_ratio_of_energy_is_power_times_time():
    hw = wj.hardware("wse2")
    joules = 8 * 400 * 0.002, hw.power_watts * 0.00003
    assert energy_ratio(0.002 / 0.00003, 8, hw, 400) == pytest.approx(joules[0] / joules[1])
    assert [gpu_name(n) for n in (1, 8, 16)] == ["A100 x1", "A100 x8", "A100 2x8"]


def test_the_search_finds_what_no_other_grid_beats(done):
    grids = done.sections[3].frame.query("size == 16384 and K == 2").iloc[0]
    for side in range(500, 751, 10):
        hw = wj.hardware("wse2", mesh=(side, side))
        assert gemv.cost(hw, 16384, 16384, k=2, dtype="float16") >= grids["cycles"]
    hw = wj.hardware("wse2", mesh=(int(grids["side"]),) * 2)
    assert gemv.cost(hw, 16384, 16384, k=2, dtype="float16") == grids["cycles"]


def test_grids_whose_tiles_do_not_fit_are_no_choice():
    chosen = settings("waferllm-table-6", True, experiment_gemv_gpu.Settings)
    small = experiment_gemv_gpu._search(
        experiment_gemv_gpu.Settings(**vars(chosen) | {"sides": (60, 240, 60)}),
        wj.hardware("wse2"), 32768,
    )  # fmt: skip
    assert {best.side for best in small.values()} == {240}
    assert experiment_gemv_gpu._fits(wj.hardware("wse2", mesh=(240, 240)), 32768)
    assert not experiment_gemv_gpu._fits(wj.hardware("wse2", mesh=(180, 180)), 32768)


def test_times_are_within_their_bars_and_ours_are_cycles_of_the_clock(done):
    times = done.sections[0].frame
    wafer = times.query("what == 'WSE-2' and bar_percent == bar_percent")
    assert list(wafer["paper"]) == [0.0012, 0.00203]
    assert wafer["met"].all()
    assert wafer["ours"].iloc[0] == pytest.approx(1190 / 1.1e6)
    one = times.query("what == 'A100 x1'")
    assert list(one["ours"]) == pytest.approx([2**29 / 2.039e9, 2**31 / 2.039e9])


def test_more_gpus_are_not_explained_by_bandwidth(done):
    verdicts = {s.claim: [r.verdict for r in s.readings] for s in done.statements}
    (gpus,) = (v for claim, v in verdicts.items() if claim.startswith("Eight A100s"))
    assert gpus == ["yes", "no"]
    assert verdicts["A WSE-2 takes 37 times the power of an A100"] == ["yes"]
    (energy,) = (s for s in done.statements if s.claim.startswith("It takes 45 to 70"))
    assert "(44.97 published)" in energy.readings[0].ours
    assert "(71.25 published)" in energy.readings[0].ours


def test_every_figure_has_a_unit(done):
    units = {row["unit"] for row in done.record()["figures"]}
    assert units == {"ms", "ratio"}
