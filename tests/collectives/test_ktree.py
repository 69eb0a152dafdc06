"""K-tree allreduce: any K, any line; values, the order of additions, cycles, resources."""

from itertools import product

import jax
import numpy as np
import pytest
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
from wafer_jax.collectives import allreduce, allreduce_ktree
from wafer_jax.collectives.allreduce_ktree import phases_of, root_of
from wafer_jax.collectives.lines import line_length
from wafer_jax.collectives.tree import members


@pytest.mark.parametrize("mesh", VALUE_LINES)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_oracle_and_bulk_level_give_the_dense_sum_and_the_same_bits(mesh, axis):
    hw, where = toy(mesh), -1 if axis == "x" else -2
    exact, rough = integers(3, *mesh), normal(3, *mesh)
    dense = np.broadcast_to(exact.sum(axis=where, keepdims=True), exact.shape)
    for k in (1, 2, 3):
        assert (np.asarray(allreduce_ktree.apply(exact, k, axis)) == dense).all()
        everywhere = allreduce_ktree.apply(rough, k, axis)
        assert same_bits(oracle_tile(allreduce_ktree.program(hw, 3, k, axis), rough), everywhere)
        program = allreduce_ktree.program(hw, 3, k, axis, broadcast=False)
        root = root_of(line_length(hw, axis), k)
        fabric = np.take(oracle_tile(program, rough), [root], axis=where)
        assert same_bits(fabric, allreduce_ktree.apply(rough, k, axis, broadcast=False))


def test_cycles_equal_the_cost_on_every_mesh_and_machine():
    for hw, axis, words in machines():
        for k, broadcast in product((1, 2, 3), (False, True)):
            program = allreduce_ktree.program(hw, words, k, axis, broadcast)
            cost = allreduce_ktree.cost(hw, words, k, axis, broadcast)
            assert oracle_cycles(program) == cost, program.name


@pytest.mark.parametrize("length", [13, 16, 24, 27, 31, 49, 64, 81])
def test_cycles_equal_the_cost_on_longer_lines(length):
    for hw, axis, words in machines([(1, length)]):
        if axis == "x":
            for k in (1, 2, 3):
                program = allreduce_ktree.program(hw, words, k)
                assert oracle_cycles(program) == allreduce_ktree.cost(hw, words, k), program.name


@pytest.mark.parametrize(("size", "k"), [(3, 1), (5, 2), (7, 2), (3, 3)])
def test_cost_of_equal_odd_groups_is_the_closed_form_of_the_docstring(size, k):
    hw, words, m = (
        toy((1, size**k), hop_cycles=2, ramp_cycles=3, stream_setup_cycles=4),
        6,
        size // 2,
    )
    total = 0
    for phase in range(k):
        taken = min(words - 1, hw.input_queue_depths[2 * phase + 1] + 3)
        total += 4 + m * (2 * 3 + 1 + 2 * size**phase) + words + taken + 4 + words
    assert allreduce_ktree.cost(hw, words, k, broadcast=False) == total
    assert allreduce_ktree.cost(hw, words, k) == total + 4 + 7 + 2 * (size**k // 2) + words


@pytest.mark.parametrize(
    ("mesh", "options"),
    [((3, 11), {"k": 2}), ((7, 2), {"k": 1, "axis": "y"}), ((1, 1), {"k": 2})],
)
def test_executor_agrees_with_bulk_level_and_cost(mesh, options):
    hw = hardware("wse2", mesh=mesh)
    x = normal(6, *mesh)
    result = run(allreduce.ktree(hw, words=6, **options), x).raise_on_fault()
    assert same_bits(result.values, allreduce_ktree.apply(x, **options))
    assert result.cycles == allreduce_ktree.cost(hw, 6, **options)


def test_bulk_level_is_jittable_on_any_leading_shape_and_takes_a_maximum():
    x = normal(2, 3, 4, 9)
    jitted = jax.jit(allreduce_ktree.apply, static_argnames=("k", "axis", "broadcast", "op"))
    parts = np.stack([allreduce_ktree.apply(part) for part in x])
    assert same_bits(jitted(x), parts)
    largest = np.broadcast_to(x.max(axis=-2, keepdims=True), x.shape)
    assert same_bits(jitted(x, k=3, axis="y", op="max"), largest)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 24, 30, 37, 360, 600])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_trees_cover_the_line_and_end_in_the_middle(length, k):
    phases = phases_of(length, k)
    first, *_ = members(phases, length)
    assert [i for _, positions in first for i in positions] == list(range(length))
    assert abs(2 * root_of(length, k) - length + 1) <= 2 * k + length ** (1 / k)
    sizes = {group.size for group in phases[0]}
    assert max(sizes) - min(sizes) <= 1


def test_a_k_tree_needs_fewer_stages_than_a_chain():
    hw = hardware("wse2", mesh=(1, 360))
    costs = [allreduce_ktree.cost(hw, 8, k) for k in (1, 2, 3)]
    assert costs == sorted(costs, reverse=True)


def test_groups_of_the_public_configurations():
    """WaferLLM runs 360 PEs with 18 groups and 600 with 24, even numbers of equal groups."""
    for length, count in ((36, 4), (48, 6), (30, 2)):
        hw = toy((1, length))
        program = allreduce_ktree.program(hw, 7, groups=(count,))
        assert oracle_cycles(program) == allreduce_ktree.cost(hw, 7, groups=(count,))
    assert len(phases_of(360, 2, (18,))[0]) == 18


def test_colours_and_queues_grow_with_k():
    hw = toy((1, 243))
    program = allreduce_ktree.program(hw, 2, k=4)
    assert len(program.colors) <= 4 * 4 + 1
    root = program.role_at(0, root_of(243, 4))
    assert len(root.bound(0).input) == 2 * 4
    assert len(root.bound(0).output) == 1


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"k": 0}, "a K-tree of 0 phases"),
        ({}, {"k": 2, "groups": (3, 2)}, "takes 1 numbers"),
        ({}, {"k": 2, "groups": (99,)}, "cannot cut 27 members into 99 groups"),
        ({"colors": 6}, {"k": 3}, "needs [78] colours, toy has 6"),
        ({"input_queue_depths": (2,) * 4}, {"k": 3}, "needs 6 input queues at its root, toy has 4"),
    ],
)
def test_mistakes_are_named(changes, options, message):
    with pytest.raises(WaferError, match=message):
        allreduce_ktree.program(toy((1, 27), **changes), 2, **options)
