"""GEMV with a pipeline or a ring allreduce: dense values, the same bits, cycles, comparison."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jitter_harness import outputs_under_jitter
from lines_harness import MACHINES, integers, normal, oracle_cycles, same_bits, toy

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import gemv, gemv_pipeline, gemv_ring
from wafer_jax.collectives.kernels import gemv_cycles
from wafer_jax.collectives.tiles import tile_matrix, tile_vector, untile_vector

BASELINES = (gemv_pipeline, gemv_ring)


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("mesh", [(1, 1), (4, 3)])
@pytest.mark.parametrize("axis", ["y", "x"])
def test_bulk_level_gives_the_dense_product(baseline, mesh, axis):
    matrix, vector = integers(11, 9, seed=1), integers(11, seed=2)
    x, w = tile_vector(vector, mesh, axis), tile_matrix(matrix, mesh, axis)
    y = baseline.apply(x, w, axis)
    other = "x" if axis == "y" else "y"
    assert (np.asarray(untile_vector(y, 9, other)) == vector @ matrix).all()
    assert same_bits(y, tile_vector(vector @ matrix, mesh, other))


@pytest.mark.parametrize(
    ("build", "module", "options"),
    [
        (gemv.pipeline, gemv_pipeline, {"axis": "y", "dtype": "bfloat16"}),
        (gemv.ring, gemv_ring, {"axis": "x"}),
    ],
)
def test_executor_agrees_with_bulk_level_and_cost(build, module, options):
    hw, rows, cols = hardware("wse2", mesh=(4, 3)), 11, 12
    axis, dtype = options["axis"], options.get("dtype", "float32")
    x = tile_vector(normal(rows, dtype=dtype, seed=1), hw.mesh, axis)
    w = tile_matrix(normal(rows, cols, dtype=dtype, seed=2), hw.mesh, axis)
    result = run(build(hw, rows, cols, **options), {"x": np.asarray(x), "w": np.asarray(w)})
    expected = jax.jit(lambda x, w: module.apply(x, w, axis))(x, w)
    assert same_bits(result.raise_on_fault().values, expected)
    assert result.cycles == module.cost(hw, rows, cols, **options)


@pytest.mark.parametrize("baseline", BASELINES)
def test_cycles_equal_the_cost(baseline):
    for changes in MACHINES:
        for mesh, axis in (((1, 1), "y"), ((2, 3), "y"), ((3, 2), "y"), ((1, 9), "x")):
            hw = toy(mesh, **changes)
            program = baseline.program(hw, 9, 18, axis)
            assert oracle_cycles(program) == baseline.cost(hw, 9, 18, axis), program.name


def test_values_do_not_depend_on_when_pes_run():
    mesh = (2, 1)
    x = tile_vector(normal(6, seed=1), mesh)
    w = tile_matrix(normal(6, 5, seed=2), mesh)
    expected = gemv_ring.apply(x, w)
    for values in outputs_under_jitter(gemv_ring.program(toy(mesh), 6, 5), {"x": x, "w": w}):
        assert same_bits(values, expected)


def test_a_k_tree_saves_most_of_the_communication_of_both_baselines():
    """The order of WaferLLM's figure 10: half precision, 4,096 squared, 360 x 360 PEs."""
    hw = hardware("wse2", mesh=(360, 360))
    alone = gemv_cycles(hw, 12, 12, "float16")
    tree, pipeline, ring = (
        module.cost(hw, 4096, 4096, dtype="float16") - alone for module in (gemv, *BASELINES)
    )
    assert 4 < pipeline / tree < 6
    assert ring > pipeline


@pytest.mark.parametrize("baseline", BASELINES)
def test_mistakes_are_named(baseline):
    with pytest.raises(WaferError, match="GEMV: x"):
        baseline.apply(jnp.zeros((2, 3, 3)), jnp.zeros((3, 2, 3, 3)))
    with pytest.raises(WaferError, match="bytes of SRAM per PE"):
        baseline.program(toy((2, 2)), 64, 64)
