"""Star reduce: values, the order of additions, cycles, resources."""

import numpy as np
import pytest
from lines_harness import (
    MACHINES,
    VALUE_LINES,
    integers,
    machines,
    normal,
    oracle_cycles,
    oracle_tile,
    same_bits,
    toy,
)
from trees_harness import ordered_sum

from wafer_jax import Jitter, WaferError, hardware, run
from wafer_jax.collectives import reduce, reduce_star
from wafer_jax.collectives.lines import line_length


@pytest.mark.parametrize("mesh", VALUE_LINES)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_oracle_and_bulk_level_give_the_dense_sum_and_the_same_bits(mesh, axis):
    where = -1 if axis == "x" else -2
    exact, rough = integers(3, *mesh), normal(3, *mesh)
    dense = exact.sum(axis=where, keepdims=True)
    assert (np.asarray(reduce_star.apply(exact, axis)) == dense).all()
    fabric = oracle_tile(reduce_star.program(toy(mesh), 3, axis), rough)
    assert same_bits(np.take(fabric, [0], axis=where), reduce_star.apply(rough, axis))


def test_senders_are_added_in_the_order_of_the_line():
    x = normal(2, 1, 9)
    expected = ordered_sum((-1, *[0] * 8), list(np.moveaxis(x, -1, 0)))
    assert same_bits(reduce_star.apply(x)[..., 0], expected)


def test_cycles_equal_the_closed_form_on_every_mesh_and_machine():
    for hw, axis, words in machines():
        program = reduce_star.program(hw, words, axis)
        assert oracle_cycles(program) == reduce_star.cost(hw, words, axis), program.name


@pytest.mark.parametrize("changes", [*MACHINES, {"hop_cycles": 2}])
def test_cycles_equal_the_closed_form_with_messages_around_and_over_a_routers_fifo(changes):
    for length in (2, 3, 4, 13):
        hw = toy((1, length), **changes)
        for words in (5, 6, 7, 8, 9, 20):
            assert oracle_cycles(reduce_star.program(hw, words)) == reduce_star.cost(hw, words)


@pytest.mark.parametrize("words", [1, 16, 256])
def test_the_published_closed_form_lacks_the_set_up_and_the_turns_of_the_switches(words):
    """B (P - 1) + 2 T_R + 1 of Luczynski et al.; here a turn is a control wavelet and a hop."""
    hw = hardware("wse2", mesh=(1, 16))
    published = words * 15 + 2 * 2 + 1
    setup, hop = 2, 1
    turns = (setup + 1 + hop) + 13 * (1 + hop)
    assert reduce_star.cost(hw, words) == published + setup + hop + turns


def test_a_long_line_takes_one_colour_and_one_queue():
    program = reduce_star.program(toy((1, 200)), 2)
    assert len(program.colors) == 1
    assert len(program.role_at(0, 0).bound(0).input) == 1


def test_executor_agrees_with_bulk_level_and_cost():
    hw = hardware("wse2", mesh=(3, 6))
    x = normal(6, *hw.mesh)
    result = run(reduce.star(hw, 6, axis="x"), x).raise_on_fault()
    assert same_bits(result.values[..., :1], reduce_star.apply(x))
    assert same_bits(result.values[..., 1:], x[..., 1:])
    assert result.cycles == reduce_star.cost(hw, 6)
    assert line_length(hw, "x") == 6


def test_values_do_not_depend_on_when_pes_run():
    x = normal(3, 1, 6)
    program, expected = reduce_star.program(toy((1, 6)), 3), reduce_star.apply(x)
    for key in range(20):
        assert same_bits(oracle_tile(program, x, jitter=Jitter(key, 40, 11))[..., :1], expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda hw: reduce_star.program(hw, 2, axis="z"), "axis 'z' of the mesh"),
        (lambda hw: reduce_star.apply(normal(1, 2, 2), op="mul"), "op 'mul'"),
        (lambda hw: reduce_star.program(hw, 2000), "needs 8000 bytes of SRAM"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(WaferError, match=message):
        call(toy((1, 4)))
