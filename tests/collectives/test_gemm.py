"""MeshGEMM: dense values, the same bits on the fabric and at the bulk level, cycles."""

import math

import gemm_harness
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gemm_harness import SIZES, oracle_values, with_numpy_kernels
from lines_harness import Oracle, integers, normal, oracle_cycles, same_bits, toy

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import gemm
from wafer_jax.collectives.gemm_layout import aligned_on_chip, block_numbers, layout_of
from wafer_jax.collectives.interleave import receive_from
from wafer_jax.collectives.tiles import untile_matrix

MESHES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (4, 4), (5, 5), (2, 3), (3, 4), (4, 6), (1, 5)]


def operands(mesh, sizes=SIZES, make=integers):
    return gemm_harness.operands(gemm, mesh, sizes, make)


@pytest.mark.parametrize("mesh", MESHES)
def test_bulk_level_against_a_dense_product(mesh):
    a, b, a_tiles, b_tiles = operands(mesh)
    for values in ("rounds", "dense"):
        c = gemm.apply(a_tiles, b_tiles, values=values)
        assert c.dtype == jnp.float32
        assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


@pytest.mark.parametrize("align", ["chip", "host"])
@pytest.mark.parametrize("mesh", MESHES)
def test_fabric_against_a_dense_product(mesh, align):
    a, b, a_tiles, b_tiles = operands(mesh)
    program = gemm.program(toy(mesh), *SIZES, align=align)
    c = oracle_values(program, gemm.load(a_tiles, b_tiles, align))
    assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


@pytest.mark.parametrize(
    ("mesh", "align", "dtype"),
    [((4, 4), "chip", "float32"), ((2, 3), "chip", "bfloat16"), ((3, 4), "host", "float32")],
)
def test_fabric_and_bulk_level_have_the_same_bits(mesh, align, dtype):
    make = lambda *shape, seed: normal(*shape, dtype=dtype, seed=seed)
    _, _, a, b = operands(mesh, (9, 26, 7), make)
    program = gemm.program(toy(mesh, sram_bytes=8192), 9, 26, 7, align=align, dtype=dtype)
    result = run(program, gemm.load(a, b, align)).raise_on_fault()
    assert same_bits(result.values, jax.jit(gemm.apply)(a, b))
    cost = gemm.cost(program.hw, 9, 26, 7, align=align, dtype=dtype)
    steps = math.lcm(*mesh) - 1 + rounds_of(mesh, (9, 26, 7), align)
    assert abs(result.cycles - cost) <= 14 * steps  # what short launches leave open


def test_a_model_sized_product_takes_the_cycles_of_the_cost():
    hw, sizes = hardware("wse2", mesh=(24, 24)), (48, 576, 576)
    result = run(gemm.program(hw, *sizes, align="host"), values="none").raise_on_fault()
    assert result.cycles == gemm.cost(hw, *sizes, align="host")
    assert len(result.program.roles) <= 64


TILES = ((2, 3, 3), (1, 3, 1), (3, 7, 1), (12, 10, 1))
"""tile_m, block_k, tile_n."""


def sizes_of(mesh, tile_m, block_k, tile_n):
    return tile_m * mesh[0], block_k * math.lcm(*mesh), tile_n * mesh[1]


def rounds_of(mesh, sizes, align):
    layout = layout_of(mesh, *sizes)
    on_chip = aligned_on_chip(align)
    return layout.a_rounds * on_chip[0] + layout.b_rounds * on_chip[1]


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("preset", ["wse2", "wse3"])
def test_cycles_of_products_are_those_of_the_cost(preset, mesh):
    hw = hardware(preset).replace(mesh=mesh, sram_bytes=1 << 16)
    for tiles in TILES:
        sizes = sizes_of(mesh, *tiles)
        for home in (False, True):
            program = gemm.program(hw, *sizes, align="host", home=home)
            assert oracle_cycles(program) == gemm.cost(hw, *sizes, align="host", home=home)


@pytest.mark.parametrize("mesh", [(1, 2), (2, 2), (4, 4), (2, 3), (1, 5)])
def test_residual_where_streams_share_the_slot(mesh):
    """What `compute_shift_cost` names: alignment, transfers alone, and launches that are short."""
    for preset, each_step in (("wse2", 3), ("wse3", 3), ("toy", 14)):
        hw = hardware(preset).replace(mesh=mesh, sram_bytes=1 << 16)
        for tiles in TILES:
            sizes = sizes_of(mesh, *tiles)
            for align in ("chip", "left", "host"):
                for product in (None, 1):
                    options = {"align": align, "product_cycles": product}
                    more = oracle_cycles(gemm.program(hw, *sizes, **options))
                    more -= gemm.cost(hw, *sizes, **options)
                    steps = math.lcm(*mesh) - 1 + rounds_of(mesh, sizes, align)
                    assert abs(more) <= each_step * steps


def test_the_left_operand_may_be_aligned_on_chip_alone():
    a, b, a_tiles, b_tiles = operands((3, 4))
    program = gemm.program(toy((3, 4)), *SIZES, align="left")
    c = oracle_values(program, gemm.load(a_tiles, b_tiles, "left"))
    assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b).all()


def test_blocks_come_home():
    _, _, a_tiles, b_tiles = operands((2, 3))
    tiles = gemm.load(a_tiles, b_tiles, "host")
    program = gemm.program(toy((2, 3)), *SIZES, align="host", home=True)
    oracle = Oracle(with_numpy_kernels(program), tiles).run()
    period = {"a": 3, "b": 4}  # with their buffers, after 6 steps
    for name, tile in tiles.items():
        at = (int(name[1:]) - 6) % period[name[0]]
        assert (oracle.tile(f"{name[0]}{at}") == tile).all()


def test_parts_add_up_and_latencies_hide_behind_products():
    hw = hardware("wse2", mesh=(24, 24))
    parts = gemm.cost_parts(hw, 48, 576, 576)
    assert parts.total == gemm.cost(hw, 48, 576, 576)
    assert parts.align == parts.total - gemm.cost(hw, 48, 576, 576, align="host")
    far = gemm.cost_parts(hw.replace(hop_cycles=5), 48, 576, 576)
    assert far.exposed == parts.exposed


def test_blocks_meet_when_they_move_along_the_rings():
    """`block_numbers` is what the rings bring: move skewed blocks by hand and compare."""
    for mesh in MESHES:
        layout = layout_of(mesh, *SIZES)
        numbers = block_numbers(mesh, layout.steps)
        for step in range(layout.steps - 1):
            here, after = numbers[step], numbers[step + 1]
            if layout.a_blocks == 1:
                assert (after == here[:, receive_from(mesh[1])]).all()
            if layout.b_blocks == 1:
                assert (after == here[receive_from(mesh[0])]).all()
        assert (np.sort(numbers, axis=0) == np.arange(layout.steps)[:, None, None]).all()


def test_event_tables_stay_short():
    small, large = (gemm.program(hardware("wse2", mesh=(n, n)), n, n, n) for n in (12, 36))
    longest = lambda p: max(len(t) for r in p.roles for t in r.threads)
    assert longest(small) == longest(large) < 64
    assert len(small.roles) <= len(large.roles) <= 64


def test_leading_axes_and_jit():
    _, _, a, b = operands((2, 3))
    a, b = (jnp.stack([t, 2 * t])[None] for t in (a, b))
    for values in ("rounds", "dense"):
        c = jax.jit(lambda a, b, values=values: gemm.apply(a, b, values=values))(a, b)
        assert (c[0, 0] == gemm.apply(a[0, 0], b[0, 0], values=values)).all()
        assert (c[0, 1] == 4 * c[0, 0]).all()


def test_what_the_user_got_wrong():
    hw = hardware("toy", mesh=(2, 3))
    _, _, a, b = operands((2, 3))
    with pytest.raises(WaferError, match=r"bytes of SRAM per PE.*use more PEs"):
        gemm.program(hw, 64, 640, 64)
    with pytest.raises(WaferError, match='choose "chip"'):
        gemm.program(hw, *SIZES, align="elsewhere")  # pyright: ignore[reportArgumentType]
    with pytest.raises(WaferError, match="colour"):
        gemm.program(hw.replace(colors=8), *SIZES)
    with pytest.raises(WaferError, match="at least 1"):
        gemm.program(hw, 0, 3, 4)
    with pytest.raises(WaferError, match='choose "rounds"'):
        gemm.apply(a, b, values="sparse")  # pyright: ignore[reportArgumentType]
    with pytest.raises(WaferError, match="tile_operands"):
        gemm.apply(a, b[1:])
    with pytest.raises(WaferError, match="cannot multiply"):
        gemm.tile_operands(jnp.ones((2, 3)), jnp.ones((4, 2)), (2, 2))
