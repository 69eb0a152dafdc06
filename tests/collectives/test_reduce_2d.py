"""Reduces of the whole mesh: rows then columns over any scheme, and the snake."""

import numpy as np
import pytest
from lines_harness import (
    MACHINES,
    integers,
    normal,
    oracle_cycles,
    oracle_tile,
    same_bits,
    toy,
)

from wafer_jax import Jitter, WaferError, hardware, run
from wafer_jax.collectives import reduce, reduce_2d, reduce_snake

MESHES = ((1, 1), (1, 2), (3, 1), (2, 3), (4, 7), (5, 2))


@pytest.mark.parametrize("mesh", MESHES)
def test_oracle_and_bulk_level_give_the_dense_sum_and_the_same_bits(mesh):
    hw, exact, rough = toy(mesh), integers(3, *mesh), normal(3, *mesh)
    dense = exact.sum(axis=(-2, -1), keepdims=True)
    for scheme in reduce_2d.SCHEMES:
        trees = reduce_2d.trees_of(hw, 3, scheme)
        assert (np.asarray(reduce_2d.apply(exact, *trees)) == dense).all()
        fabric = oracle_tile(reduce_2d.program(hw, 3, scheme), rough)[..., :1, :1]
        assert same_bits(fabric, reduce_2d.apply(rough, *trees))
    assert (np.asarray(reduce_snake.apply(exact)) == dense).all()
    fabric = oracle_tile(reduce_snake.program(hw, 3), rough)[..., :1, :1]
    assert same_bits(fabric, reduce_snake.apply(rough))


def test_the_snake_adds_from_its_end():
    x = normal(2, 3, 3)
    total = x[:, 2, 2]
    for y, i in ((2, 1), (2, 0), (1, 0), (1, 1), (1, 2), (0, 2), (0, 1), (0, 0)):
        total = x[:, y, i] + total
    assert same_bits(reduce_snake.apply(x)[:, 0, 0], total)


@pytest.mark.parametrize("changes", MACHINES)
def test_cycles_equal_the_costs(changes):
    for mesh in MESHES:
        for words in (1, 2, 7, 20):
            hw = toy(mesh, **changes)
            cycles = oracle_cycles(reduce_snake.program(hw, words))
            assert cycles == reduce_snake.cost(hw, words), (mesh, words)
            for scheme in reduce_2d.SCHEMES:
                cycles = oracle_cycles(reduce_2d.program(hw, words, scheme))
                assert cycles == reduce_2d.cost(hw, words, scheme), (mesh, words, scheme)


def test_published_closed_forms():
    """Luczynski et al.: X-then-Y of two chains, and a chain over all PEs; here with set-ups."""
    hw = hardware("wse2", mesh=(6, 9))
    chains = (256 + 6 * 8) + (256 + 6 * 5)
    assert reduce_2d.cost(hw, 256, "chain") == chains + 2 * hw.stream_setup_cycles
    assert reduce_snake.cost(hw, 256) == 256 + 6 * 53 + hw.stream_setup_cycles


def test_the_snake_suits_long_vectors_on_small_meshes():
    small, large = (hardware("wse2", mesh=mesh) for mesh in ((4, 4), (32, 32)))
    assert reduce_snake.cost(small, 4096) < reduce_2d.cost(small, 4096)
    assert reduce_snake.cost(large, 16) > reduce_2d.cost(large, 16)


def test_executor_agrees_with_bulk_level_and_cost():
    hw = hardware("wse2", mesh=(4, 5))
    x = normal(6, *hw.mesh)
    result = run(reduce.rows_then_columns(hw, 6, scheme="binary_tree"), x).raise_on_fault()
    trees = reduce_2d.trees_of(hw, 6, "binary_tree")
    assert same_bits(result.values[..., :1, :1], reduce_2d.apply(x, *trees))
    assert result.cycles == reduce_2d.cost(hw, 6, "binary_tree")
    snake = run(reduce.snake(hw, 6), x).raise_on_fault()
    assert same_bits(snake.values[..., :1, :1], reduce_snake.apply(x))
    assert snake.cycles == reduce_snake.cost(hw, 6)


def test_values_do_not_depend_on_when_pes_run():
    x, hw = normal(3, 4, 5), toy((4, 5))
    trees = reduce_2d.trees_of(hw, 3, "star")
    programs = (
        (reduce_2d.program(hw, 3, "star"), reduce_2d.apply(x, *trees)),
        (reduce_snake.program(hw, 3), reduce_snake.apply(x)),
    )
    for program, expected in programs:
        for key in range(20):
            values = oracle_tile(program, x, jitter=Jitter(key, 40, 11))
            assert same_bits(values[..., :1, :1], expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda hw: reduce_2d.program(hw, 2, "tree"), "scheme 'tree' of a reduce: choose one of"),
        (lambda hw: reduce_2d.program(hw.replace(colors=1), 2), "needs 2 colours, toy has 1"),
        (lambda hw: reduce_snake.program(hw.replace(colors=1), 2), "needs 2 colours, toy has 1"),
        (lambda hw: reduce_snake.program(hw, 2000), "needs 8000 bytes of SRAM"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(WaferError, match=message):
        call(toy((3, 4)))
