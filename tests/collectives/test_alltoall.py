"""All-to-all: blocks and places exchanged, cycles, four colours whatever the line."""

import numpy as np
import pytest
from jitter_harness import outputs_under_jitter
from lines_harness import VALUE_LINES, machines, normal, oracle_cycles, oracle_tile, same_bits, toy

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import alltoall
from wafer_jax.collectives.lines import line_length


def exchanged(x: np.ndarray, axis: str) -> np.ndarray:
    """y[j] at PE i of a line is x[i] at PE j."""
    y = np.empty_like(x)
    for row, col, j in np.ndindex(*x.shape[2:], len(x)):
        if axis == "x":
            y[j, :, row, col] = x[col, :, row, j]
        else:
            y[j, :, row, col] = x[row, :, j, col]
    return y


@pytest.mark.parametrize("mesh", VALUE_LINES)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_blocks_and_places_are_exchanged(mesh, axis):
    hw = toy(mesh)
    x = normal(line_length(hw, axis), 3, *mesh)
    expected = exchanged(x, axis)
    assert same_bits(alltoall.apply(x, axis), expected)
    assert same_bits(oracle_tile(alltoall.program(hw, 3, axis), x, "y"), expected)


def test_bundles_longer_than_all_queues_block_nobody():
    hw = toy((1, 5), router_depth=1, input_queue_depths=(1,) * 8, output_queue_depths=(1,) * 6)
    x = normal(5, 40, 1, 5)
    assert same_bits(oracle_tile(alltoall.program(hw, 40), x, "y"), exchanged(x, "x"))


def test_cycles_equal_the_closed_form_on_lines_of_one_and_two():
    for hw, axis, words in machines([(1, 1), (1, 2), (2, 3)]):
        if line_length(hw, axis) < 3:
            for size in (words, words + 20):
                program = alltoall.program(hw, size, axis)
                assert oracle_cycles(program) == alltoall.cost(hw, size, axis), program.name


def test_longer_lines_stay_near_the_closed_form():
    for hw, axis, words in machines([(1, 3), (1, 4), (1, 9)]):
        if axis == "x":
            cycles, cost = oracle_cycles(alltoall.program(hw, words)), alltoall.cost(hw, words)
            assert -6 <= 100 * (cycles - cost) / cost <= 30, (hw, words)


def test_executor_agrees_with_bulk_level():
    hw = hardware("wse2", mesh=(5, 2))
    x = normal(5, 4, *hw.mesh, dtype="float16")
    result = run(alltoall.relayed(hw, 2, "y", "float16"), x).raise_on_fault()
    assert same_bits(result.values, alltoall.apply(x, "y"))


def test_values_do_not_depend_on_when_pes_run():
    x = normal(4, 2, 1, 4)
    for values in outputs_under_jitter(alltoall.program(toy((1, 4)), 2), {"x": x}):
        assert same_bits(values, exchanged(x, "x"))


def test_routes_do_not_grow_with_the_line():
    for length in (4, 12):
        program = alltoall.program(toy((1, length)), 1)
        assert len(program.colors) == 4
        queues = program.role_at(0, 2).bound(0)
        assert (len(queues.input), len(queues.output)) == (2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda hw: alltoall.program(hw, 200), "needs 6400 bytes of SRAM"),
        (lambda hw: alltoall.apply(normal(3, 2, 1, 4)), r"are not \[4, n, Y, X\]"),
        (lambda hw: alltoall.program(hw.replace(colors=3), 1), "colour 3 does not exist"),
        (lambda hw: alltoall.program(hw, 1, dtype="int8"), "dtype 'int8' is none of float32"),
        (lambda hw: alltoall.cost(hw, 1, "z"), "axis 'z' of the mesh"),  # pyright: ignore
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(WaferError, match=message):
        call(toy((1, 4)))
