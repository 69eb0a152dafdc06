"""`step` and the oracle on the same seeded random programs: the same state, cycle for cycle."""

from random import Random

import numpy as np
import pytest
from machine import Machine
from oracle import Oracle
from oracle_state import ELEMENT
from random_families import FAMILIES, REGISTER_FAMILIES
from random_programs import random_program

from wafer_jax.errors import WaferError
from wafer_jax.jitter import Jitter

MAX_CYCLES = 20_000
EVERY_CYCLE, ENDS = 2, 24
"""Seeds per family that are compared in every cycle, and at the end alone."""

each_family = pytest.mark.parametrize(
    ("families", "family"),
    [
        pytest.param(group, i, id=f"{name}{i}")
        for name, group in (("", FAMILIES), ("registers", REGISTER_FAMILIES))
        for i in range(len(group))
    ],
)


def runs(families, family, first, last, keys=1):
    """(program, tiles, values, jitter) of seeds number ``first .. last - 1`` of a family."""
    for i in range(first, last):
        seed = family + i * len(families)
        program, tiles = random_program(seed, families)
        for key in range(keys if families[family].jitter else 1):
            jitter = _jitter(Random(f"{seed} {key}")) if families[family].jitter else None
            yield program, tiles, True, jitter


def _jitter(rng):
    return Jitter(rng.getrandbits(32), rng.choice((0, 3, 90)), rng.choice((0, 1, 5, 40)))


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


def compare_every_cycle(program, tiles, values=True, jitter=None, *, roomy=True):
    oracle = Oracle(program, tiles, values, jitter)
    machine = Machine(program, tiles, values, jitter, roomy=roomy)
    agree(oracle, machine)
    while oracle.step():
        assert machine.step()
        agree(oracle, machine)
        assert oracle.now < MAX_CYCLES
    assert not machine.step()
    agree(oracle.finish(), machine.finish())


def compare_end(program, tiles, values=True, jitter=None):
    oracle = Oracle(program, tiles, values, jitter)
    machine = Machine(program, tiles, values, jitter, roomy=True)
    agree(oracle.run(MAX_CYCLES), machine.run(MAX_CYCLES))


@each_family
def test_every_cycle(families, family):
    for run in runs(families, family, 0, EVERY_CYCLE):
        compare_every_cycle(*run)


@each_family
def test_ends(families, family):
    for run in runs(families, family, EVERY_CYCLE, EVERY_CYCLE + ENDS, keys=2):
        compare_end(*run)


@pytest.mark.parametrize(
    ("families", "family"), [(FAMILIES, 3), (FAMILIES, 7), (REGISTER_FAMILIES, 4)]
)
def test_without_values(families, family):
    for program, tiles, _, jitter in runs(families, family, 0, EVERY_CYCLE):
        compare_every_cycle(program, tiles, False, jitter)


@pytest.mark.parametrize(
    ("families", "seed"),
    [
        (FAMILIES, 1002),
        (FAMILIES, 1008),
        (REGISTER_FAMILIES, 1003),
        pytest.param(FAMILIES, 1004, marks=pytest.mark.slow),
        pytest.param(REGISTER_FAMILIES, 1000, marks=pytest.mark.slow),
    ],
)
def test_steps_that_leave_out_what_a_program_does_not_use(families, seed):
    compare_every_cycle(*random_program(seed, families, lean=True), roomy=False)


@pytest.mark.parametrize("executor", [Oracle, Machine])
def test_kernels_that_write_registers_are_refused_without_values(executor):
    program, tiles = random_program(0, REGISTER_FAMILIES)
    with pytest.raises(WaferError, match="regist"):
        executor(program, tiles, values=False)


@pytest.mark.parametrize("latency", [{"hop_cycles": 16}, {"ramp_cycles": 15}])
def test_the_longest_latencies_and_deepest_queues(latency):
    depths = {"input_queue_depths": (64,) * 3, "output_queue_depths": (64,) * 3}
    program, tiles = random_program(1001, lean=True, router_depth=64, **depths, **latency)
    compare_every_cycle(program, tiles, roomy=False)


@pytest.mark.slow
@each_family
def test_fifty_in_every_cycle(families, family):
    for run in runs(families, family, 1000, 1050):
        compare_every_cycle(*run)


@pytest.mark.slow
@each_family
def test_many_ends(families, family):
    for run in runs(families, family, 100, 500, keys=3):
        compare_end(*run)
