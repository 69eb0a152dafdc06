"""Broadcast over the mesh: every PE gets the source's words, in the closed form's cycles."""

import numpy as np
import pytest
from lines_harness import MACHINES, normal, oracle_cycles, oracle_tile, same_bits, toy

from wafer_jax import Jitter, WaferError, hardware, run
from wafer_jax.collectives import broadcast_2d

MESHES = ((1, 1), (1, 2), (3, 1), (2, 3), (4, 7), (5, 2))


def sources(mesh: tuple[int, int]) -> list[tuple[int, int]]:
    rows, columns = ({0, n // 2, n - 1} for n in mesh)
    return [(y, x) for y in rows for x in columns]


@pytest.mark.parametrize("mesh", MESHES)
def test_every_pe_gets_the_sources_words(mesh):
    tiles = normal(3, *mesh)
    for y, x in sources(mesh):
        expected = np.broadcast_to(tiles[:, y : y + 1, x : x + 1], tiles.shape)
        assert same_bits(broadcast_2d.apply(tiles, y, x), expected)
        assert same_bits(oracle_tile(broadcast_2d.program(toy(mesh), 3, y, x), tiles), expected)


@pytest.mark.parametrize("changes", MACHINES)
def test_cycles_equal_the_closed_form(changes):
    for mesh in MESHES:
        for y, x in sources(mesh):
            for words in (1, 2, 20):
                hw = toy(mesh, **changes)
                cycles = oracle_cycles(broadcast_2d.program(hw, words, y, x))
                assert cycles == broadcast_2d.cost(hw, words, y, x), (mesh, y, x, words)


def test_published_closed_form():
    """B + M + N - 2 + 2 T_R + 1 of Luczynski et al., plus the set-up of the stream."""
    hw = hardware("wse2", mesh=(512, 512))
    assert broadcast_2d.cost(hw, 256) == 256 + 512 + 512 - 2 + 5 + hw.stream_setup_cycles


def test_executor_agrees_with_bulk_level_and_cost():
    hw = hardware("wse2", mesh=(5, 7))
    tiles = normal(6, *hw.mesh)
    program = broadcast_2d.program(hw, 6, y=1, x=6)
    result = run(program, tiles).raise_on_fault()
    assert same_bits(result.values, broadcast_2d.apply(tiles, 1, 6))
    assert result.cycles == broadcast_2d.cost(hw, 6, 1, 6)
    assert len(program.colors) == 1


def test_values_do_not_depend_on_when_pes_run():
    tiles = normal(9, 3, 4)
    program, expected = broadcast_2d.program(toy((3, 4)), 9, 1, 2), broadcast_2d.apply(tiles, 1, 2)
    for key in range(20):
        assert same_bits(oracle_tile(program, tiles, jitter=Jitter(key, 40, 11)), expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda hw: broadcast_2d.program(hw, 2, y=3), "row 3 is not on a line of 3 PEs"),
        (lambda hw: broadcast_2d.cost(hw, 2, x=-1), "column -1 is not on a line of 4 PEs"),
        (lambda hw: broadcast_2d.apply(normal(1, 3, 4), 0, 4), "column 4 is not on a line"),
    ],
)
def test_a_source_off_the_mesh_is_named(call, message):
    with pytest.raises(WaferError, match=message):
        call(toy((3, 4)))
