"""Packets in the oracle, against timelines computed by hand from docs/semantics.md, section 7.

All on the toy machine (see test_oracle.py): a word that is pushed in cycle t leaves its router in
t + 2, enters the neighbour's, and is in an input queue in t + 4.
"""

import numpy as np
import pytest
from oracle import Oracle
from oracle_jitter import event_stall
from random_families import DYNAMIC_FAMILIES, FAMILIES
from random_programs import random_program
from test_oracle import Patient, chain_reduce, pipe, timeline, toy

from wafer_jax.builder import ProgramBuilder
from wafer_jax.errors import WaferError
from wafer_jax.events import Kernel, Register
from wafer_jax.faults import Fault
from wafer_jax.hardware import RAMP, E, N, S, W
from wafer_jax.jitter import Jitter

R0 = Register(0)
FIRST = (0, 0, 0)  # colour, thread or semaphore 0 at PE (0, 0)


def start(program, packet_words, **options):
    return Oracle(program, values=False, packet_words=packet_words, **options)


def when(oracle, key, at):
    """The cycles in which a number of the state changed, of the whole run."""
    cycles, before, going = [], oracle.snapshot()[key][at], True
    while going:
        cycle = oracle.now
        going = oracle.step()
        after = oracle.snapshot()[key][at]
        cycles += [cycle] * int(after != before)
        before = after
    return cycles


def visited(oracle):
    cycles = [oracle.now]
    while oracle.step():
        cycles.append(oracle.now)
    return cycles


def builder(mesh, words, **changes):
    b = ProgramBuilder(toy(mesh, **changes), "packets")
    return b, b.tile("x", (words,))


def alone(words, **changes):
    """Colour 0 leads from the PE back to itself."""
    b, x = builder((1, 1), words, **changes)
    b.path(0, (0, 0), (0, 0))
    return b, x, b.role("one", at=(0, 0))


# ---- streams -------------------------------------------------------------------------------------


def test_a_short_last_packet_takes_as_long_as_a_full_one():
    program = pipe(8)
    assert when(start(program, 3), "sent", FIRST) == [0, 3, 6]
    assert when(start(program, 3), "received", (0, 0, 1)) == [4, 7, 10]
    end = start(program, 3).run().snapshot()
    assert end["ready_at"].tolist() == [[[9, 13]]]
    assert end["sent"].tolist() == [[[3, 0]]]
    assert end["received"].tolist() == [[[0, 3]]]


def test_a_packet_passes_a_router_while_its_tail_arrives():
    b, x = builder((1, 3), 16)
    b.path(0, (0, 0), (0, 2))
    b.role("source", at=(0, 0)).thread().send(0, x)
    b.role("sink", at=(0, 2)).thread().receive(0, x)
    oracle = start(b.build(), 16)
    assert timeline(oracle, "router_total", (0, 0, 1), 5) == [0, 0, 0, 1, 0]
    assert oracle.run().cycles == 5 + 16


def test_a_chain_of_three_pes_forwards_a_packet_while_its_tail_arrives():
    program = chain_reduce(3, 8, toy((1, 3)))
    assert when(start(program, 4), "sent", (0, 0, 2)) == [0, 4]
    assert when(start(program, 4), "sent", (1, 0, 1)) == [4, 8]
    assert when(start(program, 4), "received", (1, 0, 0)) == [8, 12]
    assert start(program, 4).run().cycles == 16


@pytest.mark.parametrize("pes", [2, 3, 5])
@pytest.mark.parametrize(("words", "packets"), [(1, 1), (4, 1), (9, 3), (12, 3)])
@pytest.mark.parametrize(("ramp", "setup"), [(1, 0), (2, 5)])
def test_chain_reduce(pes, words, packets, ramp, setup):
    hw = toy((1, pes), ramp_cycles=ramp, stream_setup_cycles=setup, router_depth=1)
    oracle = start(chain_reduce(pes, words, hw), 4).run()
    assert oracle.cycles == 4 * packets + (2 * ramp + 2) * (pes - 1) + setup


def test_capacities_count_packets():
    b, x = builder((1, 2), 80)
    b.path(0, (0, 0), (0, 1))
    b.role("source", at=(0, 0)).thread().send(0, x)
    b.role("sink", at=(0, 1)).thread().wait(0).receive(0, x)
    end = start(b.build(), 4).run().snapshot()
    assert end["router_total"].tolist() == [[[5, 3]]]
    assert end["input_total"].tolist() == [[[0, 3]]]
    assert end["sent"][FIRST] == 11


def test_a_length_from_a_register_is_in_words():
    for length, packets in ((7, 3), (6, 2), (1, 1), (0, 0), (-5, 0)):
        b, x, role = alone(8, stream_setup_cycles=2)
        role.thread().set(R0, length).send(0, x.slice(0, R0)).signal(0)
        oracle = start(b.build(), 3)
        assert timeline(oracle, "left", FIRST, 2) == [1, max(packets, 1)]
        # ready in 1 + 2; an empty one moves no packet, so it takes a cycle
        assert when(oracle, "semaphores", FIRST) == [3 + (3 * packets or 1)]
        assert oracle.snapshot()["sent"][FIRST] == packets


# ---- links ---------------------------------------------------------------------------------------


def test_a_head_that_waits_for_a_busy_link_is_no_loser():
    b, x = builder((1, 3), 4, input_queue_depths=(4, 4))
    b.path(0, (0, 0), (0, 2))
    b.path(1, (0, 1), (0, 2))
    b.role("far", at=(0, 0)).thread().send(0, x)
    b.role("near", at=(0, 1)).thread().send(1, x)
    b.role("sink", at=(0, 2)).thread().wait(0)
    program = b.build()
    # that of the nearer one is on the link in 2 .. 5; the other, there since 3, goes in 6
    assert when(start(program, 4), "router_total", (1, 0, 1)) == [0, 2]
    assert when(start(program, 4), "router_total", (0, 0, 1)) == [2, 6]
    assert when(start(program, 4), "color_pointer", (0, 1)) == []


def test_a_round_of_first_losers_takes_a_packet_each():
    """Three colours meet in the middle of 3x3 and want the link east; all arrive in 3."""
    b, x = builder((3, 3), 2, input_queue_depths=(4, 4, 4))
    for color, at, out, back in ((3, (0, 1), S, N), (5, (2, 1), N, S), (9, (1, 0), E, W)):
        b.route(color, *at, RAMP, out)
        b.route(color, 1, 1, back, E)
        b.route(color, 1, 2, W, RAMP)
        b.role(f"source {color}", at=at).thread().send(color, x)
    b.role("sink", at=(1, 2)).thread().wait(0)
    program = b.build()
    assert when(start(program, 2), "color_pointer", (1, 1)) == [3, 5]
    for c, leaves in enumerate((3, 5, 7)):
        assert when(start(program, 2), "router_total", (c, 1, 1)) == [2, leaves]


def test_a_packet_occupies_the_links_of_its_whole_multicast():
    """PE 1 passes colour 0 to its RAMP and east in 3 .. 6, so its own colour 1 goes east in 7."""
    b, x = builder((1, 3), 4)
    b.path(0, (0, 0), (0, 2))
    b.path(0, (0, 0), (0, 1))
    b.path(1, (0, 1), (0, 2))
    b.role("source", at=(0, 0)).thread().send(0, x)
    b.role("middle", at=(0, 1)).thread().signal(0).signal(0).send(1, x)
    b.role("sink", at=(0, 2)).thread().wait(0)
    assert when(start(b.build(), 4), "router_total", (1, 0, 1)) == [2, 7]


def meeting(first):
    """Colours 0 and 1 meet at PE 1 from both sides; both heads are ready there in 3."""
    b, x = builder((1, 3), 4)
    b.path(0, (0, 0), (0, 1))
    b.path(1, (0, 2), (0, 1))
    first(b.role("west", at=(0, 0)).thread(), x)
    b.role("east", at=(0, 2)).thread().send(1, x)
    middle = b.role("middle", at=(0, 1))
    middle.thread(0).receive(0, x)
    middle.thread(1).receive(1, x)
    return b.build()


def test_a_packet_occupies_the_ramp():
    program = meeting(lambda thread, x: thread.send(0, x))
    assert when(start(program, 4), "router_total", (0, 0, 1)) == [2, 3]
    assert when(start(program, 4), "router_total", (1, 0, 1)) == [2, 7]
    assert when(start(program, 4), "received", (0, 0, 1)) == [4]
    assert when(start(program, 4), "received", (1, 0, 1)) == [8]


def test_a_control_wavelet_occupies_the_ramp_that_swallows_it():
    program = meeting(lambda thread, x: thread.control(0, "none"))
    assert when(start(program, 4), "router_total", (0, 0, 1)) == [2, 3]
    assert when(start(program, 4), "router_total", (1, 0, 1)) == [2, 7]
    assert when(start(program, 4), "received", (0, 0, 1)) == []
    assert when(start(program, 4), "received", (1, 0, 1)) == [8]


def test_a_head_without_a_way_on_is_a_fault_while_its_link_is_busy():
    b, x = builder((1, 3), 4)
    b.path(0, (0, 1), (0, 2))
    b.route(1, 0, 0, RAMP, E)
    b.route(1, 0, 1, W, E)
    b.role("west", at=(0, 0)).thread().send(1, x)
    b.role("middle", at=(0, 1)).thread().send(0, x)
    b.role("east", at=(0, 2)).thread().wait(0)
    end = start(b.build(), 4).run().snapshot()
    assert end["fault_cycle"].tolist() == [[-1, 3, -1]]
    assert end["faults"][0, 1] & Fault.UNROUTED


# ---- the issue slot ------------------------------------------------------------------------------


def test_no_other_thread_issues_while_a_packet_has_the_slot():
    b, x, role = alone(10)
    role.thread(0).send(0, x)
    role.thread(1).signal(0).signal(0)
    program = b.build()
    assert when(start(program, 5), "sent", FIRST) == [0, 6]
    assert when(start(program, 5), "semaphores", FIRST) == [5, 11]
    assert when(start(program, 5), "thread_pointer", (0, 0)) == [0, 5, 6, 11]


def test_a_packet_that_is_popped_has_the_slot_too():
    b, x = builder((1, 2), 3)
    b.path(0, (0, 0), (0, 1))
    b.role("source", at=(0, 0)).thread().send(0, x)
    sink = b.role("sink", at=(0, 1))
    sink.thread(0).receive(0, x)
    with sink.thread(1).loop(3):
        sink.thread(1).signal(0)
    # loop and signal take turns in 0 .. 3; the packet has 4 .. 6
    assert when(start(b.build(), 3), "semaphores", (0, 0, 1)) == [0, 2, 7]


def test_a_kernel_runs_on_while_a_packet_has_the_slot():
    b, x, role = alone(4)
    role.thread(0).compute(Kernel(name="n", fn=lambda a: -a), [x], [x], cycles=6).signal(0)
    role.thread(1).send(0, x)
    program = b.build()
    assert when(start(program, 4), "sent", FIRST) == [1]
    assert when(start(program, 4), "semaphores", FIRST) == [6]


def test_a_control_wavelet_is_a_packet_of_its_own():
    b, _ = builder((1, 2), 1)
    b.path(0, (0, 0), (0, 1))
    source = b.role("source", at=(0, 0))
    source.thread(0).control(0, "none").control(0, "none").signal(0)
    b.role("sink", at=(0, 1)).thread().wait(0).receive(0, b.tile("y", (1,)))
    program = b.build()
    assert when(start(program, 5), "sent", FIRST) == [0, 5]
    assert when(start(program, 5), "semaphores", FIRST) == [10]


def test_the_event_after_a_packet_is_ready_when_it_is_over_plus_set_up():
    b, x, role = alone(2, stream_setup_cycles=3)
    role.thread().send(0, x).receive(0, x).signal(0)
    oracle = start(b.build(), 4)
    while not oracle.snapshot()["sent"][FIRST]:
        oracle.step()
    assert oracle.now == 4
    assert oracle.snapshot()["ready_at"][FIRST] == 3 + 4 + 3
    assert oracle.run().cycles == 15


def test_stalls_are_added_to_the_packet():
    b, x, role = alone(2)
    role.thread().send(0, x).signal(0).signal(0)
    jitter = Jitter(5, 0, 99)
    stalls = [event_stall(jitter, 0, 0, i) for i in range(3)]
    assert all(stalls)
    assert start(b.build(), 4, jitter=jitter).run().cycles == sum(stalls) + 4 + 2


# ---- skipping ------------------------------------------------------------------------------------


def test_a_busy_link_and_slot_are_pending():
    """The link is free in 2 + 4, the RAMP in 3 + 4, the receiver's slot in 4 + 4."""
    assert visited(start(pipe(4), 4)) == [0, 1, 2, 3, 4, 5, 6, 7, 8]


def test_cycles_in_which_links_and_slots_are_busy_are_skipped():
    assert visited(start(pipe(20), 20)) == [0, 1, 2, 3, 4, 5, 20, 22, 23, 24]


def test_a_run_is_not_stuck_while_a_slot_that_a_thread_needs_is_busy():
    b, x, role = alone(30)
    role.thread(0).send(0, x)
    role.thread(1).signal(0)
    assert when(start(b.build(), 30), "semaphores", FIRST) == [30]


@pytest.mark.parametrize("families", [FAMILIES, DYNAMIC_FAMILIES[:4]])
def test_skipping_idle_cycles_changes_nothing(families):
    for seed in range(2 * len(families)):
        program, _ = random_program(seed, families)
        packet_words = (2, 3, 5, 16)[seed % 4]
        skipped, patient = (
            o(program, values=False, packet_words=packet_words).run(20_000).snapshot()
            for o in (Oracle, Patient)
        )
        assert all(np.array_equal(skipped[key], patient[key]) for key in skipped), seed


# ---- one word ------------------------------------------------------------------------------------


def test_packets_of_one_word_are_words():
    for seed in range(len(FAMILIES)):
        program, _ = random_program(seed)
        plain, given = Oracle(program, values=False), start(program, 1)
        for oracle in (plain, given):
            oracle.run()
        assert plain.cycles == given.cycles
        one, other = plain.snapshot(), given.snapshot()
        assert all(np.array_equal(one[key], other[key]) for key in one), seed


def test_packets_are_refused_with_values():
    with pytest.raises(WaferError, match="packet_words=2"):
        Oracle(pipe(1), packet_words=2)
