"""`step` and the oracle on random programs whose routes change, some of them under a watchdog."""

from random import Random

import jax
import numpy as np
import pytest
from machine import Machine
from oracle import Oracle
from random_families import DYNAMIC_FAMILIES
from random_programs import random_program
from test_against_oracle import agree

from wafer_jax.jitter import Jitter

MAX_CYCLES = 5_000
EVERY_CYCLE, ENDS = 2, 24
"""Seeds per family that are compared in every cycle, and at the end alone."""
WATCHED, PATIENT = (0, 2, 4), 1_000_000
"""Families whose runs have a watchdog, and one that sees no thread starve."""

each_family = pytest.mark.parametrize("family", range(len(DYNAMIC_FAMILIES)))


def cases(family, first, last, *, values=True, lean=False):
    """What to run: seeds number ``first .. last - 1`` of a family."""
    for i in range(first, last):
        seed = family + i * len(DYNAMIC_FAMILIES)
        program, tiles = random_program(seed, DYNAMIC_FAMILIES, lean=lean)
        rng, jitter = Random(f"{seed} watched"), None
        if DYNAMIC_FAMILIES[family].jitter:
            jitter = Jitter(rng.getrandbits(32), rng.choice((0, 3, 90)), rng.choice((0, 1, 5, 40)))
        watchdog_cycles = rng.choice((1, 12, 70, PATIENT)) if family in WATCHED else 0
        yield program, tiles, values, jitter, watchdog_cycles


def runs(family, first, last, *, values=True, lean=False):
    """The oracle and the machine on each case."""
    for case in cases(family, first, last, values=values, lean=lean):
        yield Oracle(*case), Machine(*case, roomy=not lean)


def compare_every_cycle(oracle, machine):
    agree(oracle, machine)
    while oracle.step():
        assert machine.step()
        agree(oracle, machine)
        assert oracle.now < MAX_CYCLES
    assert not machine.step()
    agree(oracle.finish(), machine.finish())


def compare_end(oracle, machine):
    agree(oracle.run(MAX_CYCLES), machine.run(MAX_CYCLES))


@each_family
def test_every_cycle(family):
    for pair in runs(family, 0, EVERY_CYCLE):
        compare_every_cycle(*pair)


@pytest.mark.slow
@each_family
def test_fifty_in_every_cycle(family):
    for pair in runs(family, 1000, 1050):
        compare_every_cycle(*pair)


def test_chunks_of_any_length_end_alike():
    """Stopped after so many steps, or at a cycle, and gone on with."""
    rng = Random(7)
    for case in cases(1, 0, 6):
        whole, parts = (Machine(*case, roomy=True) for _ in range(2))
        whole.run(MAX_CYCLES)
        while not (parts.state.stuck or parts.state.now >= MAX_CYCLES):
            until = int(parts.state.now) + rng.choice((1, 7, 400))
            parts._advance(min(until, MAX_CYCLES), rng.choice((1, 2, 3, 17, 100)))
        for one, other in zip(*map(jax.tree.leaves, (whole.state, parts.state)), strict=True):
            np.testing.assert_array_equal(one, other)


@each_family
def test_ends(family):
    for pair in runs(family, EVERY_CYCLE, EVERY_CYCLE + ENDS):
        compare_end(*pair)


def test_words_that_wait_in_the_pipeline_for_the_one_ahead():
    """Rare, and not to be seen at the end: look for programs that show it."""
    found = [case for case in cases(1, 0, 60) if Oracle(*case).run(MAX_CYCLES).seen["held_up"]]
    assert found
    for case in found:
        compare_every_cycle(Oracle(*case), Machine(*case, roomy=True))


@pytest.mark.parametrize("family", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_without_values(family):
    for pair in runs(family, 0, EVERY_CYCLE, values=False):
        compare_every_cycle(*pair)


@pytest.mark.parametrize(
    ("family", "i"),
    [(1, 200), *(pytest.param(f, 200, marks=pytest.mark.slow) for f in (0, 2, 3, 4))],
)
def test_steps_that_leave_out_what_a_program_does_not_use(family, i):
    for pair in runs(family, i, i + 1, lean=True):
        compare_every_cycle(*pair)


@pytest.mark.slow
@each_family
def test_many_ends(family):
    for pair in runs(family, 100, 500):
        compare_end(*pair)


@each_family
def test_a_family_shares_one_compiled_step(family):
    specs = {machine.spec for _, machine in runs(family, 0, EVERY_CYCLE + ENDS)}
    assert len(specs) == 1
