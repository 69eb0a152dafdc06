"""Generated reduces: any pre-order tree runs; the search against all trees; the model's figures."""

from math import isqrt

import numpy as np
import pytest
from jitter_harness import outputs_under_jitter
from lines_harness import MACHINES, integers, normal, oracle_cycles, oracle_tile, same_bits, toy
from trees_harness import all_trees, ordered_sum

from wafer_jax import WaferError, hardware, run
from wafer_jax.collectives import (
    reduce,
    reduce_auto_gen,
    reduce_binary_tree,
    reduce_chain,
    reduce_star,
    reduce_two_phase,
)
from wafer_jax.collectives.preorder_cost import critical_path_cycles, model_cycles
from wafer_jax.collectives.preorder_search import energy_table, least_energy_by_depth
from wafer_jax.collectives.preorder_tree import (
    chain_tree,
    check_tree,
    colors_of,
    shape_of,
    two_phase_tree,
)

GRID = [(p, b) for p in (2, 3, 5, 8, 16, 24, 33, 64) for b in (1, 4, 16, 64) if p * b <= 2048]


def test_every_tree_of_five_positions_runs_and_adds_in_order():
    x = normal(2, 1, 5)
    for tree in all_trees(5):
        check_tree(tree, 5)
        program = reduce_auto_gen.program(toy((1, 5)), 2, tree=tree)
        expected = ordered_sum(tree, list(np.moveaxis(x, -1, 0)))
        assert same_bits(oracle_tile(program, x)[..., 0], expected)
        assert same_bits(reduce_auto_gen.apply(x, tree)[..., 0], expected)


@pytest.mark.parametrize("changes", MACHINES)
def test_cycles_of_every_small_tree_are_near_its_critical_path(changes):
    for length in (2, 3, 4, 6):
        for words in (1, 7, 20):
            hw = toy((1, length), **changes)
            off = [
                oracle_cycles(reduce_auto_gen.program(hw, words, tree=tree))
                - reduce_auto_gen.cost(hw, words, tree=tree)
                for tree in all_trees(length)
            ]
            assert max(map(abs, off)) <= (0 if length < 5 else 10), (length, words, off)


@pytest.mark.parametrize("length", range(2, 8))
def test_the_search_finds_the_best_of_all_trees(length):
    trees = list(all_trees(length))
    shapes = {shape_of(tree) for tree in trees}
    energies = energy_table(length)
    for shape in shapes:
        fits = [
            s.energy for s in shapes if s.depth <= shape.depth and s.contention <= shape.contention
        ]
        assert energies[shape.contention, shape.depth] == min(fits)
    for name in ("wse2", "wse3"):
        hw = hardware(name, mesh=(1, length))
        for words in (1, 2, 5, 16, 64):
            least = min(model_cycles(hw, words, length, shape) for shape in shapes)
            found = shape_of(reduce_auto_gen.model_tree(hw, words, length))
            assert model_cycles(hw, words, length, found) == least
            assert reduce_auto_gen.lower_bound(hw, words, length) <= least
            earliest = min(critical_path_cycles(hw, words, tree) for tree in trees)
            generated = reduce_auto_gen.cost(hw, words)
            assert earliest <= generated <= earliest + hw.stream_setup_cycles


def test_a_generated_tree_on_shallow_queues_may_be_faster_than_its_cost():
    hw = toy((1, 9), ramp_cycles=3, stream_setup_cycles=1, router_depth=4,
             input_queue_depths=(1,) * 8, output_queue_depths=(2,) * 8)  # fmt: skip
    assert oracle_cycles(reduce_auto_gen.program(hw, 3)) - reduce_auto_gen.cost(hw, 3) == -1


def test_depth_alone_bounds_the_energy():
    for length in (2, 5, 9, 40):
        deepest = energy_table(length)[length - 1]
        assert (deepest[1:] == least_energy_by_depth(length)[1:]).all()


@pytest.mark.parametrize("name", ["wse2", "wse3"])
def test_generated_trees_take_their_cost_and_are_never_slower_than_the_known_ones(name):
    for length, words in GRID:
        hw = hardware(name, mesh=(1, length))
        cycles = oracle_cycles(reduce_auto_gen.program(hw, words))
        assert cycles == reduce_auto_gen.cost(hw, words), (length, words)
        assert cycles <= reduce_chain.cost(hw, words)
        assert cycles <= reduce_two_phase.cost(hw, words, isqrt(length))
        assert cycles <= reduce_star.cost(hw, words)
        assert cycles <= oracle_cycles(reduce_binary_tree.program(hw, words))


def test_the_models_tree_may_be_slower_than_the_model_says():
    """Its streams are nested, not overlapped: 16 PEs, 64 words, the worst of the grid."""
    hw = hardware("wse2", mesh=(1, 16))
    tree = reduce_auto_gen.model_tree(hw, 64, 16)
    assert model_cycles(hw, 64, 16, shape_of(tree)) == pytest.approx(150.2, abs=0.05)
    cycles = oracle_cycles(reduce_auto_gen.program(hw, 64, tree=tree))
    assert cycles == 238
    assert abs(cycles - reduce_auto_gen.cost(hw, 64, tree=tree)) <= 5
    assert reduce_auto_gen.cost(hw, 64) == 147


@pytest.mark.parametrize(("words", "cycles"), [(16, 122), (64, 220)])
def test_the_lower_bound_of_the_model_can_be_beaten(words, cycles):
    """The model adds busy links to distance; a tree that overlaps the two needs less."""
    hw = hardware("wse2", mesh=(1, 64))
    assert oracle_cycles(reduce_auto_gen.program(hw, words)) == cycles
    assert 0.9 < cycles / reduce_auto_gen.lower_bound(hw, words, 64) < 1


@pytest.mark.parametrize(("length", "words"), [(4, 256), (8, 64), (16, 256), (32, 256)])
def test_long_vectors_come_to_the_published_chain(length, words):
    """B + (2 T_R + 2)(P - 1), which is the lower bound too, less its 1 cycle of a hop."""
    hw = hardware("wse2", mesh=(1, length))
    chain = words + 6 * (length - 1)
    assert reduce_auto_gen.model_tree(hw, words, length) == chain_tree(length)
    assert reduce_auto_gen.lower_bound(hw, words, length) == chain
    assert reduce_auto_gen.cost(hw, words, tree=chain_tree(length)) == chain + 2


def test_the_known_algorithms_are_pre_order_trees():
    """Same values; a chain takes the same cycles, two-phase fewer, since its phases overlap."""
    hw, x = toy((1, 12)), integers(5, 1, 12)
    for tree, known, cost in (
        (chain_tree(12), reduce_chain.apply(x), reduce_chain.cost(hw, 5)),
        (two_phase_tree(12, 5), reduce_two_phase.apply(x, 5), reduce_two_phase.cost(hw, 5, 5)),
    ):
        program = reduce_auto_gen.program(hw, 5, tree=tree)
        assert same_bits(oracle_tile(program, x)[..., :1], known)
        assert same_bits(reduce_auto_gen.apply(x, tree), known)
        cycles = oracle_cycles(program)
        assert cycles <= cost
        assert cycles == cost or tree != chain_tree(12)


def test_few_colours_do_for_long_lines():
    hw = hardware("wse2", mesh=(1, 512))
    for words in (1, 16, 256, 4096):
        assert colors_of(reduce_auto_gen.tree_of(hw, words, 512)) <= 5


def test_executor_agrees_with_bulk_level_and_cost():
    hw = hardware("wse2", mesh=(2, 9))
    x = normal(6, *hw.mesh)
    result = run(reduce.auto_gen(hw, 6), x).raise_on_fault()
    tree = reduce_auto_gen.tree_of(hw, 6, 9)
    assert same_bits(result.values[..., :1], reduce_auto_gen.apply(x, tree))
    assert result.cycles == reduce_auto_gen.cost(hw, 6)


def test_values_do_not_depend_on_when_pes_run():
    x, tree = normal(3, 1, 11), (-1, 0, 1, 1, 3, 1, 0, 6, 6, 8, 0)
    program = reduce_auto_gen.program(toy((1, 11)), 3, tree=tree)
    for values in outputs_under_jitter(program, {"x": x}):
        assert same_bits(values[..., :1], reduce_auto_gen.apply(x, tree))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda hw: reduce_auto_gen.program(hw, 2, tree=(-1, 0)), "2 positions on a line of 4 PEs"),
        (lambda hw: reduce_auto_gen.cost(hw, 2, tree=(0, 0, 0, 0)), "it is the root, give -1"),
        (
            lambda hw: reduce_auto_gen.program(hw, 2, tree=(-1, 0, 0, 1)),
            "position 3 of a tree has parent 1: in pre-order it is 2 or an ancestor of 2",
        ),
        (lambda hw: reduce_auto_gen.apply(normal(1, 1, 2), (-1, 2)), "position 1 of a tree"),
        (lambda hw: reduce_auto_gen.model_tree(hw, 2, 500), "choose at most 128"),
        (lambda hw: two_phase_tree(4, 0), "groups of 0 PEs"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(WaferError, match=message):
        call(toy((1, 4)))
