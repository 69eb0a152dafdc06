"""Scatter and gather: every block arrives, in the closed forms' cycles, past the cores between."""

import numpy as np
import pytest
from jitter_harness import outputs_under_jitter
from lines_harness import (
    VALUE_LINES,
    Oracle,
    machines,
    normal,
    oracle_cycles,
    oracle_tile,
    read_tile,
    same_bits,
    toy,
)

from wafer_jax import RAMP, WaferError, hardware, run
from wafer_jax.collectives import gather, scatter
from wafer_jax.collectives.lines import line_length
from wafer_jax.collectives.tree_cost import pass_cycles

MESHES = ((1, 1), (1, 2), (3, 1), (2, 5), (1, 8))


def dealt(x: np.ndarray, axis: str, root: int) -> np.ndarray:
    """[n, Y, X] that each PE gets of x [P, n, Y, X] at the root."""
    _, n, height, width = x.shape
    y = np.empty((n, height, width), x.dtype)
    for row, col in np.ndindex(height, width):
        place, at = (col, (row, root)) if axis == "x" else (row, (root, col))
        y[:, row, col] = x[(place, slice(None), *at)]
    return y


def collected(x: np.ndarray, axis: str) -> np.ndarray:
    """[P, n, Y, 1] or [P, n, 1, X] of x [n, Y, X]."""
    if axis == "x":
        return np.stack([x[:, :, i : i + 1] for i in range(x.shape[2])])
    return np.stack([x[:, i : i + 1] for i in range(x.shape[1])])


def places(length: int) -> set[int]:
    return {0, length - 1, length // 2}


@pytest.mark.parametrize("mesh", VALUE_LINES)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_every_pe_gets_its_block(mesh, axis):
    hw = toy(mesh)
    length = line_length(hw, axis)
    x = normal(length, 3, *mesh)
    for root in places(length):
        expected = dealt(x, axis, root)
        assert same_bits(scatter.apply(x, axis, root), expected)
        tile = oracle_tile(scatter.program(hw, 3, axis, root), x, "y")
        assert same_bits(tile, expected)


@pytest.mark.parametrize("mesh", VALUE_LINES)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_the_root_collects_all_blocks(mesh, axis):
    hw = toy(mesh)
    x = normal(3, *mesh)
    expected = collected(x, axis)
    for root in places(line_length(hw, axis)):
        assert same_bits(gather.apply(x, axis, root), expected)
        values = oracle_roots(gather.program(hw, 3, axis, root), x, axis, root)
        assert same_bits(values, expected)


def oracle_roots(program, x: np.ndarray, axis: str, root: int) -> np.ndarray:
    """The roots' tile y after the oracle ran; no other PE has one."""
    oracle, (height, width) = Oracle(program, {"x": x}).run(), program.hw.mesh
    roots = [(i, root) for i in range(height)] if axis == "x" else [(root, i) for i in range(width)]
    tile = program.role_at(*roots[0]).tiles["y"]
    lines = np.stack([read_tile(oracle.pes[pe].sram, tile) for pe in roots], axis=-1)
    return np.expand_dims(lines, -1 if axis == "x" else -2)


def test_scatter_takes_the_closed_forms_cycles_from_any_root():
    for hw, axis, words in machines(MESHES):
        for root in places(line_length(hw, axis)):
            program = scatter.program(hw, words, axis, root)
            assert oracle_cycles(program) == scatter.cost(hw, words, axis, root), program.name


def test_gather_takes_the_closed_forms_cycles_to_an_end():
    for hw, axis, words in machines(MESHES):
        for root in {0, line_length(hw, axis) - 1}:
            for size in {words, words + 13}:
                program = gather.program(hw, size, axis, root)
                assert oracle_cycles(program) == gather.cost(hw, size, axis, root), program.name


def test_gather_to_the_middle_hides_turns_and_shares_the_ramp():
    for hw, axis, words in machines([(1, 3), (1, 8), (5, 1)]):
        length = line_length(hw, axis)
        for root in range(1, length - 1):
            cycles = oracle_cycles(gather.program(hw, words, axis, root))
            difference = cycles - gather.cost(hw, words, axis, root)
            turn = 1 + hw.hop_cycles + hw.stream_setup_cycles
            queued = hw.input_queue_depths[1] + hw.ramp_cycles
            assert -pass_cycles(hw, 1) - turn <= difference <= queued


def test_executor_agrees_with_bulk_level_and_cost():
    hw = hardware("wse2", mesh=(3, 5))
    x = normal(5, 6, *hw.mesh, dtype="float16")
    result = run(scatter.program(hw, 3, root=4, dtype="float16"), x).raise_on_fault()
    assert same_bits(result.values, scatter.apply(x, root=4))
    assert result.cycles == scatter.cost(hw, 3, root=4)
    result = run(gather.program(hw, 3, dtype="float16"), x[0]).raise_on_fault()
    assert same_bits(result.values[..., :1], gather.apply(x[0]))
    assert result.cycles == gather.cost(hw, 3)


def test_values_do_not_depend_on_when_pes_run():
    x = normal(4, 2, 1, 4)
    for values in outputs_under_jitter(scatter.program(toy((1, 4)), 2, root=1), {"x": x}):
        assert same_bits(values, scatter.apply(x, root=1))
    program = gather.program(toy((1, 4)), 2, root=1)
    for values in outputs_under_jitter(program, {"x": x[0]}):
        assert same_bits(values[..., 1:2], gather.apply(x[0], root=1))


@pytest.mark.parametrize("module", [scatter, gather])
def test_a_side_takes_one_colour_and_its_cores_one_stream(module):
    program = module.program(toy((1, 40)), 2, root=7)
    assert len(program.colors) == 2
    for i in range(40):
        queues = program.role_at(0, i).bound(0)
        assert len(queues.input) + len(queues.output) == (2 if i == 7 else 1)
    assert (program.segments[0].rx == RAMP).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda hw: scatter.program(hw, 2, root=4), "root 4 is not on a line of 4 PEs"),
        (lambda hw: gather.cost(hw, 2, root=-1), "root -1 is not on a line of 4 PEs"),
        (lambda hw: scatter.apply(normal(3, 2, 1, 4)), r"are not \[4, n, Y, X\]"),
        (lambda hw: gather.program(hw, 300), "needs 6000 bytes of SRAM"),
        (lambda hw: gather.apply(normal(2, 1, 4), "z"), "axis 'z' of the mesh"),  # pyright: ignore
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(WaferError, match=message):
        call(toy((1, 4)))
