"""MeshGEMM: dense values, the same bits on the fabric and at the bulk level, cycles."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lines_harness import Oracle, integers, normal, oracle_cycles, same_bits, toy

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import gemm
from wafer_jax.collectives.gemm_cost import transfer_cycles
from wafer_jax.collectives.gemm_layout import block_numbers, layout_of
from wafer_jax.collectives.interleave import receive_from
from wafer_jax.collectives.tiles import untile_matrix
from wafer_jax.events import Compute, Kernel

MESHES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (4, 4), (5, 5), (2, 3), (3, 4), (4, 6), (1, 5)]
SIZES = (5, 13, 7)
"""m, k, n: pairwise distinct, and most meshes divide none of them."""


def operands(mesh, sizes=SIZES, make=integers):
    m, k, n = sizes
    a, b = make(m, k, seed=1), make(k, n, seed=2)
    return a, b, *gemm.tile_operands(jnp.asarray(a), jnp.asarray(b), mesh)


def numpy_realign(left, *tiles):
    """The alignment kernel once more, as a loop over the blocks' new places."""
    count = len(tiles) // 2
    own, received = tiles[:count], tiles[count:]
    moved = int(np.clip(left[0], -count, count))
    kept = {i - moved: own[i] for i in range(count)}
    came = {i - moved + (count if moved > 0 else -count): received[i] for i in range(count)}
    return (left - np.float32(moved), *({**came, **kept}[i] for i in range(count)))


NUMPY_KERNELS = {"gemm": lambda c, a, b: c + a @ b, "realign": numpy_realign}


def with_numpy_kernels(program):
    """The program with kernels that the oracle can run without compiling anything."""

    def plain(event):
        if isinstance(event, Compute) and event.kernel.name in NUMPY_KERNELS:
            name = event.kernel.name
            return replace(event, kernel=Kernel(name=name, fn=NUMPY_KERNELS[name]))
        return event

    roles = tuple(
        replace(role, threads=tuple(tuple(map(plain, thread)) for thread in role.threads))
        for role in program.roles
    )
    return replace(program, roles=roles)


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
    tiles = gemm.load(a_tiles, b_tiles, align)
    assert set(tiles) == set(program.inputs)
    oracle = Oracle(with_numpy_kernels(program), tiles).run()
    assert not any(pe.faults for pe in oracle.pes.values())
    assert (untile_matrix(oracle.tile("c"), (SIZES[0], SIZES[2])) == a @ b).all()


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
    assert result.cycles == gemm.cost(program.hw, 9, 26, 7, align=align, dtype=dtype)


def test_a_model_sized_product_takes_the_cycles_of_the_cost():
    hw, sizes = hardware("wse2", mesh=(24, 24)), (48, 576, 576)
    result = run(gemm.program(hw, *sizes), values="none").raise_on_fault()
    assert result.cycles == gemm.cost(hw, *sizes)
    assert len(result.program.roles) <= 64


@pytest.mark.parametrize(
    ("preset", "mesh"),
    [("wse2", mesh) for mesh in MESHES]
    + [(preset, mesh) for preset in ("wse3", "toy") for mesh in ((1, 5), (2, 2), (3, 3), (2, 3))],
)
def test_cycles(preset, mesh):
    """Steps bound by the product (wide tiles of B) and by the transfer (one column of B)."""
    hw = hardware(preset).replace(mesh=mesh, sram_bytes=1 << 16)
    for tile_m, block_k, tile_n in ((2, 3, 3), (1, 3, 1), (3, 7, 1), (12, 10, 1)):
        sizes = (tile_m * mesh[0], block_k * math.lcm(*mesh), tile_n * mesh[1])
        for align in ("chip", "host"):
            program = gemm.program(hw, *sizes, align=align)
            assert oracle_cycles(program) == gemm.cost(hw, *sizes, align=align)


@pytest.mark.parametrize("mesh", [(2, 2), (3, 3), (5, 5), (2, 3)])
def test_short_blocks_that_meet_at_the_ramp_cost_a_little_more(mesh):
    """The residual that `gemm_cost` names: latency beyond the blocks, in steps bound by it."""
    hw = toy(mesh, hop_cycles=3, ramp_cycles=4, stream_setup_cycles=1, sram_bytes=1 << 16)
    for tile_m, block_k in ((1, 1), (1, 3), (5, 2), (9, 3)):
        sizes = (tile_m * mesh[0], block_k * math.lcm(*mesh), mesh[1])
        more = oracle_cycles(gemm.program(hw, *sizes)) - gemm.cost(hw, *sizes)
        steps = math.lcm(*mesh) - 1
        assert 0 <= more <= (hw.hop_cycles + hw.stream_setup_cycles) * steps


@pytest.mark.parametrize(
    ("side", "tile_m", "published"),
    [(3, 1, 1620), (3, 8, 1620), (3, 16, 2023), (6, 1, 3241), (6, 8, 3240), (6, 16, 4052)],
)
def test_cycles_near_published_runs_of_the_vendors_simulator(side, tile_m, published):
    """MeshGEMM of WaferLLM's authors on a WSE-3, K = N = 8 P, one repeat more (a public fork).

    It keeps C in 16 bits; clearing our float32 C takes up to 2.6 % of these short runs.
    """
    hw = hardware("wse3", mesh=(side, side))
    sizes = (tile_m * side, 8 * side, 8 * side)
    cycles = gemm.cost(hw, *sizes, align="host", dtype="float16")
    assert abs(cycles - published) <= 0.03 * published


def test_parts_add_up_and_transfers_hide_behind_products():
    hw = hardware("wse2", mesh=(24, 24))
    parts = gemm.cost_parts(hw, 48, 576, 576)
    assert parts.total == gemm.cost(hw, 48, 576, 576)
    assert parts.align == parts.total - gemm.cost(hw, 48, 576, 576, align="host")
    assert parts.exposed < 0.001 * parts.compute
    assert transfer_cycles(hw, [24 * 24, 2 * 24], False) < parts.compute / 24


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
