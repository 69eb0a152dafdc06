"""Faults of routes that change, and of the watchdog: each bit alone, and what is said about it."""

import pytest
from machine import Machine
from oracle import Oracle

import wafer_jax as wj
from wafer_jax.faults import Fault
from wafer_jax.hardware import RAMP, E, W


@pytest.fixture(params=[Oracle, Machine])
def faults(request):
    """Runs a program without values; fault bits and cycles per PE."""

    def end(program, watchdog_cycles=0):
        snap = request.param(program, None, False, None, watchdog_cycles).run().snapshot()
        return snap["faults"].tolist(), snap["fault_cycle"].tolist()

    return end


def message(program, **options):
    with pytest.raises(wj.FaultError) as error:
        wj.run(program, values="none", **options).raise_on_fault()
    return str(error.value)


def stale_segment():
    """PE 1 changes over while a word of the old segment is on its way to it."""
    b = wj.ProgramBuilder(wj.hardware("toy", (1, 3)), "stale")
    x = b.tile("x", (1,))
    b.path(0, (0, 0), (0, 2))
    second = b.segment("second")
    second.route(0, 0, 0, RAMP, E)
    second.route(0, 0, 1, W, RAMP)
    b.role("source", at=(0, 0)).thread().send(0, x)
    b.role("middle", at=(0, 1)).thread().reconfigure(second).receive(0, x)
    return b.build()


def test_mixed_segment(faults):
    assert faults(stale_segment()) == ([[0, Fault.MIXED_SEGMENT, 0]], [[-1, 3, -1]])
    text = message(stale_segment())
    assert text.startswith("stale: mixed_segment at PE (y=0, x=1), cycle 3: a word of colour 0 ")
    assert "RECONFIGURE only after the last word" in text


def number_in_a_register(number):
    b = wj.ProgramBuilder(wj.hardware("toy", (1, 2)), "chosen")
    x = b.tile("x", (1,))
    b.path(0, (0, 0), (0, 1))
    second = b.segment("second")
    second.path(0, (0, 1), (0, 0))
    b.role("one", at=(0, 0)).thread().set(wj.Register(0), number).reconfigure(wj.Register(0))
    b.role("other", at=(0, 1)).thread().reconfigure(second).send(0, x)
    b._roles[0].thread().receive(0, x)
    return b.build()


def test_a_segment_in_a_register(faults):
    assert faults(number_in_a_register(1)) == ([[0, 0]], [[-1, -1]])


@pytest.mark.parametrize("number", [-1, 2, 2**31 - 1])
def test_no_such_segment(faults, number):
    # Nothing changed, so the other PE's word finds nobody who listens and is not received.
    bits, cycles = faults(number_in_a_register(number))
    assert bits[0][0] == Fault.NO_SUCH_SEGMENT | Fault.DEADLOCK
    assert cycles[0][0] == 1
    text = message(number_in_a_register(number))
    assert "no_such_segment at PE (y=0, x=0), cycle 1: thread 0, event 1: RECONF" in text


def test_no_such_segment_alone(faults):
    b = wj.ProgramBuilder(wj.hardware("toy", (1, 1)))
    b.role("one", at=(0, 0)).thread().set(wj.Register(0), 7).reconfigure(wj.Register(0))
    assert faults(b.build()) == ([[Fault.NO_SUCH_SEGMENT]], [[1]])


def half_alive():
    """PE 0 counts for long; PE 1 waits for a word that nobody sends."""
    b = wj.ProgramBuilder(wj.hardware("toy", (1, 3)), "half alive")
    x = b.tile("x", (1,))
    b.path(0, (0, 2), (0, 1))
    busy = b.role("busy", at=(0, 0)).thread()
    with busy.loop(500):
        busy.signal(0)
    b.role("waits", at=(0, 1)).thread().receive(0, x)
    return b.build()


def test_starved(faults):
    assert faults(half_alive(), 40) == ([[0, Fault.STARVED, 0]], [[-1, 40, -1]])
    assert faults(half_alive(), 5_000)[0] == [[0, Fault.DEADLOCK, 0]]
    text = message(half_alive(), watchdog_cycles=40)
    assert "starved at PE (y=0, x=1), cycle 40: thread 0, event 0: RECEIVE" in text
    assert "waits for a word that PE (y=0, x=2) never sends" in text


def test_a_starved_run_can_be_drawn():
    result = wj.run(half_alive(), values="none", watchdog_cycles=40)
    assert result.diagnosis.chain == ((0, 1),)
    assert wj.deadlock_sentence(result).startswith("Starved at cycle 41: PE (y=0, x=1) thread 0")
    assert "Starved" in " ".join(wj.plot_deadlock(result).get_title().split())


def test_a_watchdog_that_a_packet_would_wake():
    with pytest.raises(wj.WaferError, match="give at least 16"):
        wj.run(half_alive(), values="none", watchdog_cycles=9, packet_words=16)


def test_an_over_budget_program_names_a_pe():
    b = wj.ProgramBuilder(wj.hardware("toy", (2, 3)), "large")
    role = b.role("much", at=(1, 2))
    role.tile("t", (5_000,))
    with pytest.raises(wj.WaferError, match=r"role 'much' \(e.g. PE y=1, x=2\) needs 20000 bytes"):
        b.build()


def test_a_switch_that_the_machine_cannot_make():
    b = wj.ProgramBuilder(wj.hardware("wse2", (1, 3)), "both")
    b.switch(0, 0, 1, (W, RAMP), (RAMP, E))
    with pytest.raises(
        wj.WaferError, match=r"PE \(y=0, x=1\), colour 0: position 1 changes both.*segment of"
    ):
        b.build()
    b = wj.ProgramBuilder(wj.hardware("wse3", (1, 3)), "both")
    b.switch(0, 0, 1, (W, RAMP), (RAMP, E))
    b.build()
    with pytest.raises(wj.WaferError, match="with 5 positions"):
        b.switch(0, 0, 1, *[(W, RAMP)] * 5)
