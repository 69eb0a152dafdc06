"""Colours and queues of the operators against the programs of their collectives."""

import pytest

from wafer_jax import hardware
from wafer_jax.collectives import allreduce_ktree, gemm, gemm_transposed, kv_shift
from wafer_jax.errors import WaferError
from wafer_jax.models.operator_routes import (
    SHIFT_ROUTES,
    gemm_routes,
    transposed_routes,
    tree_routes,
)
from wafer_jax.report.audit_measure import measure


def machine(*mesh: int):
    wide = {"colors": 64, "input_queue_depths": (8,) * 40}
    return hardware("wse2", mesh=(mesh[0], mesh[1])).replace(**wide)


def of(program) -> tuple[int, int]:
    return len(program.colors), measure(program).input_queues


def needed(routes) -> tuple[int, int]:
    return routes.colors, routes.input_queues


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_k_trees(k):
    for length in (2, 3, 5, 16, 45, 80):
        program = allreduce_ktree.program(machine(1, length), 4, k)
        assert needed(tree_routes((1, length), "x", k)) == of(program)
    assert tree_routes((80, 1), "y", k) != tree_routes((1, 80), "x", k)


def test_too_few_input_queues_have_no_cost():
    hw = hardware("wse2", mesh=(1, 512))
    assert allreduce_ktree.needs(512, 5)[1] > 8 == len(hw.input_queue_depths)
    with pytest.raises(WaferError, match=r"k=5 needs .* input queues"):
        allreduce_ktree.cost(hw, 4, 5)


@pytest.mark.parametrize("mesh", [(3, 3), (5, 4), (9, 9)])
def test_products(mesh):
    hw = machine(*mesh)
    assert needed(gemm_routes(mesh)) == of(gemm.program(hw, 18, 18, 18))
    assert needed(transposed_routes(mesh)) == of(gemm_transposed.program(hw, 18, 18, 18))


@pytest.mark.parametrize("mesh", [(1, 9), (9, 1), (2, 3)])
def test_products_never_take_more(mesh):
    """Along a short side some rings have nothing to turn."""
    hw = machine(*mesh)
    for routes, program in (
        (gemm_routes, gemm.program),
        (transposed_routes, gemm_transposed.program),
    ):
        for claimed, taken in zip(needed(routes(mesh)), of(program(hw, 18, 18, 18)), strict=True):
            assert taken <= claimed <= 2 * taken


def test_the_shift():
    shifts = [of(kv_shift.program(machine(4, 2), 4, length, 3)) for length in range(1, 4)]
    assert max(shifts) == needed(SHIFT_ROUTES)
