"""`step` and the oracle on the same random programs, run in packets of several words.

Where the ends of a stream are cut differently (12 words sent at once, but received as 5 and 7),
they may differ in their number of packets, and threads wait for ever. So half of the programs are
stretched: they have as many packets as they had words.
"""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from machine import Machine
from oracle import Oracle
from random_families import DYNAMIC_FAMILIES, FAMILIES, REGISTER_FAMILIES
from random_programs import random_program
from test_against_oracle import agree
from test_oracle import chain_reduce, toy

from wafer_jax.events import Event, Forward, Receive, Send
from wafer_jax.jitter import Jitter
from wafer_jax.program import Program

MAX_CYCLES = 20_000
EVERY_CYCLE, ENDS = 2, 20
"""Seeds per family that are compared in every cycle, and at the end alone."""
PACKET_WORDS = (2, 3, 5, 16)
WATCHED = (DYNAMIC_FAMILIES, 0)

each_family = pytest.mark.parametrize(
    ("families", "family"),
    [
        pytest.param(FAMILIES, 7, id="static"),
        pytest.param(REGISTER_FAMILIES, 4, id="registers"),
        pytest.param(DYNAMIC_FAMILIES, 0, id="segments"),
        pytest.param(DYNAMIC_FAMILIES, 1, id="switches"),
    ],
)


def stretched(program: Program, packet_words: int, rng: Random) -> Program:
    """With as many packets as there were words; the last packet of a stream may be short."""

    def longer(words):
        return words * packet_words - rng.randrange(packet_words) if type(words) is int else words

    def stretch(event: Event) -> Event:
        match event:
            case Send(slice=piece) | Receive(slice=piece):
                return replace(event, slice=replace(piece, words=longer(piece.words)))
            case Forward(words=words):
                return replace(event, words=longer(words))
        return event

    roles = [
        replace(role, threads=tuple(tuple(map(stretch, thread)) for thread in role.threads))
        for role in program.roles
    ]
    return replace(program, roles=tuple(roles))


def runs(families, family, first, last):
    """The oracle and the machine on seeds number ``first .. last - 1`` of a family."""
    for i in range(first, last):
        seed = family + i * len(families)
        program, _ = random_program(seed, families)
        rng = Random(f"{seed} packets")
        options = {"values": False, "packet_words": rng.choice(PACKET_WORDS)}
        if i % 2:
            program = stretched(program, options["packet_words"], rng)
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


def test_packets_of_one_word_are_words():
    program = chain_reduce(3, 8, toy((1, 3)))
    plain, given = Machine(program, values=False), Machine(program, values=False, packet_words=1)
    ends = [machine.run().snapshot() for machine in (plain, given)]
    assert all(np.array_equal(ends[0][key], ends[1][key]) for key in ends[0])
    agree(Oracle(program, values=False).run(), given)


@each_family
def test_a_family_shares_one_compiled_step(families, family):
    specs = {machine.spec for _, machine in runs(families, family, 0, 6)}
    assert len(specs) == 1


@pytest.mark.slow
@each_family
def test_many_ends(families, family):
    for oracle, machine in runs(families, family, 100, 500):
        agree(oracle.run(MAX_CYCLES), machine.run(MAX_CYCLES))
