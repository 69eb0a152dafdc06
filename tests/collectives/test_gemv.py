"""MeshGEMV, its kernel and its tiles: dense values, the same bits at both levels, cycles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from lines_harness import integers, normal, same_bits, toy

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import gemv
from wafer_jax.collectives.allreduce_ktree import root_of
from wafer_jax.collectives.kernels import gemm, gemv_cycles
from wafer_jax.collectives.kernels import gemv as kernel
from wafer_jax.collectives.tiles import tile_matrix, tile_vector, untile_matrix, untile_vector


def fused(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Ordered fused multiply-adds: a float32 product is exact in float64."""
    total = np.zeros(w.shape[1:], np.float32)
    for a, b in zip(x.astype(np.float64), w.astype(np.float64), strict=True):
        total = (total + a[None] * b).astype(np.float32)
    return total


@pytest.mark.parametrize("k", [1, 2, 7, 24])
def test_kernel_gives_the_same_bits_however_it_is_batched(k):
    lanes = 576
    x, w = normal(k, lanes, seed=1), normal(k, 5, lanes, seed=2)
    expected = fused(x, w)
    assert same_bits(jax.jit(kernel)(x.reshape(k, 24, 24), w.reshape(k, 5, 24, 24)),
                     expected.reshape(5, 24, 24))  # fmt: skip
    batched = jax.vmap(kernel, in_axes=-1, out_axes=-1)

    def inside_control_flow(x, w):
        def body(carry):
            i, y = carry
            return i + 1, lax.cond(i < 2, lambda: batched(x, w), lambda: y)

        start = (0, jnp.zeros((5, x.shape[-1]), jnp.float32))
        return lax.while_loop(lambda carry: carry[0] < 3, body, start)[1]

    for n in (1, 5, 64, 576) if k == 24 else (5,):
        for call in (batched, inside_control_flow):
            assert same_bits(jax.jit(call)(x[:, :n], w[..., :n]), expected[:, :n])


@pytest.mark.parametrize("k", [1, 2, 5])
def test_what_follows_the_kernel_is_not_fused_into_its_products(k):
    x, w = normal(k, 8, seed=1), normal(k, 3, 8, seed=2)
    y = fused(x, w)
    added = jax.jit(lambda x, w: (lambda y: y[:, :4] + y[:, 4:])(kernel(x, w)))(x, w)
    assert same_bits(added, y[:, :4] + y[:, 4:])


def test_gemm_kernel_accumulates_in_order():
    c, a, b = normal(2, 3, 6, seed=1), normal(2, 5, 6, seed=2), normal(5, 3, 6, seed=3)
    expected = c
    for i in range(5):
        product = a[:, i, None].astype(np.float64) * b[i][None]
        expected = (expected + product).astype(np.float32)
    assert same_bits(jax.jit(gemm)(c, a, b), expected)
    assert same_bits(jax.jit(jax.vmap(gemm, in_axes=-1, out_axes=-1))(c, a, b), expected)


@pytest.mark.parametrize("rows_along", ["y", "x"])
def test_tiles_are_padded_and_come_back(rows_along):
    matrix, vector, mesh = integers(5, 7), integers(7), (3, 2)
    tiles = tile_matrix(matrix, mesh, rows_along)
    cut = (3, 2) if rows_along == "y" else (2, 3)
    assert tiles.shape == (-(-5 // cut[0]), -(-7 // cut[1]), *mesh)
    assert same_bits(untile_matrix(tiles, (5, 7), rows_along), matrix)
    assert float(jnp.abs(tiles).sum()) == np.abs(matrix).sum()
    assert same_bits(untile_vector(tile_vector(vector, mesh, rows_along), 7, rows_along), vector)
    block = matrix[:2, 4:] if rows_along == "y" else matrix[3:, :3]
    assert (np.asarray(tiles[: block.shape[0], : block.shape[1], 0, 1]) == block).all()


@pytest.mark.parametrize("mesh", [(1, 1), (1, 4), (5, 3)])
@pytest.mark.parametrize("axis", ["y", "x"])
def test_bulk_level_gives_the_dense_product(mesh, axis):
    matrix, vector = integers(11, 9, seed=1), integers(11, seed=2)
    x, w = tile_vector(vector, mesh, axis), tile_matrix(matrix, mesh, axis)
    other = "x" if axis == "y" else "y"
    for values in ("ordered", "dense"):
        y = gemv.apply(x, w, axis=axis, values=values)
        assert y.shape == (w.shape[1], *mesh)
        assert (np.asarray(untile_vector(y, 9, other)) == vector @ matrix).all()
        root = gemv.apply(x, w, axis=axis, broadcast=False, values=values)
        assert same_bits(root, y[:, :1] if axis == "y" else y[..., :1])


def test_consecutive_products_alternate_the_axis():
    first, second, vector = integers(6, 7, seed=1), integers(7, 5, seed=2), integers(6, seed=3)
    mesh = (3, 4)
    y = gemv.apply(tile_vector(vector, mesh, "y"), tile_matrix(first, mesh, "y"), axis="y")
    z = gemv.apply(y, tile_matrix(second, mesh, "x"), axis="x")
    assert (np.asarray(untile_vector(z, 5, "y")) == vector @ first @ second).all()


@pytest.mark.parametrize(
    ("mesh", "options", "dtype"),
    [((5, 3), {"axis": "y"}, "float32"), ((2, 6), {"axis": "x", "broadcast": False}, "float32"),
     ((3, 2), {"axis": "y", "k": 1}, "bfloat16"), ((1, 1), {}, "float32")],
)  # fmt: skip
def test_executor_agrees_with_bulk_level_and_cost(mesh, options, dtype):
    hw, rows, cols = hardware("wse2", mesh=mesh), 11, 13
    axis = options.get("axis", "y")
    x = tile_vector(normal(rows, dtype=dtype, seed=1), mesh, axis)
    w = tile_matrix(normal(rows, cols, dtype=dtype, seed=2), mesh, axis)
    program = gemv.mesh(hw, rows, cols, dtype=dtype, **options)
    result = run(program, {"x": np.asarray(x), "w": np.asarray(w)}).raise_on_fault()
    y = result.values
    if not options.get("broadcast", True):
        y = np.take(y, [root_of(mesh[1])], axis=-1)
    assert same_bits(y, jax.jit(lambda x, w: gemv.apply(x, w, **options))(x, w))
    assert result.cycles == gemv.cost(hw, rows, cols, dtype=dtype, **options)


def test_cost_is_the_kernel_and_the_tree():
    hw = hardware("wse2", mesh=(24, 24))
    assert gemv_cycles(hw, 24, 24) == int(np.ceil(25 * (6.4 + 24)))
    assert gemv.cost(hw, 576, 576) > gemv_cycles(hw, 24, 24)
    assert gemv.cost(hw.replace(mesh=(1, 1)), 8, 8) == gemv_cycles(hw, 8, 8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gemv.apply(jnp.zeros((2, 3, 3)), jnp.zeros((3, 2, 3, 3))), "GEMV: x"),
        (lambda: gemv.apply(jnp.zeros((2, 3, 3)), jnp.zeros((2, 2, 3, 3)), values="fast"), "fast"),
        (lambda: tile_matrix(jnp.zeros(3), (2, 2)), "expected an array of 2 axes"),
        (lambda: tile_vector(jnp.zeros(3), (2, 2), "z"), "axis 'z'"),  # pyright: ignore
        (lambda: gemv.program(toy((2, 2)), 64, 64), "bytes of SRAM per PE"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(WaferError, match=message):
        call()
