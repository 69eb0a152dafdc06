"""Broadcast: every PE gets the root's words, in the closed form's cycles."""

import numpy as np
import pytest
from lines_harness import VALUE_LINES, machines, normal, oracle_cycles, oracle_tile, same_bits, toy

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import broadcast
from wafer_jax.collectives.lines import line_length


@pytest.mark.parametrize("mesh", VALUE_LINES)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_every_pe_gets_the_roots_words(mesh, axis):
    hw = toy(mesh)
    x, where = normal(3, *mesh), -1 if axis == "x" else -2
    for root in {0, line_length(hw, axis) // 2, line_length(hw, axis) - 1}:
        expected = np.broadcast_to(np.take(x, [root], axis=where), x.shape)
        assert same_bits(broadcast.apply(x, axis, root), expected)
        assert same_bits(oracle_tile(broadcast.program(hw, 3, axis, root), x), expected)


def test_cycles_equal_the_closed_form_on_every_mesh_and_machine():
    for hw, axis, words in machines():
        length = line_length(hw, axis)
        for root in {0, length // 2, length - 1}:
            program = broadcast.program(hw, words, axis, root)
            assert oracle_cycles(program) == broadcast.cost(hw, words, axis, root), program.name


def test_executor_agrees_with_bulk_level_and_cost():
    hw = hardware("wse2", mesh=(5, 7))
    x = normal(6, *hw.mesh)
    result = run(broadcast.flood(hw, 6, axis="y", root=1), x).raise_on_fault()
    assert same_bits(result.values, broadcast.apply(x, "y", 1))
    assert result.cycles == broadcast.cost(hw, 6, "y", 1)


def test_published_closed_form():
    """B + P + 2 T_R of Luczynski et al., plus the set-up of the stream."""
    hw = hardware("wse2", mesh=(1, 512))
    assert broadcast.cost(hw, 256) == 256 + 512 + 2 * 2 + hw.stream_setup_cycles


def test_a_root_off_the_line_is_named():
    with pytest.raises(WaferError, match="root 4 is not on a line of 4 PEs"):
        broadcast.program(toy((1, 4)), 2, root=4)
