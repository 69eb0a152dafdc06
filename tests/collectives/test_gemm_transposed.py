"""Transposed MeshGEMM: dense values, the order of additions, both levels bit for bit, cycles."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gemm_harness import oracle_values, values_under_keys
from lines_harness import integers, normal, oracle_cycles, same_bits, toy

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import gemm_transposed, reduce_chain
from wafer_jax.collectives.kernels import gemm
from wafer_jax.collectives.tiles import untile_matrix

MESHES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (5, 5), (2, 3), (4, 3), (4, 6)]
SIZES = (5, 13, 7)
KERNELS = {"transposed gemm": lambda a, b: (a @ b.T).T}


def operands(mesh, make=integers):
    m, k, n = SIZES
    a, b = make(m, k, seed=1), make(n, k, seed=2)
    return a, b, *gemm_transposed.tile_operands(jnp.asarray(a), jnp.asarray(b), mesh)


@pytest.mark.parametrize("mesh", MESHES)
def test_against_a_dense_product(mesh):
    a, b, a_tiles, b_tiles = operands(mesh)
    for values in ("rounds", "dense"):
        c = gemm_transposed.apply(a_tiles, b_tiles, values=values)
        assert c.dtype == jnp.float32
        assert (untile_matrix(c, (SIZES[0], SIZES[2])) == a @ b.T).all()


@pytest.mark.parametrize("mesh", [(3, 3), (2, 4)])
def test_partial_products_are_summed_by_the_chains_of_the_reduce(mesh):
    """Every entry of C by the local kernel and a chain reduce into the column that owns it."""
    _, _, a, b = operands(mesh, normal)
    height = mesh[0]
    c = np.asarray(jax.jit(gemm_transposed.apply)(a, b))
    n, cols = b.shape[0], c.shape[1]
    for tile in range(height):
        b_now = jnp.broadcast_to(b[:, :, tile : tile + 1], b.shape).swapaxes(0, 1)
        zero = jnp.zeros((a.shape[0], n, *mesh), jnp.float32)
        product = jax.jit(gemm)(zero, a, b_now)
        for i in range(n):
            root, slot = divmod(tile * n + i, cols)
            total = reduce_chain.apply(product[:, i], "x", root)[..., 0]
            assert same_bits(total, c[:, slot, :, root])


@pytest.mark.parametrize("mesh", [*MESHES, (1, 3), (3, 1), (4, 2), (6, 4)])
def test_fabric_against_a_dense_product(mesh):
    a, b, a_tiles, b_tiles = operands(mesh)
    program = gemm_transposed.program(toy(mesh), *SIZES)
    c = oracle_values(program, gemm_transposed.load(a_tiles, b_tiles), kernels=KERNELS)
    assert (untile_matrix(c.swapaxes(0, 1), (SIZES[0], SIZES[2])) == a @ b.T).all()


@pytest.mark.parametrize(("mesh", "dtype"), [((2, 3), "bfloat16")])
def test_fabric_and_bulk_level_have_the_same_bits(mesh, dtype):
    make = lambda *shape, seed: normal(*shape, dtype=dtype, seed=seed)
    _, _, a, b = operands(mesh, make)
    program = gemm_transposed.program(toy(mesh), *SIZES, dtype=dtype)
    result = run(program, gemm_transposed.load(a, b)).raise_on_fault()
    assert same_bits(result.values.swapaxes(0, 1), jax.jit(gemm_transposed.apply)(a, b))


def test_values_do_not_depend_on_the_speed_of_pes():
    a, b, a_tiles, b_tiles = operands((3, 4))
    program = gemm_transposed.program(toy((3, 4)), *SIZES)
    for c in values_under_keys(program, gemm_transposed.load(a_tiles, b_tiles), KERNELS):
        assert (untile_matrix(c.swapaxes(0, 1), (SIZES[0], SIZES[2])) == a @ b.T).all()


def more_cycles(hw, tile_m, tile_k, part_n):
    """Cycles on the fabric less those of the cost."""
    height, width = hw.mesh
    sizes = (tile_m * height, tile_k * width, part_n * math.lcm(height, width))
    program = gemm_transposed.program(hw, *sizes)
    return oracle_cycles(program) - gemm_transposed.cost(hw, *sizes)


TILES = ((2, 3, 2), (1, 3, 1), (3, 7, 1))


@pytest.mark.parametrize("preset", ["wse2", "wse3"])
@pytest.mark.parametrize("mesh", [(1, 1), (1, 2), (1, 7), (2, 1), (6, 1), (2, 2), (3, 3), (5, 5)])
def test_cycles(preset, mesh):
    hw = hardware(preset).replace(mesh=mesh, sram_bytes=1 << 16)
    assert [more_cycles(hw, *tiles) for tiles in TILES] == [0, 0, 0]


@pytest.mark.parametrize("preset", ["wse2", "toy"])
@pytest.mark.parametrize("mesh", [(2, 3), (4, 2), (5, 5), (4, 6), (8, 8)])
def test_residual_where_half_chains_meet_at_their_root(preset, mesh):
    """The residuals that `gemm_transposed_cost` names."""
    hw = hardware(preset).replace(mesh=mesh, sram_bytes=1 << 16)
    for tiles in TILES:
        assert 0 <= more_cycles(hw, *tiles) <= 3 * mesh[0]


def test_parts_add_up_and_large_meshes_take_no_time():
    hw = hardware("wse2", mesh=(720, 720))
    parts = gemm_transposed.cost_parts(hw, 4096, 4096, 4096)
    assert parts.total == gemm_transposed.cost(hw, 4096, 4096, 4096)
    assert parts.exposed > 0


def test_seven_colours_serve_every_root():
    small, large = (
        gemm_transposed.program(hardware("wse2", mesh=(n, n)), n, n, n) for n in (5, 16)
    )
    assert len(small.colors) == len(large.colors) == 7
    longest = lambda p: max(len(t) for r in p.roles for t in r.threads)
    assert longest(large) < 120


def test_leading_axes_and_jit():
    _, _, a, b = operands((2, 3))
    heads = (jnp.stack([a, 2 * a])[None], jnp.stack([b, b])[None])
    for values in ("rounds", "dense"):
        apply = lambda a, b, values=values: gemm_transposed.apply(a, b, values=values)
        c = jax.jit(apply)(*heads)
        assert (c[0, 1] == 2 * apply(a, b)).all()


def test_cost_grows_with_what_it_counts():
    cost = lambda mesh, *sizes: gemm_transposed.cost(hardware("wse2", mesh=mesh), *sizes)
    assert cost((1, 1), 8, 8, 8) < cost((1, 1), 8, 8, 9)
    assert cost((8, 8), 64, 64, 64) < cost((1, 1), 64, 64, 64)
    # With a product in every PE of a row, the chains' latency is what is left.
    narrow, wide = cost((4, 16), 4, 16, 16), cost((4, 32), 4, 32, 16)
    assert narrow < wide < 2.5 * narrow


def test_what_the_user_got_wrong():
    _, _, a, b = operands((2, 3))
    with pytest.raises(WaferError, match="tile_operands"):
        gemm_transposed.apply(a, b[:, :1])
    with pytest.raises(WaferError, match="tile_operands"):
        gemm_transposed.apply(a, b[:1])
    with pytest.raises(WaferError, match='choose "rounds"'):
        gemm_transposed.apply(a, b, values="sparse")  # pyright: ignore[reportArgumentType]
    with pytest.raises(WaferError, match="cannot multiply"):
        gemm_transposed.tile_operands(jnp.ones((2, 3)), jnp.ones((3, 2)), (2, 2))
