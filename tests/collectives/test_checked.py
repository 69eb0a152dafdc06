"""Programs and costs name an argument of a wrong kind in one line, and do not hang on it."""

import inspect

import numpy as np
import pytest
from lines_harness import toy

from wafer_jax import WaferError
from wafer_jax.runtime.algorithms import ALGORITHMS

FACES = [(name, face) for name in ALGORITHMS for face in ("program", "cost")]
WRONG = ("3", 2.5, float("nan"), {}, object(), 1j, np.array([1, 2]), True)
SIZES = {"length": 1, "slots": 2, "height": 3, "width": 3}


def call(name, face, **changes):
    """A face on 2x2 PEs with small sizes, some arguments changed."""
    function = getattr(ALGORITHMS[name], face)
    parameters = list(inspect.signature(function).parameters.values())
    required = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    arguments = {parameter: SIZES.get(parameter, 4) for parameter in required}
    return function(**arguments | {parameters[0].name: toy((2, 2), sram_bytes=8192)} | changes)


@pytest.mark.parametrize(("name", "face"), FACES)
def test_an_argument_of_a_wrong_kind_is_named(name, face):
    parameters = inspect.signature(getattr(ALGORITHMS[name], face)).parameters.values()
    for parameter in parameters:
        for value in WRONG:
            right = (value is True and isinstance(parameter.default, bool)) or (
                isinstance(value, str) and isinstance(parameter.default, str)
            )
            if right:
                continue
            with pytest.raises(WaferError, match=parameter.name) as error:
                call(name, face, **{parameter.name: value})
            assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [n for n, face in FACES if face == "cost"])
def test_numpy_sizes_give_a_cost_of_pythons_kind(name):
    parameters = inspect.signature(ALGORITHMS[name].cost).parameters.values()
    sizes = [p.name for p in parameters if p.default is inspect.Parameter.empty][1:]
    cycles = call(name, "cost", **{size: np.int32(SIZES.get(size, 4)) for size in sizes})
    assert type(cycles) is int
    assert cycles == call(name, "cost")


@pytest.mark.parametrize("name", [n for n, face in FACES if face == "cost" and "kv" not in n])
def test_sizes_below_one_have_no_cost(name):
    parameters = inspect.signature(ALGORITHMS[name].cost).parameters.values()
    for size in [p.name for p in parameters if p.default is inspect.Parameter.empty][1:]:
        for value in (0, -(10**30), *([10**30] if size == "words" else [])):
            with pytest.raises(WaferError):
                call(name, "cost", **{size: value})


@pytest.mark.parametrize("name", ["allreduce.ktree", "allreduce.rows_then_columns", "gemv"])
def test_a_tree_of_a_billion_phases_is_refused(name):
    for face in ("program", "cost"):
        with pytest.raises(WaferError, match="choose k >= 1, at most 16"):
            call(name, face, k=10**9)


def test_groups_may_be_a_list():
    assert call("allreduce.ktree", "cost", groups=[2]) == call(
        "allreduce.ktree", "cost", groups=(2,)
    )


def test_a_tile_whose_words_cannot_be_followed_is_refused():
    with pytest.raises(WaferError, match="a halo larger than the 8192 bytes"):
        call("stencil", "cost", height=10**9)


def test_a_product_may_take_no_time_but_no_less():
    assert call("gemm", "cost", product_cycles=0) > 0
    with pytest.raises(WaferError, match="product_cycles=-1: choose at least 0"):
        call("gemm", "cost", product_cycles=-1)
