"""SUMMA: dense values, the same bits on the fabric and at the bulk level, cycles, budgets."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import pytest
from gemm_harness import MESHES, SIZES, operands, oracle_values, values_under_keys
from lines_harness import normal, oracle_cycles, same_bits, toy

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import gemm_broadcast_cost, gemm_summa
from wafer_jax.collectives.tiles import untile_matrix

LINES = ((1, 2), (1, 3), (1, 6), (5, 1))
TILES = ((4, 6, 6), (2, 3, 3), (1, 3, 1), (3, 7, 1), (12, 10, 1))
"""Rows, contracted and columns of a PE's product; the last two are bound by their transfers."""


def sizes_of(mesh, tile_m, block_k, tile_n):
    return tile_m * mesh[0], block_k * math.lcm(*mesh), tile_n * mesh[1]


def machine(preset, mesh):
    """A preset with input queues for every source."""
    more = {"sram_bytes": 1 << 16, "input_queue_depths": (2,) * 16}
    return hardware(preset).replace(mesh=mesh, **more)


@pytest.mark.parametrize("mesh", MESHES)
def test_fabric_against_a_dense_product(mesh):
    a, b, a_tiles, b_tiles = operands(gemm_summa, mesh)
    program = gemm_summa.program(toy(mesh), *SIZES)
    c = oracle_values(program, gemm_summa.load(a_tiles, b_tiles))
    assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


@pytest.mark.parametrize("mesh", [(1, 1), (3, 3), (2, 3)])
def test_bulk_level_against_a_dense_product(mesh):
    a, b, a_tiles, b_tiles = operands(gemm_summa, mesh)
    for values in ("rounds", "dense"):
        c = gemm_summa.apply(a_tiles, b_tiles, values=values)
        assert c.dtype == jnp.float32
        assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


def test_fabric_and_bulk_level_have_the_same_bits():
    make = lambda *shape, seed: normal(*shape, dtype="bfloat16", seed=seed)
    _, _, a, b = operands(gemm_summa, (2, 3), (9, 26, 7), make)
    hw = toy((2, 3), sram_bytes=8192)
    program = gemm_summa.program(hw, 9, 26, 7, dtype="bfloat16")
    result = run(program, gemm_summa.load(a, b)).raise_on_fault()
    assert same_bits(result.values, jax.jit(gemm_summa.apply)(a, b))


def test_values_do_not_depend_on_the_speed_of_pes():
    a, b, a_tiles, b_tiles = operands(gemm_summa, (3, 3))
    program = gemm_summa.program(toy((3, 3)), *SIZES)
    for c in values_under_keys(program, gemm_summa.load(a_tiles, b_tiles)):
        assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


@pytest.mark.parametrize("mesh", [(1, 1), *LINES])
def test_cycles_on_lines(mesh):
    """Equal to the cost, within a cycle per PE where launches are as short as the toy's."""
    for preset in ("wse2", "wse3", "toy"):
        hw = machine(preset, mesh)
        for tiles in TILES:
            sizes = sizes_of(mesh, *tiles)
            more = oracle_cycles(gemm_summa.program(hw, *sizes)) - gemm_summa.cost(hw, *sizes)
            assert 0 <= more <= (max(mesh) if preset == "toy" else 0)


@pytest.mark.parametrize("mesh", [(2, 2), (3, 3), (5, 5), (2, 3), (3, 4)])
def test_residual_on_meshes(mesh):
    """What `gemm_broadcast_cost` names: streams of both axes in one slot and at one RAMP."""
    for preset in ("wse2", "toy"):
        hw = machine(preset, mesh)
        for tiles in TILES:
            sizes = sizes_of(mesh, *tiles)
            more = oracle_cycles(gemm_summa.program(hw, *sizes)) - gemm_summa.cost(hw, *sizes)
            assert -1 <= more <= 3 * math.lcm(*mesh)


def test_parts_add_up_and_a_line_costs_its_length_once():
    hw = hardware("wse2", mesh=(1, 240))
    parts = gemm_summa.cost_parts(hw, 4, 240 * 9, 240 * 9)
    assert parts.total == gemm_summa.cost(hw, 4, 240 * 9, 240 * 9)
    far = hw.replace(hop_cycles=2)
    assert gemm_summa.cost(far, 4, 240 * 9, 240 * 9) - parts.total == 239


def test_steps_in_unison_by_hand():
    """3 x 3 PEs, hops of 16 cycles, 2 words of A and of B, a product of 15 cycles."""
    hw = hardware("wse2", mesh=(3, 3)).replace(hop_cycles=16)
    cost = partial(gemm_broadcast_cost.summa_unison_cost_parts, hw, 3, 6, 3)
    far, near = (16 + 2 + (1 + 2 * 2 + d * 16) + 2 + 2 + 2 for d in (2, 1))  # A, then B's words
    far, near = max(far, 32 + 2 + 37 + 2 + 2), max(near, 32 + 2 + 21 + 2 + 2)
    clear, product, task = 7, 15, 9
    busy = 2 * 16 + product + 1 + 2  # launches, the product, one cycle of its streams, two waits
    assert far > busy
    assert near > busy
    moving = far + near + far + 3 * task
    assert cost().total == moving + product
    assert cost(overlap=False).total == moving + clear + 3 * product


@pytest.mark.parametrize("mesh", [(1, 1), (2, 2), (3, 3), (2, 3)])
def test_unison_costs_nothing_where_products_hide_the_line(mesh):
    hw, sizes = hardware("wse2", mesh=mesh), sizes_of(mesh, 4, 6, 6)
    unison = gemm_broadcast_cost.summa_unison_cost_parts(hw, *sizes)
    assert unison == gemm_summa.cost_parts(hw, *sizes)


def test_in_unison_every_step_pays_the_way_to_the_farthest():
    far, near = (
        gemm_broadcast_cost.summa_unison_cost_parts(
            hardware("wse2", mesh=(1, 400)).replace(hop_cycles=h), 1, 1200, 400
        )
        for h in (2, 1)
    )
    assert far.exposed - near.exposed == sum(max(s, 399 - s) for s in range(400))


def test_a_cost_of_half_a_million_pes_takes_no_time():
    hw = hardware("wse2", mesh=(720, 720))
    assert gemm_summa.cost(hw, 8192, 8192, 8192) > 8192 * 12 * 12 // 720


def test_buffers_come_on_top_of_the_tiles():
    program = gemm_summa.program(toy((2, 2)), 4, 4, 4)
    words = sum(t.words for t in program.roles[0].tiles.values())
    assert words == 3 * 4 + 2 * 2 * 4


def test_sources_are_limited_by_colours_and_queues():
    hw = hardware("wse2", mesh=(5, 5))
    assert len(gemm_summa.program(hw, 5, 5, 5).colors) == 10
    message = r"12 colours and 10 input queues on every PE of a 6x6 mesh, wse2 has 24 and 8"
    with pytest.raises(WaferError, match=message):
        gemm_summa.program(hardware("wse2", mesh=(6, 6)), 6, 6, 6)
    with pytest.raises(WaferError, match="1440 colours"):
        gemm_summa.program(hardware("wse2", mesh=(720, 720)), 720, 720, 720)


def test_what_the_user_got_wrong():
    _, _, a, b = operands(gemm_summa, (2, 3))
    with pytest.raises(WaferError, match=r"bytes of SRAM per PE.*use more PEs"):
        gemm_summa.program(toy((2, 3)), 64, 640, 64)
    with pytest.raises(WaferError, match="at least 1"):
        gemm_summa.program(toy((2, 3)), 0, 3, 4)
    with pytest.raises(WaferError, match='choose "rounds"'):
        gemm_summa.apply(a, b, values="sparse")  # pyright: ignore[reportArgumentType]
    with pytest.raises(WaferError, match="tile_operands"):
        gemm_summa.load(a, b[1:])
