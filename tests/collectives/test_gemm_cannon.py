"""Cannon's algorithm: dense values, the same bits on the fabric and at the bulk level, cycles."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gemm_harness import MESHES, SIZES, operands, oracle_values, values_under_keys
from lines_harness import normal, oracle_cycles, same_bits, toy

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import gemm_cannon, gemm_cannon_cost
from wafer_jax.collectives.gemm_layout import layout_of
from wafer_jax.collectives.tiles import untile_matrix

LARGER = ((5, 5), (1, 6), (7, 1))


@pytest.mark.parametrize("align", ["chip", "host"])
@pytest.mark.parametrize("mesh", [*MESHES, (5, 5)])
def test_fabric_against_a_dense_product(mesh, align):
    a, b, a_tiles, b_tiles = operands(gemm_cannon, mesh)
    program = gemm_cannon.program(toy(mesh), *SIZES, align=align)
    c = oracle_values(program, gemm_cannon.load(a_tiles, b_tiles, align))
    assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


@pytest.mark.parametrize("mesh", [(1, 1), (3, 3), (2, 3)])
def test_bulk_level_against_a_dense_product(mesh):
    a, b, a_tiles, b_tiles = operands(gemm_cannon, mesh)
    for values in ("rounds", "dense"):
        c = gemm_cannon.apply(a_tiles, b_tiles, values=values)
        assert c.dtype == jnp.float32
        assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


@pytest.mark.parametrize(("mesh", "align", "dtype"), [((2, 2), "host", "bfloat16")])
def test_fabric_and_bulk_level_have_the_same_bits(mesh, align, dtype):
    make = lambda *shape, seed: normal(*shape, dtype=dtype, seed=seed)
    _, _, a, b = operands(gemm_cannon, mesh, (9, 26, 7), make)
    program = gemm_cannon.program(toy(mesh, sram_bytes=8192), 9, 26, 7, align=align, dtype=dtype)
    result = run(program, gemm_cannon.load(a, b, align)).raise_on_fault()
    assert same_bits(result.values, jax.jit(gemm_cannon.apply)(a, b))


def test_values_do_not_depend_on_the_speed_of_pes():
    a, b, a_tiles, b_tiles = operands(gemm_cannon, (3, 3))
    program = gemm_cannon.program(toy((3, 3)), *SIZES)
    for c in values_under_keys(program, gemm_cannon.load(a_tiles, b_tiles)):
        assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


def sizes_of(mesh, tile_m, block_k, tile_n):
    return tile_m * mesh[0], block_k * math.lcm(*mesh), tile_n * mesh[1]


@pytest.mark.parametrize("preset", ["wse2", "wse3"])
@pytest.mark.parametrize("mesh", [*MESHES, *LARGER])
def test_cycles_are_those_of_the_cost(preset, mesh):
    hw = hardware(preset).replace(mesh=mesh, sram_bytes=1 << 16)
    for tiles in ((3, 3, 5), (4, 6, 6), (1, 3, 1)):
        sizes = sizes_of(mesh, *tiles)
        program = gemm_cannon.program(hw, *sizes, align="host")
        assert oracle_cycles(program) == gemm_cannon.cost(hw, *sizes, align="host")


@pytest.mark.parametrize("mesh", [(3, 3), (3, 4), (1, 6)])
def test_residual_of_alignment_and_of_short_launches(mesh):
    """What `compute_shift_cost` names, and a way back more or less."""
    for preset, each_step in (("wse2", 3), ("toy", 14)):
        hw = hardware(preset).replace(mesh=mesh, sram_bytes=1 << 16)
        for tiles in ((1, 3, 1), (3, 7, 1)):
            sizes = sizes_of(mesh, *tiles)
            layout = layout_of(mesh, *sizes)
            steps = layout.steps - 1 + layout.a_rounds + layout.b_rounds
            more = oracle_cycles(gemm_cannon.program(hw, *sizes)) - gemm_cannon.cost(hw, *sizes)
            assert abs(more) <= each_step * steps


def test_a_late_tile_goes_round_once_and_is_not_paid_for_in_every_step():
    hw = hardware("wse2", mesh=(1, 9)).replace(sram_bytes=1 << 16)
    sizes = sizes_of((1, 9), 1, 2, 1)
    slow = hw.replace(hop_cycles=16)
    cycles = [oracle_cycles(gemm_cannon.program(m, *sizes, align="host")) for m in (slow, hw)]
    assert 0 < cycles[0] - cycles[1] < 15 * (7 + 9)
    assert cycles[0] == pytest.approx(gemm_cannon.cost(slow, *sizes, align="host"), abs=2)


def test_parts_add_up():
    hw = hardware("wse2", mesh=(24, 24))
    parts = gemm_cannon.cost_parts(hw, 48, 576, 576)
    assert parts.total == gemm_cannon.cost(hw, 48, 576, 576)
    assert parts.align == parts.total - gemm_cannon.cost(hw, 48, 576, 576, align="host")


def test_steps_in_unison_by_hand():
    """9 x 9 PEs, hops of 16 cycles, 2 words of A and of B, a product of 15 cycles."""
    hw = hardware("wse2", mesh=(9, 9)).replace(hop_cycles=16)
    way_back = 3 * 16 + 2 + (1 + 2 * 2 + 8 * 16) + 2 - 1  # B: third launch, set-up, way, words
    step = way_back + 3 + 9  # two signals and a wait, the task
    loops, clear = 4, 7
    cost = partial(gemm_cannon_cost.unison_cost_parts, hw, 9, 18, 9, align="host")
    assert cost().total == clear + 8 * step + 15 + loops
    assert cost(overlap=False).total == clear + 8 * (step + 15) + 15 + loops
    assert cost().compute == cost(overlap=False).compute == clear + 9 * 15


@pytest.mark.parametrize("mesh", [(1, 1), (2, 2), (3, 3), (2, 3)])
@pytest.mark.parametrize("align", ["host", "chip"])
def test_unison_costs_nothing_where_products_hide_the_way_back(mesh, align):
    hw = hardware("wse2", mesh=mesh)
    sizes = sizes_of(mesh, 4, 6, 6)
    unison = gemm_cannon_cost.unison_cost_parts(hw, *sizes, align=align)
    assert unison == gemm_cannon.cost_parts(hw, *sizes, align=align)


def test_in_unison_every_step_pays_the_way_back():
    far, near = (
        gemm_cannon_cost.unison_cost_parts(
            hardware("wse2", mesh=(400, 400)).replace(hop_cycles=h), 400, 1200, 400
        )
        for h in (2, 1)
    )
    assert far.exposed - near.exposed == 399 * 399
    assert far.align - near.align == 2 * 200 * 399


def test_colours_and_tables_do_not_grow_with_the_mesh():
    small, large = (
        gemm_cannon.program(hardware("wse2", mesh=(n, n)), n, n, n, align="host") for n in (8, 24)
    )
    longest = lambda p: max(len(t) for r in p.roles for t in r.threads)
    assert len(small.colors) == len(large.colors) == 6
    assert len(small.roles) == len(large.roles)
    assert longest(small) == longest(large)


def test_what_the_user_got_wrong():
    hw = hardware("toy", mesh=(2, 3))
    _, _, a, b = operands(gemm_cannon, (2, 3))
    with pytest.raises(WaferError, match=r"bytes of SRAM per PE.*use more PEs"):
        gemm_cannon.program(hw, 64, 640, 64)
    with pytest.raises(WaferError, match='choose "chip"'):
        gemm_cannon.program(hw, *SIZES, align="elsewhere")  # pyright: ignore[reportArgumentType]
    with pytest.raises(WaferError, match="colour"):
        gemm_cannon.program(hw.replace(colors=8), *SIZES)
    with pytest.raises(WaferError, match='choose "rounds"'):
        gemm_cannon.apply(a, b, values="sparse")  # pyright: ignore[reportArgumentType]
    with pytest.raises(WaferError, match="tile_operands"):
        gemm_cannon.load(np.asarray(a), np.asarray(b)[1:])
