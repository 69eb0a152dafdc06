"""Chain and two-phase reduce: values, the order of additions, cycles, published runs."""

import jax
import numpy as np
import pytest
from lines_harness import (
    VALUE_LINES,
    integers,
    machines,
    normal,
    oracle_cycles,
    oracle_tile,
    same_bits,
    toy,
)

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import reduce, reduce_chain, reduce_two_phase
from wafer_jax.collectives.lines import line_length


def at_root(tile: np.ndarray, axis: str, root: int) -> np.ndarray:
    return np.take(tile, [root], axis=-1 if axis == "x" else -2)


def roots(length: int) -> set[int]:
    return {0, length - 1, length // 2, length // 3}


@pytest.mark.parametrize("mesh", VALUE_LINES)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_oracle_and_bulk_level_give_the_dense_sum_and_the_same_bits(mesh, axis):
    hw = toy(mesh)
    length = line_length(hw, axis)
    exact, rough = integers(3, *mesh), normal(3, *mesh)
    dense = exact.sum(axis=-1 if axis == "x" else -2, keepdims=True)
    for root in roots(length):
        assert (np.asarray(reduce_chain.apply(exact, axis, root)) == dense).all()
        program = reduce_chain.program(hw, 3, axis, root)
        fabric = at_root(oracle_tile(program, rough), axis, root)
        assert same_bits(fabric, reduce_chain.apply(rough, axis, root))
    for group in {1, 2, 3, length}:
        assert (np.asarray(reduce_two_phase.apply(exact, group, axis)) == dense).all()
        program = reduce_two_phase.program(hw, 3, group, axis)
        fabric = at_root(oracle_tile(program, rough), axis, 0)
        assert same_bits(fabric, reduce_two_phase.apply(rough, group, axis))


def test_cycles_equal_the_closed_forms_on_every_mesh_and_machine():
    for hw, axis, words in machines():
        length = line_length(hw, axis)
        for root in roots(length):
            program = reduce_chain.program(hw, words, axis, root)
            assert oracle_cycles(program) == reduce_chain.cost(hw, words, axis, root), program.name
        for group in {1, 2, 3, length}:
            program = reduce_two_phase.program(hw, words, group, axis)
            cost = reduce_two_phase.cost(hw, words, group, axis)
            assert oracle_cycles(program) == cost, program.name


@pytest.mark.parametrize(
    ("name", "options", "root"),
    [("chain", {"axis": "x", "root": 0}, 0), ("chain", {"axis": "y", "root": 2}, 2),
     ("two_phase", {"axis": "x", "group": 3}, 0)],
)  # fmt: skip
def test_executor_agrees_with_bulk_level_and_cost(name, options, root):
    hw = hardware("wse2", mesh=(5, 7))
    x = normal(6, *hw.mesh)
    result = run(getattr(reduce, name)(hw, 6, **options), x).raise_on_fault()
    module = {"chain": reduce_chain, "two_phase": reduce_two_phase}[name]
    assert same_bits(at_root(result.values, options["axis"], root), module.apply(x, **options))
    assert result.cycles == module.cost(hw, 6, **options)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_sums_are_rounded_after_every_addition(dtype):
    hw = toy((2, 9))
    x = normal(6, 2, 9, dtype=dtype)
    program = reduce_chain.program(hw, 3, dtype=dtype)
    assert same_bits(oracle_tile(program, x)[..., :1], jax.jit(reduce_chain.apply)(x))
    if dtype == "float16":
        subnormal = x * x.dtype.type(3e-7)
        fabric = oracle_tile(program, subnormal)[..., :1]
        assert fabric.any()
        assert same_bits(fabric, jax.jit(reduce_chain.apply)(subnormal))


def test_a_long_chain_is_a_loop_and_adds_in_the_same_order():
    x = normal(2, 1, 90)
    ordered = x[..., -1]
    for i in reversed(range(89)):
        ordered = x[..., i] + ordered
    assert same_bits(reduce_chain.apply(x)[..., 0], ordered)


def test_maximum_at_the_bulk_level():
    x = normal(4, 3, 7)
    assert same_bits(reduce_chain.apply(x, root=2, op="max"), x.max(axis=-1, keepdims=True))
    assert same_bits(reduce_two_phase.apply(x, 3, "y", "max"), x.max(axis=-2, keepdims=True))


def test_chain_of_512_pes_matches_the_vendors_simulator():
    """Published for 512x1 PEs and 4,096 words on the WSE-2: 7,218 cycles."""
    hw = hardware("wse2").replace(mesh=(1, 512), device_mesh=(994, 750))
    cycles = run(reduce_chain.program(hw, 4096), values="none").raise_on_fault().cycles
    assert cycles == reduce_chain.cost(hw, 4096)
    assert cycles == pytest.approx(7218, rel=0.01)


@pytest.mark.parametrize(("group", "published"), [(8, 9117), (16, 8989), (32, 8973), (128, 9297)])
def test_two_phase_of_512_pes_matches_the_vendors_simulator(group, published):
    hw = hardware("wse2", mesh=(1, 512))
    program = reduce_two_phase.program(hw, 4096, group)
    cycles = run(program, values="none").raise_on_fault().cycles
    assert cycles == reduce_two_phase.cost(hw, 4096, group)
    assert cycles == pytest.approx(published, rel=0.02)


def test_words_of_the_second_phase_leave_the_cores_inside_a_group_alone():
    program = reduce_two_phase.program(toy((1, 12)), 2, 4)
    assert len(program.colors) == 4
    inside = program.role_at(0, 6)
    assert len(inside.bound(0).input) == len(inside.bound(0).output) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda hw: reduce_chain.program(hw, 2, root=9), "root 9 is not on a line of 4 PEs"),
        (lambda hw: reduce_chain.cost(hw, 2, axis="z"), "axis 'z' of the mesh"),
        (lambda hw: reduce_two_phase.program(hw, 2, 0), "groups of 0 PEs"),
        (lambda hw: reduce_chain.apply(normal(1, 2, 2), op="mul"), "op 'mul'"),
        (lambda hw: reduce_chain.program(hw.replace(colors=1), 2), "needs 2 colours, toy has 1"),
        (lambda hw: reduce_chain.program(hw, 2000), "needs 8000 bytes of SRAM"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(WaferError, match=message):
        call(toy((1, 4)))
