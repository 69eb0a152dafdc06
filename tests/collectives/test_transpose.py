"""Transpose of a matrix on a square mesh: values, cycles, and what its routes cost."""

import numpy as np
import pytest
from jitter_harness import outputs_under_jitter
from lines_harness import MACHINES, normal, oracle_cycles, oracle_tile, same_bits, toy

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import transpose
from wafer_jax.collectives.tiles import tile_matrix, untile_matrix
from wafer_jax.collectives.tree_cost import pass_cycles


def turned(x: np.ndarray) -> np.ndarray:
    """Tile (y, x) transposed at PE (x, y)."""
    y = np.empty((x.shape[1], x.shape[0], *x.shape[2:]), x.dtype)
    for row, col in np.ndindex(*x.shape[2:]):
        y[:, :, col, row] = x[:, :, row, col].T
    return y


@pytest.mark.parametrize("side", [1, 2, 3, 5])
def test_every_tile_arrives_transposed(side):
    x = normal(2, 3, side, side)
    assert same_bits(transpose.apply(x), turned(x))
    assert same_bits(oracle_tile(transpose.program(toy((side, side)), 2, 3), x, "y"), turned(x))


def test_the_matrix_is_transposed_with_its_padding():
    matrix = normal(7, 5)
    tiles = transpose.apply(tile_matrix(matrix, (3, 3)))
    assert same_bits(untile_matrix(tiles, (5, 7)), matrix.T)


def test_cycles_equal_the_closed_form_where_no_pe_sends_and_receives_at_once():
    exact = 0
    for changes in MACHINES:
        for side in (1, 2, 3, 6):
            hw = toy((side, side), **changes)
            for words in (1, 2, 3, 4, 7, 30):
                alone = words + hw.stream_setup_cycles < pass_cycles(hw, 2)
                if alone or side <= 2:
                    program = transpose.program(hw, 1, words)
                    assert oracle_cycles(program) == transpose.cost(hw, 1, words), program.name
                    exact += side > 2
    assert exact > 20


def test_longer_tiles_share_slots_less_what_their_queues_hold():
    for changes in MACHINES:
        hw = toy((6, 6), **changes)
        queue = hw.router_depth + hw.output_queue_depths[0] + 1 + hw.ramp_cycles
        for words in (8, 16, 40):
            cycles = oracle_cycles(transpose.program(hw, 1, words))
            assert -5 * queue <= cycles - transpose.cost(hw, 1, words) <= 1


def test_executor_agrees_with_bulk_level_and_cost():
    hw = hardware("wse2", mesh=(4, 4))
    x = normal(2, 3, 4, 4, dtype="float16")
    result = run(transpose.switched(hw, 2, 3, "float16"), x).raise_on_fault()
    assert same_bits(result.values, transpose.apply(x))
    assert result.cycles == transpose.cost(hw, 2, 3, "float16")


def test_values_do_not_depend_on_when_pes_run():
    x = normal(1, 4, 3, 3)
    for values in outputs_under_jitter(transpose.program(toy((3, 3)), 1, 4), {"x": x}):
        assert same_bits(values, turned(x))


def test_two_colours_and_one_queue_each_way_whatever_the_mesh():
    program = transpose.program(hardware("wse2", mesh=(9, 9)), 2, 2)
    assert len(program.colors) == 2
    for role in program.roles:
        assert len(role.bound(0).input) <= 1


def test_cost_is_one_tile_after_the_other_over_the_diagonals_links():
    hw = hardware("wse2", mesh=(64, 64))
    assert transpose.cost(hw, 1, 4) > 63 * 4
    assert transpose.cost(hw, 4, 4) > 63 * 16


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: transpose.program(toy((2, 3)), 2, 2), "2x3 PEs: the mesh must be square"),
        (lambda: transpose.cost(toy((2, 3)), 2, 2), "2x3 PEs: the mesh must be square"),
        (lambda: transpose.apply(normal(2, 3, 3)), r"are not \[r, c, Y, X\]"),
        (lambda: transpose.program(toy((2, 2)), 20, 20), "needs 4800 bytes of SRAM"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(WaferError, match=message):
        call()
