"""SUMMA whose routes change: dense values, no word under other routes, cycles, limits."""

import jax
import numpy as np
import pytest
from gemm_harness import SIZES, operands, oracle_values, values_under_keys
from lines_harness import normal, oracle_cycles, same_bits, toy

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import gemm_summa, gemm_summa_segments
from wafer_jax.collectives.tiles import untile_matrix

MESHES = [(1, 1), (1, 2), (2, 1), (1, 3), (2, 2), (3, 3), (6, 6), (1, 9), (7, 1)]


@pytest.mark.parametrize("mesh", MESHES)
def test_fabric_against_a_dense_product(mesh):
    a, b, a_tiles, b_tiles = operands(gemm_summa_segments, mesh)
    program = gemm_summa_segments.program(toy(mesh), *SIZES)
    c = oracle_values(program, gemm_summa_segments.load(a_tiles, b_tiles))
    assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


def test_fabric_and_bulk_level_have_the_same_bits():
    _, _, a, b = operands(gemm_summa_segments, (3, 3), (5, 9, 7), normal)
    program = gemm_summa_segments.program(toy((3, 3)), 5, 9, 7)
    result = run(program, gemm_summa_segments.load(a, b)).raise_on_fault()
    assert same_bits(result.values, jax.jit(gemm_summa_segments.apply)(a, b))


@pytest.mark.parametrize("mesh", [(4, 4), (1, 7)])
def test_no_word_meets_other_routes_at_any_speed_of_the_pes(mesh):
    a, b, a_tiles, b_tiles = operands(gemm_summa_segments, mesh)
    program = gemm_summa_segments.program(toy(mesh), *SIZES)
    for c in values_under_keys(program, gemm_summa_segments.load(a_tiles, b_tiles)):
        assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


@pytest.mark.parametrize("preset", ["wse2", "toy"])
@pytest.mark.parametrize("mesh", [(1, 1), (1, 2), (1, 6), (5, 1), (2, 2), (3, 3), (5, 5)])
def test_cycles(preset, mesh):
    """Equal to the cost on lines of the WSE-2; else what `gemm_broadcast_cost` names."""
    hw = hardware(preset).replace(mesh=mesh, sram_bytes=1 << 16)
    side = max(mesh)
    for tile_m, block_k, tile_n in ((4, 6, 6), (2, 3, 3), (1, 3, 1), (12, 10, 1)):
        sizes = (tile_m * mesh[0], block_k * side, tile_n * mesh[1])
        program = gemm_summa_segments.program(hw, *sizes)
        more = oracle_cycles(program) - gemm_summa_segments.cost(hw, *sizes)
        exact = preset == "wse2" and min(mesh) == 1
        assert (0 if exact else -1) <= more <= (0 if exact else 3 * side)


def test_four_colours_serve_meshes_that_one_per_source_cannot():
    hw = hardware("wse2", mesh=(12, 12))
    assert len(gemm_summa_segments.program(hw, 12, 12, 12).colors) == 4
    with pytest.raises(WaferError, match="input queues"):
        gemm_summa.program(hw, 12, 12, 12)


def test_what_the_user_got_wrong():
    with pytest.raises(WaferError, match="square meshes and lines, not 2x3"):
        gemm_summa_segments.program(toy((2, 3)), *SIZES)
    with pytest.raises(WaferError, match="39 segments, 32 can be run"):
        gemm_summa_segments.program(toy((40, 40)), *SIZES)
    with pytest.raises(WaferError, match="tile_operands"):
        gemm_summa_segments.load(np.zeros((2, 3, 2, 2)), np.zeros((2, 3, 2, 2)))
