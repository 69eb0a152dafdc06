"""Allreduce over the mesh: any pair of line allreduces, values, cycles, resources."""

from itertools import product

import numpy as np
import pytest
from jitter_harness import outputs_under_jitter
from lines_harness import (
    MACHINES,
    integers,
    normal,
    oracle_cycles,
    oracle_tile,
    same_bits,
    toy,
)

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import allreduce, allreduce_2d, allreduce_ktree, allreduce_pipeline

PAIRS = tuple(product(("ktree", "pipeline", "ring"), repeat=2))


@pytest.mark.parametrize(("rows", "columns"), PAIRS)
@pytest.mark.parametrize("mesh", [(1, 1), (1, 3), (3, 2)])
def test_oracle_and_bulk_level_give_the_dense_sum_and_the_same_bits(rows, columns, mesh):
    exact, rough = integers(4, *mesh), normal(4, *mesh)
    dense = np.broadcast_to(exact.sum(axis=(-2, -1), keepdims=True), exact.shape)
    assert (np.asarray(allreduce_2d.apply(exact, rows, columns)) == dense).all()
    program = allreduce_2d.program(toy(mesh), 4, rows, columns)
    assert same_bits(oracle_tile(program, rough), allreduce_2d.apply(rough, rows, columns))


@pytest.mark.parametrize(("rows", "columns"), PAIRS)
def test_cycles_equal_the_sum_of_both_costs_where_queues_are_alike(rows, columns):
    for changes, mesh in product(MACHINES[:3], ((1, 1), (1, 3), (3, 2), (2, 6))):
        hw = toy(mesh, **changes)
        program = allreduce_2d.program(hw, 6, rows, columns)
        assert oracle_cycles(program) == allreduce_2d.cost(hw, 6, rows, columns), program.name


def test_queues_of_other_depths_change_the_columns_tree_by_as_many_cycles():
    different = 0
    for mesh, words in product(((3, 5), (7, 7), (9, 4)), (6, 20)):
        hw = hardware("wse2", mesh=mesh)
        depths = hw.input_queue_depths
        cycles = oracle_cycles(allreduce_2d.program(hw, words))
        difference = abs(cycles - allreduce_2d.cost(hw, words))
        assert difference <= 2 * (max(depths) - min(depths))
        different += difference > 0
    assert different


def test_executor_agrees_with_bulk_level_and_cost():
    hw = hardware("wse2", mesh=(3, 4))
    x = normal(8, *hw.mesh, dtype="bfloat16")
    program = allreduce.rows_then_columns(hw, 4, "ring", "pipeline", dtype="bfloat16")
    result = run(program, x).raise_on_fault()
    assert same_bits(result.values, allreduce_2d.apply(x, "ring", "pipeline"))
    assert result.cycles == allreduce_2d.cost(hw, 4, "ring", "pipeline")


def test_values_do_not_depend_on_when_pes_run():
    x = normal(3, 2, 3)
    program = allreduce_2d.program(toy((2, 3)), 3, "ring", "ring")
    expected = allreduce_2d.apply(x, "ring", "ring")
    for values in outputs_under_jitter(program, {"x": x}):
        assert same_bits(values, expected)


def test_maximum_at_the_bulk_level():
    x = normal(3, 4, 5)
    largest = np.broadcast_to(x.max(axis=(-2, -1), keepdims=True), x.shape)
    for rows, columns in (("ktree", "ring"), ("pipeline", "ktree"), ("ring", "pipeline")):
        assert same_bits(allreduce_2d.apply(x, rows, columns, op="max"), largest)


def test_two_k_trees_fit_a_wse2_and_save_most_of_two_pipelines():
    hw = hardware("wse2", mesh=(25, 25))
    program = allreduce_2d.program(hw, 2)
    assert len(program.colors) == 18
    costs = [allreduce_2d.cost(hw, 2, name, name) for name in ("ktree", "pipeline")]
    assert costs[0] == 2 * allreduce_ktree.cost(hw, 2)
    assert costs[1] == 2 * allreduce_pipeline.cost(hw, 2) > 2 * costs[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: allreduce_2d.program(toy((3, 3)), 2, "tree"), "allreduce 'tree': choose one of"),
        (lambda: allreduce_2d.cost(toy((3, 3)), 2, columns="star"), "allreduce 'star'"),
        (lambda: allreduce_2d.program(toy((27, 27)), 2, k=3), "need 9 distinct queues, toy has 8"),
        (lambda: allreduce_2d.program(toy((9, 9), colors=8), 2), "needs [0-9]+ colours, toy has"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(WaferError, match=message):
        call()
