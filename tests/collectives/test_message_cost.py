"""Whole messages, against messages that are followed by hand."""

import pytest

from wafer_jax import WaferError, hardware
from wafer_jax.collectives import allreduce_ktree, allreduce_pipeline
from wafer_jax.collectives.message_cost import (
    ktree_cycles,
    pipeline_cycles,
    rotating_sums_cycles,
)

LAUNCH, WORDS, ONE_HOP = 16, 10, 6
STAGE = LAUNCH + ONE_HOP + WORDS
FLOOD = LAUNCH + WORDS + 5
"""Of the broadcast, hops apart."""


def line(length):
    return hardware("wse2", mesh=(1, length))


def test_a_pipeline_by_hand():
    assert pipeline_cycles(line(1), WORDS) == 0
    assert pipeline_cycles(line(2), WORDS) == STAGE + FLOOD + 1
    assert pipeline_cycles(line(5), WORDS) == 4 * STAGE + FLOOD + 4


def test_a_root_adds_its_second_side_after_the_first():
    second = LAUNCH + WORDS
    assert ktree_cycles(line(3), WORDS, k=1) == STAGE + second + FLOOD + 1
    assert ktree_cycles(line(5), WORDS, k=1) == 2 * STAGE + second + FLOOD + 2
    assert ktree_cycles(line(4), WORDS, k=1) == 2 * STAGE + FLOOD + 2, "its far side comes later"


def test_two_phases_by_hand():
    second = LAUNCH + WORDS
    group = STAGE + second
    roots = LAUNCH + 5 + 3 + WORDS
    assert ktree_cycles(line(9), WORDS, k=2) == group + roots + second + FLOOD + 4


def test_columns_are_lines():
    assert ktree_cycles(hardware("wse2", mesh=(9, 2)), 3, axis="y") == ktree_cycles(line(9), 3)
    with pytest.raises(WaferError, match="K-tree of 0 phases"):
        ktree_cycles(line(9), 3, k=0)


@pytest.mark.parametrize("length", [2, 12, 120])
def test_words_that_are_passed_on_at_once_are_faster(length):
    hw = line(length)
    assert allreduce_pipeline.cost(hw, WORDS) < pipeline_cycles(hw, WORDS)
    assert allreduce_ktree.cost(hw, WORDS) < ktree_cycles(hw, WORDS)


def test_given_groups():
    """Two groups of two whose roots are neighbours: a stage in each, a stage, two hops back."""
    groups = 2 * STAGE + FLOOD + 2
    assert ktree_cycles(line(4), WORDS, groups=(2,)) == groups
    with pytest.raises(WaferError, match="takes 1 numbers"):
        ktree_cycles(line(4), WORDS, groups=(2, 2))


def by_hand(length, between):
    """When the last PE is done: every PE's message follows that of the PE behind it."""
    free = [0] * length
    for root in [*range(0, length, 2), *range(length - 1 - length % 2, 0, -2)]:
        ready = [t + between for t in free]
        sent = dict.fromkeys(range(length), 0)
        for side in (range(root), range(length - 1, root, -1)):
            arrived = 0
            for pe in side:
                sent[pe] = max(ready[pe], arrived)
                arrived = sent[pe] + STAGE
                free[pe] = sent[pe] + LAUNCH + WORDS
        free[root] = ready[root]
        for neighbour in (root - 1, root + 1):
            if 0 <= neighbour < length:
                free[root] = max(free[root] + LAUNCH + WORDS, sent[neighbour] + STAGE)
    return max(free)


@pytest.mark.parametrize("length", [2, 5, 6])
@pytest.mark.parametrize("between", [0, 7, 300])
def test_sums_whose_root_moves(length, between):
    assert rotating_sums_cycles(line(length), WORDS, between) == by_hand(length, between)


def test_a_sum_of_one():
    assert rotating_sums_cycles(line(1), WORDS, 7) == 7
