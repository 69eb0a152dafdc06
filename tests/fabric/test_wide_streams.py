"""Wide streams share the issue slot: by hand, and `step` against the oracle in every cycle."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from oracle import Oracle
from random_families import DYNAMIC_FAMILIES, FAMILIES, REGISTER_FAMILIES
from random_programs import random_program
from test_against_oracle import _jitter, compare_every_cycle

import wafer_jax as wj
from wafer_jax.events import Forward, Receive, Send

GROUPS = {"": FAMILIES, "registers": REGISTER_FAMILIES, "dynamic": DYNAMIC_FAMILIES}
QUICK = (("", 3), ("registers", 1), ("dynamic", 2))


def widened(program, rng):
    """The program with two streams in three wide."""

    def widen(event):
        stream = isinstance(event, Send | Receive | Forward)
        return replace(event, wide=True) if stream and rng.random() < 0.67 else event

    roles = tuple(
        replace(role, threads=tuple(tuple(map(widen, events)) for events in role.threads))
        for role in program.roles
    )
    return replace(program, roles=roles)


def compare(group, family, seeds):
    families = GROUPS[group]
    for i in seeds:
        seed = family + i * len(families)
        program, tiles = random_program(seed, families)
        jitter = _jitter(Random(seed)) if families[family].jitter else None
        compare_every_cycle(widened(program, Random(seed)), tiles, jitter=jitter)


@pytest.mark.parametrize(("group", "family"), QUICK)
def test_random_programs_agree_in_every_cycle(group, family):
    compare(group, family, range(2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "family"), [(g, i) for g, families in GROUPS.items() for i in range(len(families))]
)
def test_forty_random_programs_agree_in_every_cycle(group, family):
    compare(group, family, range(1000, 1040))


def exchange(wide, words=16):
    """Two PEs that send to each other and receive, in two threads."""
    hw = wj.hardware("wse2", mesh=(1, 2))
    b = wj.ProgramBuilder(hw, "exchange")
    mine, theirs = b.tile("x", (words,)), b.tile("y", (words,))
    b.path(0, (0, 0), (0, 1))
    b.path(1, (0, 1), (0, 0))
    for x in (0, 1):
        role = b.role(f"pe {x}", at=(0, x))
        role.thread(0).send(x, mine, wide=wide)
        role.thread(1).receive(1 - x, theirs, wide=wide)
    return b.build(inputs=["x"], outputs=["y"])


def test_a_wide_exchange_runs_at_one_word_each_way_per_cycle():
    setup = wj.hardware("wse2").stream_setup_cycles
    cycles = {wide: Oracle(exchange(wide), values=False).run().cycles for wide in (False, True)}
    latency = 2 * 2 + 1 + 1  # ramps, issue, link
    assert cycles[True] == setup + latency + 16
    # Shared, the slot goes to the senders alone until the first words arrive, then in turns.
    assert cycles[False] == setup + 2 * 16


def test_values_of_a_wide_exchange():
    x = np.arange(32, dtype=np.float32).reshape(16, 1, 2)
    for wide in (False, True):
        result = wj.run(exchange(wide), x).raise_on_fault()
        assert (result.values == x[..., ::-1]).all()
    assert result.cycles == Oracle(exchange(True), values=False).run().cycles


def test_a_narrow_stream_takes_the_whole_slot():
    program = exchange(True)
    role = program.roles[0]
    (send,), receive = role.threads[0][:1], role.threads[1]
    mixed = replace(role, threads=((replace(send, wide=False), *role.threads[0][1:]), receive))
    oracle = Oracle(replace(program, roles=(mixed, *program.roles[1:])), values=False).run()
    assert oracle.seen["pair"] > 0  # the other PE's
    assert oracle.cycles > Oracle(program, values=False).run().cycles


def test_two_sends_share_the_ramp():
    hw = wj.hardware("wse2", mesh=(1, 3))
    b = wj.ProgramBuilder(hw, "two ways out")
    x = b.tile("x", (16,))
    b.path(0, (0, 1), (0, 0))
    b.path(1, (0, 1), (0, 2))
    middle = b.role("middle", at=(0, 1))
    for thread in (0, 1):
        middle.thread(thread).send(thread, x, wide=True)
        b.role(f"end {thread}", at=(0, 2 * thread)).thread().receive(thread, x)
    oracle = Oracle(b.build(inputs=["x"], outputs=["x"]), values=False).run()
    assert oracle.seen["two_pushes"] > 0
    assert oracle.cycles == hw.stream_setup_cycles + 2 * 16 + 2 * 2 + 1 + 1


def test_the_builder_wants_a_flag_and_a_listing_shows_it():
    with pytest.raises(wj.WaferError, match="wide is 2: give True or False"):
        exchange(2)
    assert "on colour 0, wide" in str(exchange(True).at(0, 0))
