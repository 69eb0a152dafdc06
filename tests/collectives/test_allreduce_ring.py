"""Ring allreduce: values, the order of additions, cycles, the published closed form."""

import jax
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
from wafer_jax.collectives import allreduce, allreduce_ring
from wafer_jax.collectives.allreduce_ring import chunk_words
from wafer_jax.collectives.lines import line_length
from wafer_jax.collectives.tree_cost import pass_cycles


@pytest.mark.parametrize("mesh", [(1, 1), (1, 2), (3, 1), (4, 3), (2, 5)])
@pytest.mark.parametrize("axis", ["x", "y"])
@pytest.mark.parametrize("words", [1, 7])
def test_oracle_and_bulk_level_give_the_dense_sum_and_the_same_bits(mesh, axis, words):
    where = -1 if axis == "x" else -2
    exact, rough = integers(words, *mesh), normal(words, *mesh)
    dense = np.broadcast_to(exact.sum(axis=where, keepdims=True), exact.shape)
    assert (np.asarray(allreduce_ring.apply(exact, axis)) == dense).all()
    program = allreduce_ring.program(toy(mesh), words, axis)
    assert same_bits(oracle_tile(program, rough), allreduce_ring.apply(rough, axis))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_sums_and_the_maximum(dtype):
    x = normal(14, 2, 4, dtype=dtype)
    program = allreduce_ring.program(toy((2, 4)), 7, dtype=dtype)
    assert same_bits(oracle_tile(program, x), jax.jit(allreduce_ring.apply)(x))
    largest = np.broadcast_to(x.max(axis=-1, keepdims=True), x.shape)
    assert same_bits(allreduce_ring.apply(x, op="max"), largest)


def lines(sizes):
    """Machines with a line and a number of words of chunks of equal size."""
    for changes in MACHINES:
        for mesh, axis in (((1, 1), "x"), ((2, 1), "y"), ((2, 3), "x"), ((1, 8), "x")):
            hw = toy(mesh, **changes)
            for size in sizes:
                yield hw, axis, size * line_length(hw, axis)


def test_cycles_equal_the_closed_form_where_sending_ends_before_receiving_starts():
    for hw, axis, words in lines((1, 2, 4)):
        program = allreduce_ring.program(hw, words, axis)
        assert oracle_cycles(program) == allreduce_ring.cost(hw, words, axis), program.name
    hw = hardware("wse2", mesh=(1, 9))
    assert pass_cycles(hw, 1) == 6
    assert oracle_cycles(allreduce_ring.program(hw, 54)) == allreduce_ring.cost(hw, 54)


def test_longer_chunks_wait_for_the_slot_up_to_two_cycles_a_round():
    late = 0
    for hw, axis, words in lines((6, 13)):
        rounds = 2 * (line_length(hw, axis) - 1)
        cycles = oracle_cycles(allreduce_ring.program(hw, words, axis))
        difference = cycles - allreduce_ring.cost(hw, words, axis)
        assert 0 <= difference <= 2 * rounds
        late += difference > 0
    assert late > 5


def test_uneven_chunks_stay_near_the_closed_form():
    for hw, axis, words in lines((2, 5, 10)):
        if (length := line_length(hw, axis)) > 1:
            for more in {1, length - 1}:
                cycles = oracle_cycles(allreduce_ring.program(hw, words + more, axis))
                cost = allreduce_ring.cost(hw, words + more, axis)
                assert 0.96 * cost <= cycles <= 1.18 * cost


def test_cost_is_the_published_closed_form_and_the_control():
    """2 (P - 1) B / P + 4 P - 6 + 2 (P - 1) (2 T_R + 1) of Luczynski et al., HPDC'24."""
    hw, length, words = hardware("wse2", mesh=(1, 64)), 64, 256
    published = 2 * 63 * words // length + 4 * length - 6 + 2 * 63 * 5
    control = 3 + 2 * 63 * 2 + (2 * 63 - 1) * 2
    assert allreduce_ring.cost(hw, words) == published + control


def test_executor_agrees_with_bulk_level_and_cost():
    hw = hardware("wse2", mesh=(4, 3))
    x = normal(12, *hw.mesh)
    result = run(allreduce.ring(hw, words=12, axis="y"), x).raise_on_fault()
    assert same_bits(result.values, allreduce_ring.apply(x, "y"))
    assert result.cycles == allreduce_ring.cost(hw, 12, "y")


def test_values_do_not_depend_on_when_pes_run():
    x = normal(7, 1, 4)
    expected = allreduce_ring.apply(x)
    for values in outputs_under_jitter(allreduce_ring.program(toy((1, 4)), 7), {"x": x}):
        assert same_bits(values, expected)


def test_chunks_longer_than_all_queues_do_not_block_the_ring():
    hw = toy((1, 3), router_depth=1, input_queue_depths=(1,) * 8, output_queue_depths=(1,) * 6)
    x = integers(120, 1, 3)
    values = oracle_tile(allreduce_ring.program(hw, 120), x)
    assert (values == x.sum(axis=-1, keepdims=True)).all()


def test_routes_do_not_grow_with_the_line():
    for length in (4, 16):
        program = allreduce_ring.program(toy((1, length)), 2)
        assert len(program.colors) == 3
        assert all(len(role.bound(0).input) == 1 for role in program.roles)


def test_words_are_cut_unevenly_first_chunks_longer():
    assert chunk_words(7, 3) == [3, 2, 2]
    assert chunk_words(2, 4) == [1, 1, 0, 0]


def test_mistakes_are_named():
    with pytest.raises(WaferError, match="needs 3 colours, toy has 2"):
        allreduce_ring.program(toy((1, 4), colors=2), 2)
    with pytest.raises(WaferError, match="dtype 'int8' is none of float32"):
        allreduce_ring.program(toy((1, 4)), 2, dtype="int8")
    with pytest.raises(WaferError, match="axis 'z' of the mesh"):
        allreduce_ring.cost(toy((1, 4)), 2, "z")  # pyright: ignore
    with pytest.raises(WaferError, match="op 'mul'"):
        allreduce_ring.apply(normal(2, 1, 2), op="mul")  # pyright: ignore
