"""Binary-tree reduce: any line; values, the order of additions, cycles, colours."""

import jax
import numpy as np
import pytest
from lines_harness import (
    MACHINES,
    VALUE_LINES,
    integers,
    machines,
    normal,
    oracle_cycles,
    oracle_tile,
    same_bits,
    toy,
)

from wafer_jax import Jitter, WaferError, hardware, run
from wafer_jax.collectives import reduce, reduce_binary_tree


def by_rounds(parts: list[np.ndarray]) -> np.ndarray:
    """In round i, position p takes the sum of position p + 2^i, for p a multiple of 2^(i + 1)."""
    parts, distance = list(parts), 1
    while distance < len(parts):
        for p in range(0, len(parts) - distance, 2 * distance):
            parts[p] = parts[p] + parts[p + distance]
        distance *= 2
    return parts[0]


@pytest.mark.parametrize("mesh", VALUE_LINES)
@pytest.mark.parametrize("axis", ["x", "y"])
def test_oracle_and_bulk_level_give_the_dense_sum_and_the_same_bits(mesh, axis):
    where = -1 if axis == "x" else -2
    exact, rough = integers(3, *mesh), normal(3, *mesh)
    dense = exact.sum(axis=where, keepdims=True)
    assert (np.asarray(reduce_binary_tree.apply(exact, axis)) == dense).all()
    fabric = oracle_tile(reduce_binary_tree.program(toy(mesh), 3, axis), rough)
    assert same_bits(np.take(fabric, [0], axis=where), reduce_binary_tree.apply(rough, axis))


@pytest.mark.parametrize("length", [6, 16, 37])
def test_pairs_are_added_round_by_round(length):
    x = normal(2, 1, length)
    expected = by_rounds(list(np.moveaxis(x, -1, 0)))
    assert same_bits(reduce_binary_tree.apply(x)[..., 0], expected)


def test_cycles_equal_the_cost_up_to_8_pes():
    for hw, axis, words in machines():
        program = reduce_binary_tree.program(hw, words, axis)
        assert oracle_cycles(program) == reduce_binary_tree.cost(hw, words, axis), program.name


def test_cycles_of_longer_lines_are_within_4_of_the_cost():
    for length in (9, 12, 16, 23, 32, 64):
        for changes in MACHINES:
            for words in (1, 7, 20):
                hw = toy((1, length), **changes)
                program = reduce_binary_tree.program(hw, words)
                assert abs(oracle_cycles(program) - reduce_binary_tree.cost(hw, words)) <= 4


@pytest.mark.parametrize(("length", "words"), [(16, 64), (32, 64), (64, 64), (16, 256)])
def test_long_vectors_come_to_the_published_form(length, words):
    """max(B log2 P, ...) + (2 T_R + 1) log2 P of Luczynski et al.: their stages do not overlap."""
    hw, rounds = hardware("wse2", mesh=(1, length)), length.bit_length() - 1
    published = (
        max(words * rounds, words * length * rounds / (2 * (length - 1)) + length - 1) + 5 * rounds
    )
    assert reduce_binary_tree.cost(hw, words) == pytest.approx(published, rel=0.06)


@pytest.mark.parametrize(("length", "colors"), [(2, 1), (8, 2), (64, 4), (1000, 6)])
def test_colours_grow_with_half_the_rounds(length, colors):
    program = reduce_binary_tree.program(toy((1, length)), 2)
    assert len(program.colors) == colors
    assert len(program.role_at(0, 0).bound(0).input) == 1


def test_executor_agrees_with_bulk_level_and_cost():
    hw = hardware("wse2", mesh=(7, 3))
    x = normal(6, *hw.mesh)
    result = run(reduce.binary_tree(hw, 6, axis="y"), x).raise_on_fault()
    assert same_bits(result.values[..., :1, :], reduce_binary_tree.apply(x, "y"))
    assert result.cycles == reduce_binary_tree.cost(hw, 6, "y")


def test_16_bit_sums_are_rounded_after_every_addition():
    x = normal(6, 1, 9, dtype="bfloat16")
    program = reduce_binary_tree.program(toy((1, 9)), 3, dtype="bfloat16")
    assert same_bits(oracle_tile(program, x)[..., :1], jax.jit(reduce_binary_tree.apply)(x))


def test_values_do_not_depend_on_when_pes_run():
    x = normal(3, 1, 11)
    program, expected = reduce_binary_tree.program(toy((1, 11)), 3), reduce_binary_tree.apply(x)
    for key in range(20):
        assert same_bits(oracle_tile(program, x, jitter=Jitter(key, 40, 11))[..., :1], expected)


def test_too_few_colours_are_named():
    with pytest.raises(WaferError, match="needs 4 colours, toy has 3"):
        reduce_binary_tree.program(toy((1, 64), colors=3), 2)
