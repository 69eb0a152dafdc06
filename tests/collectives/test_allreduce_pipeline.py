"""Pipeline allreduce: values, the order of additions, cycles, WaferLLM's critical path."""

import numpy as np
import pytest
from jitter_harness import outputs_under_jitter
from lines_harness import (
    VALUE_LINES,
    integers,
    machines,
    normal,
    oracle_cycles,
    oracle_tile,
    same_bits,
    toy,
)

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import allreduce, allreduce_ktree, allreduce_pipeline


@pytest.mark.parametrize("mesh", VALUE_LINES)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_oracle_and_bulk_level_give_the_dense_sum_and_the_same_bits(mesh, axis):
    where = -1 if axis == "x" else -2
    exact, rough = integers(3, *mesh), normal(3, *mesh)
    dense = np.broadcast_to(exact.sum(axis=where, keepdims=True), exact.shape)
    assert (np.asarray(allreduce_pipeline.apply(exact, axis)) == dense).all()
    program = allreduce_pipeline.program(toy(mesh), 3, axis)
    assert same_bits(oracle_tile(program, rough), allreduce_pipeline.apply(rough, axis))


def test_cycles_equal_the_closed_form_on_every_mesh_and_machine():
    for hw, axis, words in machines():
        program = allreduce_pipeline.program(hw, words, axis)
        assert oracle_cycles(program) == allreduce_pipeline.cost(hw, words, axis), program.name


def test_executor_agrees_with_bulk_level_and_cost():
    hw = hardware("wse2", mesh=(5, 4))
    x = normal(8, *hw.mesh, dtype="float16")
    result = run(allreduce.pipeline(hw, words=4, axis="y", dtype="float16"), x).raise_on_fault()
    assert same_bits(result.values, allreduce_pipeline.apply(x, "y"))
    assert result.cycles == allreduce_pipeline.cost(hw, 4, "y")


def test_values_do_not_depend_on_when_pes_run():
    x = normal(3, 2, 5)
    expected = allreduce_pipeline.apply(x)
    for values in outputs_under_jitter(allreduce_pipeline.program(toy((2, 5)), 3), {"x": x}):
        assert same_bits(values, expected)


def test_critical_path_is_that_of_the_paper_and_longer_than_a_k_trees():
    """2 alpha N + beta N; the words and set-ups of two streams come on top."""
    hw = hardware("wse2", mesh=(1, 361))
    assert allreduce_pipeline.cost(hw, 1) == 2 * 360 + 5 * 361 + 2 * (1 + 2)
    assert allreduce_pipeline.cost(hw, 16) > 2 * allreduce_ktree.cost(hw, 16)


def test_routes_do_not_grow_with_the_line():
    for length in (3, 40):
        program = allreduce_pipeline.program(toy((1, length)), 2)
        assert len(program.colors) == 3
        assert max(len(role.bound(0).input) for role in program.roles) == 2


def test_mistakes_are_named():
    with pytest.raises(WaferError, match="needs 3 colours, toy has 2"):
        allreduce_pipeline.program(toy((1, 4), colors=2), 2)
    with pytest.raises(WaferError, match="axis 'z' of the mesh"):
        allreduce_pipeline.cost(toy((1, 4)), 2, "z")  # pyright: ignore
