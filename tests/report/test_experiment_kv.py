"""Table 5 of WaferLLM: caches filled until a vector is lost, and bytes of the regions."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import wafer_jax as wj
from wafer_jax.collectives import kv_shift
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_memory import layer_bytes
from wafer_jax.models.model_configs import model_config
from wafer_jax.report import kv_filling
from wafer_jax.report.kv_balance import Region, capacities
from wafer_jax.report.kv_filling import fill, fill_fabric, published_fills


@pytest.fixture(scope="module")
def done():
    return wj.experiment("waferllm-table-5", quick=True)


@pytest.mark.parametrize(("rows", "slots"), [(1, 3), (2, 1), (5, 4)])
@pytest.mark.parametrize("every", [True, False])
def test_a_mesh_is_full_after_one_row_by_concat_and_after_all_by_shift(rows, slots, every):
    concat, shift = (fill(p, rows, slots, every=every) for p in ("concat", "shift"))
    assert (concat.vectors, shift.vectors) == (slots, rows * slots)
    assert concat.spread == (slots if rows > 1 else 0)
    assert shift.spread <= 1
    assert shift.in_order
    assert shift.hops == ((1 if rows > 1 else 0) if every else None)


@pytest.mark.parametrize("every", [True, False])
def test_a_policy_that_loses_a_vector_is_full_before(monkeypatch, every):
    def forgets(cache, entry, length):
        return jnp.where(length == 5, cache, kv_shift.apply(cache, entry, length))

    monkeypatch.setitem(kv_filling.POLICIES, "shift", SimpleNamespace(apply=forgets))
    assert fill("shift", 3, 4, every=every).vectors == 5


def test_vectors_that_jump_or_lie_out_of_order_are_seen():
    jumping = kv_filling._Observed(3)
    assert jumping.add(np.array([[-1, -1, 0]]), 1)
    assert jumping.add(np.array([[0, -1, 1]]), 1)
    assert (jumping.hops, jumping.spread, jumping.sorted) == (2, 1, True)
    turned = kv_filling._Observed(2)
    assert turned.add(np.array([[1, 0]]), 2)
    assert not turned.sorted
    assert not turned.add(np.array([[1, 2]]), 1)


def test_the_fabric_holds_as_many():
    hw = wj.hardware("toy", mesh=(2, 1))
    concat, shift = (fill_fabric(p, hw, 2) for p in ("concat", "shift"))
    assert (concat.vectors, shift.vectors) == (2, 4)
    assert shift.in_order
    assert shift.hops == 1
    assert concat.fabric_cycles == concat.cost_cycles


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_fills_by_the_papers_trigger_are_the_mirror_image(rows):
    for vectors in range(4 * rows + 1):
        fills = published_fills(rows, vectors)
        assert fills.sum() == vectors
        assert (np.diff(fills) <= 0).all()
        assert (fills[::-1] == np.asarray(kv_shift.counts(vectors, rows))).all()


@pytest.mark.parametrize(
    ("model", "side", "layers", "weights", "kv", "tokens", "left"),
    [
        ("llama3-8b", 360, 5, 3365.8, 11.378, 382.08, 10587),
        ("llama2-13b", 375, 7, 4511.3, 54.613, 16.448, 11286),
    ],
)
def test_bytes_of_the_published_regions(model, side, layers, weights, kv, tokens, left):
    hw, region = wj.hardware("wse2"), Region(model_config(model), side)
    assert region.layers == layers
    assert region.weights_bytes == pytest.approx(weights, abs=0.1)
    assert region.kv_bytes == pytest.approx(kv, abs=1e-3)
    assert region.reserved_bytes(hw, tokens) == pytest.approx(left, abs=1)
    assert region.tokens_per_row(hw, left) == pytest.approx(tokens, rel=1e-3)


def test_capacities_round_down():
    assert capacities(375, 6168 / 375) == {"concat": 16, "shift": 6168}


def test_placed_slots_are_the_most_that_fit():
    hw, region = wj.hardware("wse2"), Region(model_config("llama2-13b"), 375)
    layout = LayerLayout(region.config, (375, 375))

    def used(slots):
        one = layer_bytes(layout, "float16", slots * 375, 1)
        return 7 * (one.weights_bytes + one.kv_bytes) + one.buffers_bytes

    slots = region.placed_slots(hw, 7)
    assert used(slots) <= hw.data_bytes < used(slots + 1)
    assert region.placed_slots(hw, 20) == 0


def test_rows_of_the_table(done):
    rows = done.sections[0].frame.set_index(["model", "what", "how"])["ours"]
    assert rows["llama3-8b", "shift / concat", "a run"] == 360
    assert rows["llama2-13b", "shift / concat", "a run"] == 375
    for model, concat, shift in (("llama3-8b", 382, 137548), ("llama2-13b", 16, 6168)):
        own = "bytes kept as its own (exact)"
        assert (rows[model, "concat", own], rows[model, "shift", own]) == (concat, shift)
        ends = [rows[model, "shift", f"bytes kept for {kept}"] for kept in
                ("decode's code alone", "the smallest kernel")]  # fmt: skip
        assert ends[0] < shift < ends[1]
    missed = done.sections[0].frame.query("met == False")
    assert list(missed["error_percent"].round()) == [-25, -25, 12, 11]


def test_what_the_text_states(done):
    verdicts = [s.readings[0].verdict for s in done.statements]
    assert verdicts == ["partly", "partly", "yes", "yes", "yes", "partly"]


def test_every_figure_has_a_unit(done):
    units = {row["unit"] for row in done.record()["figures"]}
    assert units == {"tokens", "ratio"}
