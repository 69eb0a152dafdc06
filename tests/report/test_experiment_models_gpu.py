"""Tables 7 and 8 of WaferLLM: speeds and energies of whole models against A100s."""

import pytest

import wafer_jax as wj
from wafer_jax.models.model_configs import model_config
from wafer_jax.models.published import waferllm
from wafer_jax.report.experiment_rows import tally


@pytest.fixture(scope="module", params=["waferllm-table-7", "waferllm-table-8"])
def done(request):
    return wj.experiment(request.param)


def test_speeds_are_those_of_the_published_kernels(done):
    side, costs = {
        "waferllm-table-7": (720, waferllm.prefill_costs),
        "waferllm-table-8": (420, waferllm.decode_costs),
    }[done.name]
    hw = wj.hardware("wse2", mesh=(side, side))
    rows = done.sections[0].frame.query("what == 'WSE-2'").set_index("model")
    for model in ("llama3-8b", "qwen2-72b"):
        found = costs(hw, model_config(model), 4096)
        expected = found.layers_tokens_per_s
        assert rows["ours"][model] == pytest.approx(expected)
    assert rows["met"].all()


def test_energies_follow_from_speeds_and_power(done):
    speeds = done.sections[0].frame.set_index(["model", "what"])
    energies = done.sections[1].frame.set_index(["model", "what"])
    for gpus, name in ((1, "A100 x1"), (8, "A100 x8"), (16, "A100 2x8")):
        for model in ("llama3-8b", "qwen2-72b"):
            row = energies.loc[(model, f"{name} / WSE-2")]
            gpu = speeds["paper"][model, name]
            for column in ("paper", "ours"):
                speedup = speeds[column][model, "WSE-2"] / gpu
                assert row[column] == pytest.approx(speedup * gpus / 37.5)


def test_only_rows_of_the_emulator_count(done):
    found = tally(s.frame for s in done.sections)
    assert found.levels == ("cost",)
    assert found.rows == 8
    assert found.missed == 0


def test_decode_gains_energy_and_prefill_does_not():
    energies = {n: wj.experiment(f"waferllm-table-{n}").sections[1].frame for n in (7, 8)}
    fastest = {n: e.query("what == 'A100 x8 / WSE-2'") for n, e in energies.items()}
    assert (fastest[7][["paper", "ours"]] < 1).all(axis=None)
    assert (fastest[8][["paper", "ours"]] > 2).all(axis=None)
    claims = wj.experiment("waferllm-table-8").statements
    (energy,) = (s for s in claims if s.claim.startswith("Decode takes 2 to 2.5 times less"))
    assert [r.verdict for r in energy.readings] == ["partly", "partly"]


def test_every_figure_has_a_unit(done):
    units = {row["unit"] for row in done.record()["figures"]}
    assert units == {"tokens/s", "ratio"}
