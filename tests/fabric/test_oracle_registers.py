"""Registers, branches, max and min in the oracle, against cases computed by hand.

All on the toy machine (see test_oracle.py): one cycle per event, one per word of a stream.
"""

import numpy as np
import pytest
from oracle import Oracle
from oracle_state import ELEMENT, POISON
from test_oracle import timeline, toy

from wafer_jax.builder import ProgramBuilder
from wafer_jax.errors import WaferError
from wafer_jax.events import Branch, Kernel, Register
from wafer_jax.faults import Fault

R0, R1 = Register(0), Register(1)


def alone(words=8, **changes):
    """A builder for one PE, its role, and a tile; colour 0 leads from the PE back to itself."""
    b = ProgramBuilder(toy((1, 1), **changes), "alone")
    x = b.tile("x", (words,))
    b.path(0, (0, 0), (0, 0))
    return b, b.role("one", at=(0, 0)), x


def start(b, **tiles):
    return Oracle(b.build(), {k: np.array(v, np.float32)[:, None, None] for k, v in tiles.items()})


def test_a_loop_that_counts_down_in_a_register():
    b, role, _ = alone()
    thread = role.thread().set(R0, 3).add(R0, -1)
    thread.events.append(Branch(0, ">=", 1, 1))
    assert timeline(start(b), "pc", (0, 0, 0), 8) == [0, 1, 2, 1, 2, 1, 2, 3]
    assert timeline(start(b), "registers", (0, 0, 0), 8) == [0, 3, 2, 2, 1, 1, 0, 0]
    assert start(b).run().cycles == 7


@pytest.mark.parametrize(
    ("relation", "holds"), [("==", "010"), ("!=", "101"), ("<", "100"), (">=", "011")]
)
def test_relations(relation, holds):
    for value, expected in zip((-8, -7, -6), holds, strict=True):
        b, role, _ = alone()
        thread = role.thread().set(R0, value)
        with thread.when(R0, relation, -7):
            thread.signal(0)
        end = start(b).run()
        assert end.snapshot()["semaphores"][0, 0, 0] == int(expected)
        assert end.cycles == 2 + int(expected)


def test_registers_are_signed_and_wrap():
    b, role, _ = alone()
    role.thread().set(R1, 2**31 - 1).add(R1, 2).add(R1, -2)
    assert timeline(start(b), "registers", (1, 0, 0), 4) == [0, 2**31 - 1, 1 - 2**31, 2**31 - 1]


def test_the_state_has_as_many_registers_as_the_highest_one_in_use():
    b, role, _ = alone()
    role.thread().signal(0)
    assert start(b).snapshot()["registers"].shape == (0, 1, 1)
    role.thread().set(Register(31), 5)
    assert start(b).snapshot()["registers"].shape == (32, 1, 1)


def test_threads_share_registers():
    b, role, _ = alone()
    role.thread(0).set(R0, 4).add(R0, 1)
    role.thread(1).add(R0, 10).add(R0, 100)
    assert timeline(start(b), "registers", (0, 0, 0), 5) == [0, 4, 14, 15, 115]


# ---- lengths -------------------------------------------------------------------------------------


def test_the_length_is_read_when_the_stream_is_loaded():
    """Loaded in cycle 0, which set it to 2; what thread 1 does in 2 is too late for it."""
    b, role, x = alone(stream_setup_cycles=5)
    role.thread(0).set(R0, 2).send(0, x.slice(0, R0))
    role.thread(1).signal(0).set(R0, 7)
    assert timeline(start(b, x=range(8)), "registers", (0, 0, 0), 4) == [0, 2, 2, 7]
    oracle = start(b, x=range(8))
    assert timeline(oracle, "left", (0, 0, 0), 4) == [1, 2, 2, 2]
    end = oracle.run()
    assert end.snapshot()["sent"][0, 0, 0] == 2
    assert end.cycles == 8  # ready in 1 + 5


def test_a_stream_of_a_length_moves_a_word_per_cycle():
    b, role, x = alone()
    role.thread().set(R0, 3).send(0, x.slice(0, R0)).receive(0, x.slice(4, R0, stride=-1))
    oracle = start(b, x=range(8))
    assert timeline(oracle, "left", (0, 0, 0), 8) == [1, 3, 2, 1, 3, 2, 1, 0]
    assert oracle.run().tile("x")[:, 0, 0].tolist() == [0, 1, 2, 1, 0, 5, 6, 7]


@pytest.mark.parametrize("length", [0, -1, -(2**31)])
def test_an_empty_stream_takes_a_cycle_and_its_set_up_and_moves_nothing(length):
    b, role, x = alone(stream_setup_cycles=2)
    role.thread().set(R0, length).send(0, x.slice(0, R0)).receive(0, x.slice(0, R0))
    oracle = start(b)
    # set in 0; send loaded ready in 1 + 2; receive in 4 + 2, though no word comes
    assert timeline(oracle, "left", (0, 0, 0), 2) == [1, 1]
    end = oracle.run()
    assert end.cycles == 7
    assert not end.snapshot()["sent"].any()
    assert end.snapshot()["faults"].tolist() == [[0]]  # poison is not read either


def test_an_empty_stream_at_the_beginning_and_one_without_room():
    b = ProgramBuilder(toy((1, 2)))
    x = b.tile("x", (5,))
    b.path(0, (0, 1), (0, 1))
    b.route(1, 0, 1, 4, ())
    thread = b.role("one", at=(0, 1)).thread()
    thread.forward(0, 1, words=R0).send(1, x).forward(0, 1, x.slice(0, R0), "max")
    oracle = Oracle(b.build(), {"x": np.ones((5, 1, 2), np.float32)})
    # all registers are 0 at first, so that moves nothing; five words then fill the router's FIFO
    assert timeline(oracle, "router_total", (1, 0, 1), 8) == [0, 0, 1, 2, 3, 4, 5, 5]
    assert oracle.run().cycles == 7


# ---- branches and kernels ------------------------------------------------------------------------


def test_a_branch_reads_its_register_when_it_issues():
    b, role, x = alone()
    nothing = Kernel(name="nothing", fn=lambda a: a)
    thread = role.thread(0).compute(nothing, [x], [x], 5)
    with thread.when(R0, "==", 0):
        thread.signal(0)
    role.thread(1).set(R0, 1)  # in cycle 1; the branch was loaded in 0 and issues in 5
    end = start(b, x=range(8)).run()
    assert end.snapshot()["semaphores"][0, 0, 0] == 0
    assert end.cycles == 6


@pytest.mark.parametrize(("cycles", "finish"), [(9, 10), (1, 2), (0, 2), (-4, 2)])
def test_cycles_are_read_when_the_kernel_issues(cycles, finish):
    b, role, x = alone()
    role.thread(0).set(R0, cycles)
    role.thread(1).compute(Kernel(name="nothing", fn=lambda a: a), [x], [x], R0)  # in cycle 1
    assert start(b, x=range(8)).run().snapshot()["ready_at"][:, 0, 0].tolist() == [1, finish]


def count(a, floor):
    return (a > floor.astype("float32")).sum()


def test_a_kernel_writes_its_registers_when_it_issues():
    b, role, x = alone()
    role.thread(0).set(R0, 4).compute(
        Kernel(name="count", fn=count), [x, R0], [R1], 10
    ).send(0, x.slice(0, R1))  # fmt: skip
    oracle = start(b, x=range(8))
    assert timeline(oracle, "registers", (1, 0, 0), 3) == [0, 0, 3]
    assert oracle.snapshot()["left"][0, 0, 0] == 3
    assert oracle.snapshot()["ready_at"][0, 0, 0] == 11
    assert oracle.run().cycles == 14


def test_a_kernel_writes_tiles_and_registers_and_its_own_cycles_count_before_that():
    b, role, x = alone(2)
    both = Kernel(name="both", fn=lambda a, n: (n + 1, a + a, n - 8))
    role.thread().set(R0, 6).compute(both, [x, R0], [R1, x, R0], R0)
    end = start(b, x=[3, 5]).run()
    assert end.snapshot()["registers"][:, 0, 0].tolist() == [-2, 7]
    assert end.tile("x")[:, 0, 0].tolist() == [6, 10]
    assert end.cycles == 7


def test_registers_are_no_words_to_race_for():
    b, role, x = alone()
    role.thread(0).compute(Kernel(name="more", fn=lambda n: n + 1), [R0], [R0], 20)
    role.thread(1).send(0, x.slice(0, 3)).receive(0, x.slice(5, 3)).set(R0, 1)
    assert start(b, x=range(8)).run().snapshot()["faults"].tolist() == [[0]]


def test_kernels_that_write_registers_are_refused_without_values():
    b, role, x = alone()
    role.thread().compute(Kernel(name="count", fn=count), [x, R0], [x], R0)
    Oracle(b.build(), values=False).run()
    role.thread().compute(Kernel(name="count", fn=count), [x, R0], [R0], 1)
    with pytest.raises(WaferError, match="register"):
        Oracle(b.build(), values=False)


def test_a_length_that_travels_with_the_words():
    """PE 0 counts what it will send, says so in a word of its own, and PE 1 believes it."""
    b = ProgramBuilder(toy((1, 2)))
    x, n = b.tile("x", (6,)), b.tile("n", (1,))
    b.path(0, (0, 0), (0, 1))
    say = Kernel(name="say", fn=lambda r: r.astype("float32").reshape(1))
    hear = Kernel(name="hear", fn=lambda t: t[0].astype("int32"))
    source, sink = (b.role(n, at=(0, i)).thread() for i, n in enumerate(("source", "sink")))
    source.compute(Kernel(name="count", fn=count), [x, R1], [R0], 1).compute(say, [R0], [n], 1)
    source.send(0, n).send(0, x.slice(0, R0))
    sink.receive(0, n).compute(hear, [n], [R1], 1).receive(0, x.slice(0, R1), "add")
    x0 = np.array([[4, 10], [3, 20], [2, 30], [1, 40], [0, 50], [-1, 60]], np.float32)[:, None]
    end = Oracle(b.build(), {"x": x0}).run()
    assert end.tile("x")[:, 0, 1].tolist() == [14, 23, 32, 41, 50, 60]
    assert not end.snapshot()["faults"].any()


# ---- max and min ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", list(ELEMENT))
@pytest.mark.parametrize(("how", "expected"), [("max", [4, 2, 6]), ("min", [1, -5, 3])])
@pytest.mark.parametrize("end", ["receive", "forward"])
def test_max_and_min(dtype, how, expected, end):
    b = ProgramBuilder(toy((1, 2)))
    x, y = (b.tile(n, (3,), dtype) for n in "xy")
    b.path(0, (0, 0), (0, 1))
    b.path(1, (0, 1), (0, 1))
    b.role("source", at=(0, 0)).thread().send(0, x)
    sink = b.role("sink", at=(0, 1)).thread()
    if end == "receive":
        sink.receive(0, y, how)
    else:
        sink.forward(0, 1, y, how).receive(1, y)
    x0, y0 = (np.array(v, ELEMENT[dtype]).reshape(3, 1, 1) for v in ([1, 2, 3], [4, -5, 6]))
    both = {"x": x0.repeat(2, axis=2), "y": y0.repeat(2, axis=2)}
    assert Oracle(b.build(), both).run().tile("y")[:, 0, 1].tolist() == expected


@pytest.mark.parametrize("how", ["max", "min"])
@pytest.mark.parametrize("poisoned", ["x", "y"])
def test_max_and_min_with_a_nan_give_nan(how, poisoned):
    b, role, _ = alone(1)
    y = b.tile("y", (2,), "float16")
    x = b.tile("z", (2,), "float16")
    role.thread().send(0, x).receive(0, y, how)
    values = {"z": np.array([1, 2]), "y": np.array([3, 4])}
    values["z" if poisoned == "x" else "y"] = np.array([np.nan, 9])
    end = Oracle(b.build(), {k: v[:, None, None].astype(np.float16) for k, v in values.items()})
    first, second = end.run().tile("y")[:, 0, 0].tolist()
    assert np.isnan(first)
    assert second == getattr(np, how + "imum")(values["z"][1], values["y"][1])


def test_a_maximum_with_unwritten_memory_is_a_fault():
    b, role, x = alone(1)
    y = b.tile("y", (1,))
    role.thread().send(0, x).receive(0, y, "max")
    end = start(b, x=[1]).run()
    assert end.snapshot()["faults"].tolist() == [[Fault.UNWRITTEN_READ]]
    assert end.snapshot()["sram"][y.offset, 0, 0] in (POISON, POISON | 1 << 22)
