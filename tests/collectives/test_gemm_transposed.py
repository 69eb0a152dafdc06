"""Transposed MeshGEMM at the bulk level: dense values, the order of additions, the cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lines_harness import integers, normal, same_bits

from wafer_jax import WaferError, hardware
from wafer_jax.collectives import gemm_transposed, reduce_chain
from wafer_jax.collectives.kernels import gemm
from wafer_jax.collectives.tiles import untile_matrix

MESHES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (5, 5), (2, 3), (4, 3), (4, 6)]
SIZES = (5, 13, 7)


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
