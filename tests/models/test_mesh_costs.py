"""Cycles per operator against the collectives' own costs, and their trends."""

import pytest

from models.test_placement import LLAMA3_8B, SMOLLM2, wse2
from wafer_jax.collectives import gemm, gemv
from wafer_jax.models.mesh_costs import PhaseCosts, decode_costs, prefill_costs
from wafer_jax.models.placement import place


@pytest.fixture(scope="module")
def placement():
    return place(SMOLLM2, wse2(24, 24), context=112, prompt=48)


def cycles_of(costs: PhaseCosts, operator: str) -> int:
    (found,) = [o.cycles for o in (*costs.layer, *costs.model) if o.operator == operator]
    return found


def test_projections_cost_what_their_collectives_say(placement):
    hw = placement.hw
    decode, prefill = decode_costs(placement, 64), prefill_costs(placement, 48)
    for name, rows, cols, axis in (
        ("q, k, v", 576, 960, "y"),
        ("o", 576, 576, "x"),
        ("gate, up", 576, 3072, "y"),
        ("down", 1536, 576, "x"),
    ):
        assert cycles_of(decode, name) == gemv.cost(hw, rows, cols, axis=axis)
        assert cycles_of(prefill, name) == gemm.cost(hw, 48, rows, cols)
    region = hw.replace(mesh=placement.head.mesh)
    assert cycles_of(decode, "head") == gemv.cost(region, 576, placement.head.mesh[1] * 443)


@pytest.mark.parametrize("mesh", [(24, 24), (18, 32), (32, 32)])
def test_every_cycle_has_one_cause(mesh):
    there = place(SMOLLM2, wse2(*mesh), context=112, prompt=40)
    for costs in (decode_costs(there, 64), prefill_costs(there, 40)):
        frame = costs.frame
        shares = ["compute_cycles", "communication_cycles", "idle_cycles"]
        assert (frame[shares] >= 0).all(axis=None)
        assert (frame[shares].sum(axis=1) == frame["cycles"]).all()
        assert (frame["cycles"] * frame["times"]).sum() == costs.cycles
        assert costs.layer_cycles == frame.loc[frame["part"] == "layer", "cycles"].sum()
        moves = frame["communication_cycles"] > 0
        assert (frame["moved_bytes"] > 0).equals(moves)


def test_both_definitions_of_tokens_per_s(placement):
    decode, prefill = decode_costs(placement, 64), prefill_costs(placement, 48)
    assert decode.layers_tokens_per_s == pytest.approx(1.1e9 / (30 * decode.layer_cycles))
    assert decode.tokens_per_s == pytest.approx(1.1e9 / decode.cycles)
    assert prefill.tokens_per_s == pytest.approx(48 * 1.1e9 / prefill.cycles)
    assert decode.tokens_per_s < decode.layers_tokens_per_s


def test_a_longer_context_costs_more_only_when_a_row_holds_more(placement):
    by_context = [decode_costs(placement, n).cycles for n in (48, 49, 72, 73)]
    assert by_context[0] < by_context[1] == by_context[2] < by_context[3]


def test_one_pe_has_nobody_to_talk_to():
    hw = wse2(1, 1).replace(sram_bytes=1 << 30)
    costs = decode_costs(place(SMOLLM2, hw), 8)
    assert all(o.moved_bytes == 0 and o.idle_cycles == 0 for o in costs.layer)


def test_prefill_of_an_8b_model_on_480x480_as_published():
    """WaferLLM's table 3: 20,320.6 tokens/s, one layer times the layers."""
    placement = place(LLAMA3_8B, wse2(480, 480), context=4096, prompt=4096, dtype="float16")
    costs = prefill_costs(placement, 4096)
    assert costs.layers_tokens_per_s == pytest.approx(20320.6, rel=0.09)


def test_a_hand_off_to_another_wafer_uses_the_host_link():
    placement = place(LLAMA3_8B, wse2(480, 480), context=4096, prompt=4096, dtype="float16")
    assert placement.wafers > 1
    slow = wse2(480, 480).replace(host_link_bytes_per_s=1e9)
    slower = place(LLAMA3_8B, slow, context=4096, prompt=4096, dtype="float16")
    name = "hand-offs"
    assert cycles_of(decode_costs(slower, 9), name) > cycles_of(decode_costs(placement, 9), name)


def test_layers_of_one_region_hand_nothing_over():
    """One region of all layers: what remains is the way to the head."""
    hw = wse2(64, 64).replace(sram_bytes=1 << 20)
    one, all_ = (
        place(SMOLLM2, hw, context=64, prompt=64, layers_per_region=n)
        for n in (1, SMOLLM2.num_layers)
    )
    assert len(all_.regions) == 2
    for costs in (decode_costs, prefill_costs):
        apart, together = costs(one, 64), costs(all_, 64)
        assert together.layer == apart.layer
        assert 0 < cycles_of(together, "hand-offs") < cycles_of(apart, "hand-offs") / 10
    name = "re-layout for decode"  # on all regions at once, in a region layer by layer
    assert cycles_of(prefill_costs(all_, 64), name) == 30 * cycles_of(prefill_costs(one, 64), name)
