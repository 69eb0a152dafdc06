"""`step` and the oracle on the same seeded random programs: the same state, cycle for cycle."""

import numpy as np
import pytest
from machine import Machine
from oracle import Oracle
from oracle_state import ELEMENT
from random_programs import FAMILIES, random_program

MAX_CYCLES = 20_000
EVERY_CYCLE, ENDS = 2, 24
"""Seeds per family that are compared in every cycle, and at the end alone."""

each_family = pytest.mark.parametrize("family", range(len(FAMILIES)))


def seeds(family, first, last):
    """Seeds number ``first .. last - 1`` of a family."""
    return [family + i * len(FAMILIES) for i in range(first, last)]


def agree(oracle, machine):
    """Both states are equal bit by bit; names what differs, and first where."""
    expected, actual = oracle.snapshot(), machine.snapshot()
    assert set(expected) == set(actual)
    wrong = []
    for key, value in expected.items():
        want, have = np.asarray(value), np.asarray(actual[key])
        if want.shape != have.shape:
            wrong.append(f"{key} has shape {have.shape}, not {want.shape}")
        elif (places := np.argwhere(_differ(key, want, have))).size:
            at = tuple(int(i) for i in places[0])
            wrong.append(f"{key}{list(at)} is {have[at]}, not {want[at]} ({len(places)} differ)")
    assert not wrong, f"{oracle.program.name}, cycle {oracle.now}: {'; '.join(wrong)}"


def _differ(key, want, have):
    """Where planes differ; which NaN a sum of NaNs is, processors may choose."""
    different = want != have
    if key == "sram" and different.any():
        for element in ELEMENT.values():
            a, b = (np.ascontiguousarray(v)[..., None].view(element) for v in (want, have))
            with np.errstate(invalid="ignore"):
                different &= ~((a == b) | (np.isnan(a) & np.isnan(b))).all(axis=-1)
    return different


def compare_every_cycle(program, tiles, values=True, *, roomy=True):
    oracle, machine = Oracle(program, tiles, values), Machine(program, tiles, values, roomy=roomy)
    agree(oracle, machine)
    while oracle.step():
        assert machine.step()
        agree(oracle, machine)
        assert oracle.now < MAX_CYCLES
    assert not machine.step()
    agree(oracle.finish(), machine.finish())


def compare_end(program, tiles, values=True):
    oracle, machine = Oracle(program, tiles, values), Machine(program, tiles, values, roomy=True)
    agree(oracle.run(MAX_CYCLES), machine.run(MAX_CYCLES))


@each_family
def test_every_cycle(family):
    for seed in seeds(family, 0, EVERY_CYCLE):
        compare_every_cycle(*random_program(seed))


@each_family
def test_ends(family):
    for seed in seeds(family, EVERY_CYCLE, EVERY_CYCLE + ENDS):
        compare_end(*random_program(seed))


@pytest.mark.parametrize("family", [3, 7])
def test_without_values(family):
    for seed in seeds(family, 0, EVERY_CYCLE):
        compare_every_cycle(*random_program(seed), values=False)


@pytest.mark.parametrize("seed", [1002, 1004, 1008])
def test_steps_that_leave_out_what_a_program_does_not_use(seed):
    compare_every_cycle(*random_program(seed, lean=True), roomy=False)


@pytest.mark.parametrize("latency", [{"hop_cycles": 16}, {"ramp_cycles": 15}])
def test_the_longest_latencies_and_deepest_queues(latency):
    depths = {"input_queue_depths": (64,) * 3, "output_queue_depths": (64,) * 3}
    program, tiles = random_program(1001, lean=True, router_depth=64, **depths, **latency)
    compare_every_cycle(program, tiles, roomy=False)


@pytest.mark.slow
@each_family
def test_many_ends(family):
    for seed in seeds(family, 100, 500):
        compare_end(*random_program(seed))
