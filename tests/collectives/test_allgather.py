"""All-gather by multicast and hop by hop: every PE has every block; cycles; routes."""

import numpy as np
import pytest
from jitter_harness import outputs_under_jitter
from lines_harness import VALUE_LINES, machines, normal, oracle_cycles, oracle_tile, same_bits, toy

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import allgather, allgather_relayed
from wafer_jax.collectives.lines import line_length

BOTH = (allgather, allgather_relayed)


def collected(x: np.ndarray, axis: str) -> np.ndarray:
    """[P, n, Y, X] of x [n, Y, X]: block i of every PE is what PE i of its line has."""
    where = -1 if axis == "x" else -2
    return np.stack(
        [np.broadcast_to(np.take(x, [i], axis=where), x.shape) for i in range(x.shape[where])]
    )


@pytest.mark.parametrize("module", BOTH)
@pytest.mark.parametrize("mesh", VALUE_LINES)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_every_pe_gets_every_block(module, mesh, axis):
    x = normal(3, *mesh)
    expected = collected(x, axis)
    assert same_bits(module.apply(x, axis), expected)
    assert same_bits(oracle_tile(module.program(toy(mesh), 3, axis), x, "y"), expected)


@pytest.mark.parametrize("module", BOTH)
def test_blocks_longer_than_all_queues_block_nobody(module):
    hw = toy((1, 5), router_depth=1, input_queue_depths=(1,) * 8, output_queue_depths=(1,) * 6)
    x = normal(100, 1, 5)
    program = module.program(hw, 100)
    assert same_bits(oracle_tile(program, x, "y"), collected(x, "x"))


@pytest.mark.parametrize("module", BOTH)
def test_cycles_equal_the_closed_form_on_lines_of_one_and_two(module):
    for hw, axis, words in machines([(1, 1), (1, 2), (2, 3)]):
        if line_length(hw, axis) < 3:
            for size in (words, words + 20):
                program = module.program(hw, size, axis)
                assert oracle_cycles(program) == module.cost(hw, size, axis), program.name


@pytest.mark.parametrize(
    ("module", "less", "more"), [(allgather, 4, 32), (allgather_relayed, 11, 19)]
)
def test_longer_lines_stay_near_the_closed_form(module, less, more):
    for hw, axis, words in machines([(1, 3), (1, 8)]):
        if axis == "x":
            for size in (words, words + 13):
                cycles, cost = oracle_cycles(module.program(hw, size)), module.cost(hw, size)
                assert -less <= 100 * (cycles - cost) / cost <= more, (hw, size)


@pytest.mark.parametrize("module", BOTH)
def test_executor_agrees_with_bulk_level(module):
    hw = hardware("wse2", mesh=(2, 5))
    x = normal(6, *hw.mesh, dtype="bfloat16")
    result = run(module.program(hw, 3, dtype="bfloat16"), x).raise_on_fault()
    assert same_bits(result.values, module.apply(x))


@pytest.mark.parametrize("module", BOTH)
def test_values_do_not_depend_on_when_pes_run(module):
    x = normal(4, 1, 4)
    for values in outputs_under_jitter(module.program(toy((1, 4)), 4), {"x": x}):
        assert same_bits(values, collected(x, "x"))


def test_routes_grow_with_the_line_unless_blocks_are_relayed():
    for length in (5, 8):
        hw = toy((1, length))
        multicast, relayed = allgather.multicast(hw, 2), allgather.relayed(hw, 2)
        assert (len(multicast.colors), len(relayed.colors)) == (length, 4)
        queues = [len(p.role_at(0, 2).bound(0).input) for p in (multicast, relayed)]
        assert queues == [length - 1, 2]


def test_relaying_costs_beta_per_stage():
    """WaferLLM's L property: on a line of 8 the multicast of a word is several times faster."""
    hw = hardware("wse2", mesh=(1, 8))
    fast, slow = (oracle_cycles(module.program(hw, 1)) for module in BOTH)
    assert slow > 1.5 * fast


def test_mistakes_are_named():
    with pytest.raises(WaferError, match=r"needs 9 input queues at every PE .*use shorter lines"):
        allgather.program(hardware("wse2", mesh=(1, 10)), 1)
    with pytest.raises(WaferError, match="needs 30 colours at every PE"):
        allgather.program(hardware("wse2", mesh=(30, 1)), 1, "y")
    with pytest.raises(WaferError, match="colour 3 does not exist"):
        allgather_relayed.program(toy((1, 4), colors=3), 1)
    with pytest.raises(WaferError, match="axis 'z'"):
        allgather.apply(normal(2, 1, 4), "z")  # pyright: ignore


def test_queues_of_one_word_behind_deep_routers_are_faster_than_the_cost():
    hw = toy((1, 3), ramp_cycles=3, stream_setup_cycles=1, router_depth=8,
             input_queue_depths=(1,) * 8, output_queue_depths=(4,) * 8)  # fmt: skip
    off = oracle_cycles(allgather.program(hw, 11)) / allgather.cost(hw, 11) - 1
    assert -0.14 < off < -0.1
