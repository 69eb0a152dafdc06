"""Switches and control wavelets in the oracle, against timelines computed by hand.

All on the toy machine (see test_oracle.py): what is issued in cycle t leaves its router in t + 2.
"""

import numpy as np
import pytest
from oracle import Oracle
from test_oracle import timeline, toy

from wafer_jax.builder import ProgramBuilder
from wafer_jax.events import Kernel, Register
from wafer_jax.faults import Fault
from wafer_jax.hardware import RAMP, E, W

AT = (0, 0, 0)  # colour 0 at PE (0, 0)
TORN_DOWN = 4
NEGATE = Kernel(name="negate", fn=lambda a: -a)


def builder(width, **changes):
    b = ProgramBuilder(toy((1, width), **changes), "switches")
    return b, b.tile("x", (6,))


def start(b):
    program = b.build()
    x = np.arange(6, dtype=np.float32)[:, None, None] + 10 * np.arange(program.hw.mesh[1])
    return Oracle(program, {"x": x, "y": x[:1]})


def commanded(*commands, ring=False):
    """PE 0 has three positions and sends control wavelets; PE 1 would receive."""
    b, _ = builder(2)
    b.switch(0, 0, 0, (RAMP, E), (RAMP, [E, RAMP]), (RAMP, RAMP), ring=ring)
    b.route(0, 0, 1, W, RAMP)
    source = b.role("source", at=(0, 0)).thread()
    for command in commands:
        source.control(0, command)
    b.role("sink", at=(0, 1)).thread().signal(0)
    return start(b)


@pytest.mark.parametrize(
    ("ring", "positions", "neighbour"),
    [
        (False, [0, 0, 0, 1, 2, 2, 2], [0, 0, 0, 1, 1, 0, 0]),
        (True, [0, 0, 0, 1, 2, 0, 1], [0, 0, 0, 1, 1, 0, 1]),
    ],
)
def test_advance(ring, positions, neighbour):
    """A control wavelet leaves by the position from which it advances; the RAMP swallows it."""
    advances = ["advance"] * 4
    assert timeline(commanded(*advances, ring=ring), "position", AT, 7) == positions
    assert timeline(commanded(*advances, ring=ring), "router_total", (0, 0, 1), 7) == neighbour
    end = commanded(*advances, ring=ring).run().snapshot()
    assert not end["input_total"].any()
    assert not end["faults"].any()
    assert end["sent"].tolist() == [[[4, 0]]]


def test_the_other_commands():
    oracle = commanded("advance", "reset", "advance", "none", "reset", "tear down")
    assert timeline(oracle, "position", AT, 9) == [0, 0, 0, 1, 0, 1, 1, 0, TORN_DOWN]
    assert not oracle.run().snapshot()["faults"].any()
    end = oracle.snapshot()
    assert end["rx"][AT] == -1
    assert end["tx"][AT] == 0


def test_what_is_behind_a_tear_down_has_no_way_on():
    b, x = builder(2)
    b.switch(0, 0, 0, (RAMP, E), (RAMP, RAMP))
    b.route(0, 0, 1, W, RAMP)
    b.role("source", at=(0, 0)).thread().control(0, "tear down").send(0, x)
    end = start(b).run().snapshot()
    # words are issued in 1 and 2; from 3 on the sender waits as well
    assert end["sent"][AT] == 3
    assert end["router_total"][AT] == 2
    assert end["faults"].tolist() == [[Fault.UNROUTED | Fault.DEADLOCK, 0]]
    assert end["fault_cycle"].tolist() == [[3, -1]]


def test_words_that_are_left_behind_a_tear_down_are_undelivered():
    b, x = builder(2)
    b.switch(0, 0, 0, (RAMP, E), (RAMP, RAMP))
    b.route(0, 0, 1, W, RAMP)
    b.role("source", at=(0, 0)).thread().control(0, "tear down").send(0, x.slice(0, 2))
    assert start(b).run().snapshot()["faults"].tolist() == [[Fault.UNROUTED | Fault.UNDELIVERED, 0]]


def test_reconfigure_brings_back_what_was_torn_down():
    b, x = builder(2)
    y = b.tile("y", (1,))
    b.switch(0, 0, 0, (RAMP, E), (RAMP, RAMP))
    b.route(0, 0, 1, W, RAMP)
    source = b.role("source", at=(0, 0))
    source.thread(0).control(0, "tear down").send(0, x.slice(0, 2))
    source.thread(1).compute(NEGATE, [y], [y], 20).reconfigure(0)
    b.role("sink", at=(0, 1)).thread().receive(0, x.slice(0, 2))
    oracle = start(b)
    # control in 0, kernel in 1, first word in 2; reconfigured in 21; second word in 22
    assert oracle.run().cycles == 27
    assert oracle.snapshot()["fault_cycle"].tolist() == [[4, -1]]
    assert oracle.snapshot()["position"][AT] == 0


@pytest.mark.parametrize(("number", "position"), [(0, 0), (7, 1)])
def test_reconfigure_has_the_last_word(number, position):
    b, _ = builder(2)
    b.switch(0, 0, 0, (RAMP, E), (RAMP, RAMP))
    b.route(0, 0, 1, W, RAMP)
    register = Register(0)
    source = b.role("source", at=(0, 0)).thread().control(0, "advance")
    source.set(register, number).reconfigure(register)  # in 2, as the control wavelet leaves
    assert timeline(start(b), "position", AT, 4) == [0, 0, 0, position]


def test_every_switch_on_the_way_obeys_and_data_keep_their_place():
    b, x = builder(3)
    b.route(0, 0, 0, RAMP, E)
    b.switch(0, 0, 1, (W, [RAMP, E]), (W, E))
    b.switch(0, 0, 2, (W, RAMP), (W, RAMP), (W, RAMP))
    source = b.role("source", at=(0, 0)).thread()
    for i in range(3):
        source.send(0, x.slice(i, 1)).control(0, "advance")
    b.role("near", at=(0, 1)).thread().receive(0, x.slice(5, 1))
    b.role("far", at=(0, 2)).thread().receive(0, x.slice(3, 3))
    oracle = start(b).run()
    end = oracle.snapshot()
    assert end["position"].tolist() == [[[0, 1, 2]]]
    assert end["received"].tolist() == [[[0, 1, 3]]]
    assert oracle.tile("x")[5, 0, 1] == 0
    assert oracle.tile("x")[3:, 0, 2].tolist() == [0, 1, 2]
    assert not end["faults"].any()


def test_a_control_wavelet_ends_where_the_ramp_is_the_only_target():
    b, x = builder(3)
    b.route(0, 0, 0, RAMP, E)
    b.switch(0, 0, 1, (W, RAMP), (W, E))
    b.switch(0, 0, 2, (W, RAMP), (W, RAMP))
    b.role("source", at=(0, 0)).thread().send(0, x.slice(0, 2)).control(0, "advance").send(
        0, x.slice(2, 3)
    )
    b.role("near", at=(0, 1)).thread().receive(0, x.slice(0, 2))
    b.role("far", at=(0, 2)).thread().receive(0, x.slice(0, 3))
    end = start(b).run().snapshot()
    assert end["position"].tolist() == [[[0, 1, 0]]]
    assert end["received"].tolist() == [[[0, 2, 3]]]
    assert not end["faults"].any()


def test_a_full_input_queue_holds_up_no_control_wavelet():
    b, x = builder(2)
    b.route(0, 0, 0, RAMP, [RAMP, E])
    b.route(0, 0, 1, W, RAMP)
    b.role("source", at=(0, 0)).thread().send(0, x.slice(0, 3)).control(0, "reset").signal(0)
    b.role("sink", at=(0, 1)).thread().receive(0, x.slice(0, 3))
    end = start(b).run().snapshot()
    assert end["input_total"].tolist() == [[[3, 0]]]
    assert not end["router_total"].any()
    assert end["faults"].tolist() == [[Fault.UNDELIVERED, 0]]


def test_a_control_wavelet_occupies_the_ramp():
    b, x = builder(3)
    for color, source in ((0, 0), (1, 2)):
        b.path(color, (0, source), (0, 1))
    b.role("control", at=(0, 0)).thread().control(0, "none")
    b.role("data", at=(0, 2)).thread().send(1, x.slice(0, 1))
    b.role("sink", at=(0, 1)).thread().receive(1, x.slice(0, 1))
    # both arrive in 3; colour 0 is tried first, and the word is received in 5, not in 4
    assert timeline(start(b), "color_pointer", (0, 1), 5) == [0, 0, 0, 0, 1]
    assert start(b).run().cycles == 6


@pytest.mark.parametrize("changes", ["one side", "both sides"])
def test_a_switch_that_listens_to_one_source_after_the_other(changes):
    b, x = builder(3, switch_changes=changes)
    b.route(0, 0, 0, RAMP, E)
    b.route(0, 0, 2, RAMP, W)
    b.switch(0, 0, 1, (W, RAMP), (E, RAMP))
    b.role("first", at=(0, 0)).thread().send(0, x.slice(0, 2)).control(0, "advance")
    b.role("second", at=(0, 2)).thread().send(0, x.slice(0, 2))
    b.role("sink", at=(0, 1)).thread().receive(0, x.slice(0, 4))
    oracle = start(b).run()
    # the control wavelet leaves the middle in 5, so the second source's words cross in 6 and 7
    assert oracle.cycles == 10
    assert oracle.tile("x")[:4, 0, 1].tolist() == [0, 1, 20, 21]
    assert oracle.seen["listens_elsewhere"]
    assert not oracle.snapshot()["faults"].any()


def test_what_moves_in_a_cycle_moves_by_the_routes_at_its_start():
    """The middle's own word enters in the cycle in which its switch turns to a link."""
    b, x = builder(2)
    b.switch(0, 0, 0, (RAMP, E), (E, E))
    b.route(0, 0, 1, W, RAMP)
    b.role("source", at=(0, 0)).thread().control(0, "advance").signal(0).send(0, x.slice(0, 2))
    # issued in 2, as the control leaves: it takes the RAMP's 2 cycles; the second word waits
    assert timeline(start(b), "router_ready", AT, 5) == [0, 0, 1, 0, 1]
    end = start(b).run().snapshot()
    assert end["sent"][AT] == 2
    assert end["faults"].tolist() == [[Fault.DEADLOCK, 0]]


def test_a_control_wavelet_pays_the_set_up_of_a_stream():
    b, _ = builder(2, stream_setup_cycles=3)
    b.path(0, (0, 0), (0, 1))
    b.role("source", at=(0, 0)).thread().control(0, "none").control(0, "none")
    b.role("sink", at=(0, 1)).thread().wait(0)
    oracle = start(b).run()
    assert oracle.snapshot()["ready_at"][0, 0, 0] == 8  # issued in 3, and in 4 + 3
