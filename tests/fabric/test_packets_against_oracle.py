"""`step` and the oracle on the same random programs, run in packets of several words."""

from random import Random

import numpy as np
import pytest
from machine import Machine
from oracle import Oracle
from random_families import DYNAMIC_FAMILIES, FAMILIES, REGISTER_FAMILIES
from random_programs import random_program
from test_against_oracle import agree

from wafer_jax.jitter import Jitter

MAX_CYCLES = 20_000
EVERY_CYCLE, ENDS = 3, 20
"""Seeds per family that are compared in every cycle, and at the end alone."""
PACKET_WORDS = (2, 3, 5, 16)
WATCHED = (DYNAMIC_FAMILIES, 0)

each_family = pytest.mark.parametrize(
    ("families", "family"),
    [
        pytest.param(FAMILIES, 9, id="static"),
        pytest.param(REGISTER_FAMILIES, 4, id="registers"),
        pytest.param(DYNAMIC_FAMILIES, 0, id="segments"),
        pytest.param(DYNAMIC_FAMILIES, 1, id="switches"),
    ],
)


def runs(families, family, first, last):
    """The oracle and the machine on seeds number ``first .. last - 1`` of a family."""
    for i in range(first, last):
        seed = family + i * len(families)
        program, _ = random_program(seed, families)
        rng = Random(f"{seed} packets")
        options = {"values": False, "packet_words": rng.choice(PACKET_WORDS)}
        if families[family].jitter:
            limits = rng.choice((0, 3, 90)), rng.choice((0, 1, 5, 40))
            options["jitter"] = Jitter(rng.getrandbits(32), *limits)
        if (families, family) == WATCHED:
            options["watchdog_cycles"] = rng.choice((20, 200, 1_000_000))
        yield Oracle(program, **options), Machine(program, **options)


@each_family
def test_every_cycle(families, family):
    for oracle, machine in runs(families, family, 0, EVERY_CYCLE):
        agree(oracle, machine)
        while oracle.step():
            assert machine.step()
            agree(oracle, machine)
            assert oracle.now < MAX_CYCLES
        assert not machine.step()
        agree(oracle.finish(), machine.finish())


@each_family
def test_ends(families, family):
    for oracle, machine in runs(families, family, EVERY_CYCLE, EVERY_CYCLE + ENDS):
        agree(oracle.run(MAX_CYCLES), machine.run(MAX_CYCLES))


@pytest.mark.slow
@each_family
def test_many_ends(families, family):
    for oracle, machine in runs(families, family, 100, 500):
        agree(oracle.run(MAX_CYCLES), machine.run(MAX_CYCLES))
