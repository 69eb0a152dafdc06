"""All-gather product: dense values, the same bits at both levels, cycles, budgets."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gemm_harness import MESHES, SIZES, operands, oracle_values, values_under_keys
from lines_harness import normal, oracle_cycles, same_bits, toy

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import gemm_allgather
from wafer_jax.collectives.tiles import untile_matrix

TILES = ((4, 6, 6), (2, 3, 3), (1, 3, 1), (3, 7, 1), (12, 10, 1))
"""Rows, contracted and columns of a block's product."""


def numpy_product(*tiles):
    half = len(tiles) // 2
    return np.concatenate(tiles[:half], axis=1) @ np.concatenate(tiles[half:], axis=0)


KERNELS = {"gathered gemm": numpy_product}


def sizes_of(mesh, tile_m, block_k, tile_n):
    return tile_m * mesh[0], block_k * math.lcm(*mesh), tile_n * mesh[1]


def machine(preset, mesh):
    """A preset with input queues for every source."""
    more = {"sram_bytes": 1 << 16, "input_queue_depths": (2,) * 16}
    return hardware(preset).replace(mesh=mesh, **more)


@pytest.mark.parametrize("mesh", MESHES)
def test_fabric_against_a_dense_product(mesh):
    a, b, a_tiles, b_tiles = operands(gemm_allgather, mesh)
    program = gemm_allgather.program(toy(mesh), *SIZES)
    c = oracle_values(program, gemm_allgather.load(a_tiles, b_tiles), kernels=KERNELS)
    assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


@pytest.mark.parametrize("mesh", [(1, 1), (3, 3), (2, 3)])
def test_bulk_level_against_a_dense_product(mesh):
    a, b, a_tiles, b_tiles = operands(gemm_allgather, mesh)
    for values in ("rounds", "dense"):
        c = gemm_allgather.apply(a_tiles, b_tiles, values=values)
        assert c.dtype == jnp.float32
        assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


def test_fabric_and_bulk_level_have_the_same_bits():
    make = lambda *shape, seed: normal(*shape, dtype="bfloat16", seed=seed)
    _, _, a, b = operands(gemm_allgather, (2, 3), (9, 26, 7), make)
    hw = toy((2, 3), sram_bytes=8192)
    program = gemm_allgather.program(hw, 9, 26, 7, dtype="bfloat16")
    result = run(program, gemm_allgather.load(a, b)).raise_on_fault()
    assert same_bits(result.values, jax.jit(gemm_allgather.apply)(a, b))


def test_values_do_not_depend_on_the_speed_of_pes():
    a, b, a_tiles, b_tiles = operands(gemm_allgather, (3, 3))
    program = gemm_allgather.program(toy((3, 3)), *SIZES)
    for c in values_under_keys(program, gemm_allgather.load(a_tiles, b_tiles), kernels=KERNELS):
        assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


@pytest.mark.parametrize("preset", ["wse2", "toy"])
@pytest.mark.parametrize("mesh", [(1, 1), (1, 2), (1, 3), (5, 1), (2, 2), (3, 3), (5, 5), (3, 4)])
def test_cycles_near_the_cost(preset, mesh):
    """What `gemm_broadcast_cost` names: sources meet at the RAMPs; only one PE alone is exact."""
    hw = machine(preset, mesh)
    for tiles in TILES:
        sizes = sizes_of(mesh, *tiles)
        cost = gemm_allgather.cost(hw, *sizes)
        more = oracle_cycles(gemm_allgather.program(hw, *sizes)) - cost
        assert abs(more) <= (12 + 0.05 * cost if hw.num_pes > 1 else 0)


def test_parts_add_up_and_nothing_overlaps():
    hw = hardware("wse2", mesh=(1, 240))
    parts = gemm_allgather.cost_parts(hw, 4, 240 * 9, 240 * 9)
    assert parts.total == gemm_allgather.cost(hw, 4, 240 * 9, 240 * 9)
    assert parts.exposed > 240 * 4 * 9


def test_a_cost_of_half_a_million_pes_takes_no_time():
    hw = hardware("wse2", mesh=(720, 720))
    assert gemm_allgather.cost(hw, 8192, 8192, 8192) > 8192 * 12 * 12 // 720


def test_every_pe_holds_a_row_and_a_column():
    program = gemm_allgather.program(toy((2, 2)), 4, 4, 4)
    words = sum(t.words for t in program.roles[0].tiles.values())
    assert words == 4 + 2 * 4 + 4 * 2


def test_sources_are_limited_by_colours_and_queues():
    hw = hardware("wse2", mesh=(5, 5))
    assert len(gemm_allgather.program(hw, 5, 5, 5).colors) == 10
    message = r"12 colours and 10 input queues on every PE of a 6x6 mesh, wse2 has 24 and 8"
    with pytest.raises(WaferError, match=message):
        gemm_allgather.program(hardware("wse2", mesh=(6, 6)), 6, 6, 6)
    with pytest.raises(WaferError, match="1440 colours"):
        gemm_allgather.program(hardware("wse2", mesh=(720, 720)), 720, 720, 720)


def test_what_the_user_got_wrong():
    _, _, a, b = operands(gemm_allgather, (2, 3))
    with pytest.raises(WaferError, match=r"bytes of SRAM per PE.*use more PEs"):
        gemm_allgather.program(toy((2, 3)), 64, 640, 64)
    with pytest.raises(WaferError, match="at least 1"):
        gemm_allgather.program(toy((2, 3)), 0, 3, 4)
    with pytest.raises(WaferError, match='choose "rounds"'):
        gemm_allgather.apply(a, b, values="sparse")  # pyright: ignore[reportArgumentType]
    with pytest.raises(WaferError, match="tile_operands"):
        gemm_allgather.load(a, b[1:])
