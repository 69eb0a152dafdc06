"""Segments in the oracle, against timelines computed by hand (machine: see test_oracle.py)."""

import numpy as np
import pytest
from oracle import Oracle
from test_oracle import timeline, toy

from wafer_jax.builder import ProgramBuilder
from wafer_jax.events import Kernel, Register
from wafer_jax.faults import Fault
from wafer_jax.hardware import RAMP, E, W
from wafer_jax.program import NO_ROUTE

R0 = Register(0)
NEGATE = Kernel(name="negate", fn=lambda a: -a)
MIDDLE = (0, 0, 1)  # colour 0 at the middle of three PEs


def line_of_three(**changes):
    """PEs 0 and 2 receive from the middle, in both segments; nobody has a role yet."""
    b = ProgramBuilder(toy((1, 3), **changes), "three")
    x = b.tile("x", (4,))
    second = b.segment("second")
    for segment in (b, second):
        segment.route(0, 0, 0, E, RAMP)
        segment.route(0, 0, 2, W, RAMP)
    return b, second, x


def ones(program):
    return {"x": np.ones((*program.roles[0].tiles["x"].shape, *program.hw.mesh), np.float32)}


def start(b):
    program = b.build()
    return Oracle(program, ones(program))


def test_reconfigure_takes_effect_in_the_next_cycle():
    b, second, _ = line_of_three()
    second.route(0, 0, 1, W, E)
    b.role("middle", at=(0, 1)).thread().signal(0).reconfigure(second).reconfigure(0)
    assert timeline(start(b), "segment", (0, 1), 4) == [0, 0, 1, 0]
    assert timeline(start(b), "rx", MIDDLE, 4) == [NO_ROUTE, NO_ROUTE, W, NO_ROUTE]
    assert timeline(start(b), "tx", MIDDLE, 4) == [0, 0, 1 << E, 0]
    assert not start(b).run().snapshot()["faults"].any()


@pytest.mark.parametrize(("number", "segment"), [(0, 0), (1, 1)])
def test_a_register_names_the_segment(number, segment):
    b, second, _ = line_of_three()
    second.route(0, 0, 1, W, E)
    b.role("middle", at=(0, 1)).thread().set(R0, number).reconfigure(R0)
    end = start(b).run().snapshot()
    assert end["segment"].tolist() == [[0, segment, 0]]
    assert not end["faults"].any()


@pytest.mark.parametrize("number", [-1, 2, 2**31 - 1, -(2**31)])
def test_a_number_that_is_no_segment_changes_nothing(number):
    b, second, _ = line_of_three()
    second.route(0, 0, 1, W, E)
    middle = b.role("middle", at=(0, 1)).thread().reconfigure(second)
    middle.set(R0, number).reconfigure(R0).signal(0)
    end = start(b).run().snapshot()
    assert end["segment"].tolist() == [[0, 1, 0]]
    assert end["rx"][MIDDLE] == W
    assert end["faults"].tolist() == [[0, Fault.NO_SUCH_SEGMENT, 0]]
    assert end["fault_cycle"].tolist() == [[-1, 2, -1]]
    assert end["semaphores"][0, 0, 1] == 1


def test_a_sender_waits_until_its_router_listens_to_it():
    b, second, x = line_of_three()
    b.route(0, 0, 1, W, E)
    second.route(0, 0, 1, RAMP, E)
    middle = b.role("middle", at=(0, 1))
    middle.thread(0).send(0, x.slice(0, 1))
    middle.thread(1).signal(0).signal(0).reconfigure(second)
    b.role("sink", at=(0, 2)).thread().receive(0, x.slice(0, 1))
    # signals in 0 and 1, the change in 2, so the word is issued in 3, and received 4 cycles later
    assert timeline(start(b), "sent", MIDDLE, 5) == [0, 0, 0, 0, 1]
    oracle = start(b).run()
    assert oracle.cycles == 8
    assert not oracle.snapshot()["faults"].any()


def overtaken(first, then, **rings):
    """The middle sends a word and reconfigures while it is on the RAMP; it leaves in cycle 2."""
    b, second, x = line_of_three()
    for segment, routes in ((b, first), (second, then)):
        if len(routes) == 1:
            segment.route(0, 0, 1, *routes[0])
        else:
            segment.switch(0, 0, 1, *routes, ring=rings.get("ring", False) and segment is second)
    b.role("middle", at=(0, 1)).thread().send(0, x.slice(0, 1)).reconfigure(second)
    return start(b)


def test_a_word_leaves_by_the_current_route_even_if_it_was_sent_under_another():
    oracle = overtaken([(RAMP, W)], [(RAMP, E)])
    assert timeline(oracle, "router_total", (0, 0, 2), 5) == [0, 0, 0, 1, 0]
    end = oracle.run().snapshot()
    assert end["faults"].tolist() == [[0, Fault.MIXED_SEGMENT, Fault.UNDELIVERED]]
    assert end["fault_cycle"].tolist() == [[-1, 2, -1]]


@pytest.mark.parametrize(
    ("first", "then", "ring", "mixed"),
    [
        ([(RAMP, E)], [(RAMP, E)], False, False),
        ([(RAMP, E)], [(RAMP, [W, E])], False, True),
        ([(RAMP, E)], [(RAMP, E), (RAMP, E)], False, True),  # has become a switch
        ([(RAMP, E), (RAMP, W)], [(RAMP, E), (RAMP, W)], False, False),
        ([(RAMP, E), (RAMP, W)], [(RAMP, E), (RAMP, RAMP)], False, True),  # not where it is used
        ([(RAMP, E), (RAMP, W)], [(RAMP, E), (RAMP, W)], True, True),  # has become a ring
    ],
)
def test_what_are_other_routes(first, then, ring, mixed):
    faults = overtaken(first, then, ring=ring).run().snapshot()["faults"]
    assert bool(faults[0, 1] & Fault.MIXED_SEGMENT) == mixed


def test_a_word_knows_the_segment_of_its_sender_not_of_those_that_it_passes():
    b, second, x = line_of_three()
    third = b.segment("third")
    for segment in (b, second, third):
        segment.route(1, 0, 0, RAMP, E)
        segment.route(1, 0, 1, W, E if segment is not third else [E, RAMP])
        segment.route(1, 0, 2, W, RAMP)
    b.role("source", at=(0, 0)).thread().reconfigure(third).send(1, x)
    b.role("sink", at=(0, 2)).thread().receive(1, x)
    end = start(b).run().snapshot()
    # issued in 1, through the PE's own router in 3, which has the same routes in all segments
    assert end["faults"].tolist() == [[0, Fault.MIXED_SEGMENT, 0]]
    assert end["fault_cycle"].tolist() == [[-1, 4, -1]]


def test_a_word_with_a_shorter_way_is_ready_after_the_one_ahead_of_it():
    b, second, x = line_of_three(ramp_cycles=4)
    for segment, rx in ((b, RAMP), (second, W)):
        segment.route(1, 0, 0, RAMP, E)
        segment.route(1, 0, 1, rx, E)
        segment.route(1, 0, 2, W, RAMP)
    b.role("source", at=(0, 0)).thread().send(1, x.slice(0, 2))
    middle = b.role("middle", at=(0, 1)).thread().signal(0).signal(0)
    middle.send(1, x.slice(0, 1)).reconfigure(second)
    b.role("sink", at=(0, 2)).thread().receive(1, x.slice(0, 3))
    # The middle issues in 2, so that its word is ready in 7. Those of the source cross in 5 and 6,
    # after the change in 3; over the link they would be ready in 6 and 7.
    at = (1, 0, 1)
    assert timeline(start(b), "router_total", at, 11) == [0, 0, 0, 1, 1, 1, 2, 3, 2, 1, 0]
    assert timeline(start(b), "router_ready", at, 11) == [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0]
    assert start(b).run().snapshot()["received"][1, 0, 2] == 3


def test_a_fifo_that_shrinks_keeps_its_words_and_takes_none_until_it_has_room():
    b = ProgramBuilder(toy((1, 2), input_queue_depths=(4, 1)))
    x = b.tile("x", (9,))
    b.path(0, (0, 0), (0, 1))
    second = b.segment("second")
    second.path(0, (0, 0), (0, 1))
    b.role("source", at=(0, 0)).thread().send(0, x)
    sink = b.role("sink", at=(0, 1))
    sink.bind(0, input_queue=1, segment=second)
    with sink.thread().loop(6):
        sink.thread().signal(0)
    sink.thread().reconfigure(second).receive(0, x)
    # five words wait when the capacity becomes 2, in 13; in 17 one is left, and the next may enter
    oracle = start(b)
    totals = timeline(oracle, "input_total", (0, 0, 1), 22)
    assert totals == [0] * 4 + [1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 4, 3, 2, 1, 1, 1, 1, 1]
    assert oracle.run().cycles == 22
    assert not oracle.snapshot()["faults"].any()


def test_towards_a_pe_that_no_longer_listens_a_head_is_unrouted():
    b, _, x = line_of_three()
    b.route(0, 0, 1, RAMP, E)
    third = b.segment("third")
    third.route(0, 0, 1, RAMP, E)  # and nobody else
    b.role("middle", at=(0, 1)).thread().signal(0).send(0, x.slice(0, 1))
    b.role("sink", at=(0, 2)).thread().reconfigure(third).wait(0)
    end = start(b).run().snapshot()
    assert end["faults"].tolist() == [[0, Fault.UNROUTED, Fault.DEADLOCK]]
    assert end["fault_cycle"].tolist() == [[-1, 3, -1]]


def test_words_can_be_received_where_the_route_no_longer_leads():
    b, _, x = line_of_three()
    b.route(0, 0, 1, RAMP, E)
    third = b.segment("third")
    third.route(0, 0, 2, W, W)
    b.role("middle", at=(0, 1)).thread().send(0, x.slice(0, 1))
    sink = b.role("sink", at=(0, 2))
    sink.thread(0).wait(0).receive(0, x.slice(0, 1))
    sink.thread(1).signal(1).signal(1).signal(1).signal(1).reconfigure(third).signal(0)
    oracle = start(b).run()
    assert oracle.cycles == 8  # changed in 4, woken in 5, waited in 6, received in 7
    assert not oracle.snapshot()["faults"].any()


def lonely(watchdog_cycles, waits, other):
    """PE 0 waits for ever after some signals; ``other`` writes what PE 1 does."""
    b = ProgramBuilder(toy((1, 2)))
    x = b.tile("x", (1,))
    thread = b.role("waits", at=(0, 0)).thread()
    for _ in range(waits):
        thread.signal(1)
    thread.wait(0)
    other(b.role("lives", at=(0, 1)).thread(), x)
    program = b.build()
    return Oracle(program, ones(program), watchdog_cycles=watchdog_cycles)


def busy(thread, _):
    with thread.loop(50):
        thread.signal(0)


@pytest.mark.parametrize(("waits", "cycle"), [(0, 5), (3, 8)])
def test_a_watchdog_ends_the_run_of_a_starved_thread(waits, cycle):
    oracle = lonely(5, waits, busy).run()
    end = oracle.snapshot()
    assert oracle.starved
    assert not oracle.stuck
    assert oracle.cycles == oracle.now == cycle + 1
    assert end["faults"].tolist() == [[Fault.STARVED, 0]]
    assert end["fault_cycle"].tolist() == [[cycle, -1]]
    assert not oracle.step()
    assert oracle.now == cycle + 1


def test_without_a_watchdog_a_thread_starves_until_the_end():
    oracle = lonely(0, 0, busy).run()
    assert oracle.stuck
    assert oracle.snapshot()["faults"].tolist() == [[Fault.DEADLOCK, 0]]


def test_cycles_that_are_skipped_are_not_watched():
    oracle = lonely(5, 0, lambda thread, x: thread.compute(NEGATE, [x], [x], 50).signal(0)).run()
    assert oracle.snapshot()["fault_cycle"].tolist() == [[50, -1]]


def test_a_kernel_is_no_starvation():
    b = ProgramBuilder(toy((1, 2)))
    x = b.tile("x", (1,))
    b.role("kernel", at=(0, 0)).thread().compute(NEGATE, [x], [x], 50)
    busy(b.role("busy", at=(0, 1)).thread(), x)
    program = b.build()
    oracle = Oracle(program, ones(program), watchdog_cycles=5).run()
    assert not oracle.starved
    assert not oracle.snapshot()["faults"].any()


def test_a_thread_that_loses_the_slot_again_and_again_is_blocked():
    b = ProgramBuilder(toy((1, 1)))
    role = b.role("crowd", at=(0, 0))
    for t in range(4):
        role.thread(t).signal(0).signal(0)
    oracle = Oracle(b.build(), watchdog_cycles=3).run()
    # thread 3 issues in 3, thread 0 waits from 1 to 4: each is passed over for three cycles, 1 .. 3
    assert oracle.snapshot()["fault_cycle"].tolist() == [[-1]]
    oracle = Oracle(b.build(), watchdog_cycles=2).run()
    assert oracle.snapshot()["fault_cycle"].tolist() == [[2]]
