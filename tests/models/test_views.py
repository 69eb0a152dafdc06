"""What notebooks show of placements, phases, generations and tunings."""

import matplotlib
import matplotlib.pyplot as plt
import pytest

from wafer_jax import hardware
from wafer_jax.models import (
    autotune,
    decode_costs,
    model_config,
    place,
    prefill_costs,
)
from wafer_jax.models.generation import Generation

LLAMA3 = model_config("llama3-8b")
PLACEMENT = place(LLAMA3, hardware("wse2", mesh=(360, 360)), dtype="float16", context=4096)


@pytest.fixture(autouse=True)
def no_window():
    matplotlib.use("Agg")
    yield
    plt.close("all")


def test_a_placement():
    assert repr(PLACEMENT) == (
        "Placement(32 layers in float16, a layer on 360x360 PEs, KV caches of 4,096 tokens: "
        f"{PLACEMENT.num_pes:,} PEs on {PLACEMENT.wafers} wafers of wse2)"
    )
    assert "layer 0 to 31" in PLACEMENT._repr_html_()
    assert PLACEMENT.summary["count"].tolist() == [1, 32, 1]


def test_a_phase_and_its_picture():
    costs = decode_costs(PLACEMENT, 2048)
    assert costs.title == f"decode of a token that sees 2,048: {costs.cycles:,} cycles"
    assert costs.title in repr(costs)
    assert costs.frame["share_percent"].sum() == pytest.approx(100)
    assert "share_percent" in costs._repr_html_()
    axes = costs.plot()
    assert sum(bar.get_width() for bar in axes.patches) == costs.cycles
    assert axes.get_title() == f"{costs.title} (cost)"
    assert costs.plot(axes) is axes
    assert prefill_costs(PLACEMENT, 1).title.startswith("prefill of 1 token: ")
    two = decode_costs(PLACEMENT, [5, 9])
    assert two.title.startswith("decode of a token of each of 2 sequences that sees 9: ")


def test_the_pictures_of_a_generation():
    generation = Generation(
        name="llama", prompt_ids=(1,) * 64, ids=(2, 3), text=None, logits=None,
        placement=PLACEMENT, k=2, prefill_s=0, decode_s=0,
    )  # fmt: skip
    phases = generation.prefill, generation.decode
    for axes, costs in zip(generation.plot(), phases, strict=True):
        assert sum(bar.get_width() for bar in axes.patches) == costs.cycles
        assert axes.get_title(loc="left") == f"{costs.title} (cost)"


def test_a_tuning():
    tuning = autotune(LLAMA3, hardware("wse2"), phase="decode", prompt=64, output=8)
    assert str(tuning).splitlines() == list(tuning.explanation)
    assert tuning.explanation[0].rstrip(".") in repr(tuning)
    assert "\n" not in repr(tuning)
    assert tuning.explanation[-1] in tuning._repr_html_()
