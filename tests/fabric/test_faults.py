"""Every fault bit by a program that triggers exactly it, in the oracle and in `step`."""

import numpy as np
import pytest
from machine import Machine
from oracle import Oracle
from oracle_state import POISON

from wafer_jax.builder import ProgramBuilder
from wafer_jax.events import Kernel, Register
from wafer_jax.faults import Fault
from wafer_jax.hardware import RAMP, E, S, W, hardware
from wafer_jax.program import NO_ROUTE


@pytest.fixture(params=[Oracle, Machine])
def run(request):
    """Runs (program, tiles) to its end and returns the snapshot."""

    def end(program, tiles, values=True):
        return request.param(program, tiles, values).run().snapshot()

    return end


def check(end, faults, fault_cycle):
    assert end["faults"].tolist() == faults
    assert end["fault_cycle"].tolist() == fault_cycle


def line(words=2, pes=2):
    """A builder with PE 0 sending tile ``x`` on colour 0, and the tile; routes are left open."""
    b = ProgramBuilder(hardware("toy", (1, pes)))
    x = b.tile("x", (words,))
    b.role("source", at=(0, 0)).thread().send(0, x)
    return b, x


def ones(program, *names):
    """Ones for the named tiles."""
    tile = {name: t for role in program.roles for name, t in role.tiles.items()}
    return {name: np.ones((*tile[name].shape, *program.hw.mesh), np.float32) for name in names}


def test_a_clean_run_has_no_fault(run):
    b, x = line()
    b.path(0, (0, 0), (0, 1))
    b.role("sink", at=(0, 1)).thread().receive(0, x)
    program = b.build()
    check(run(program, ones(program, "x")), [[0, 0]], [[-1, -1]])


# ---- unrouted: nothing waits for the words but the routers, so the threads have all halted -----


def _stray(*routes):
    b, _ = line(words=1)
    for (y, x), rx, tx in routes:
        b.route(0, y, x, rx, tx)
    return b.build()


@pytest.mark.parametrize(
    ("program", "where", "cycle"),
    [
        (lambda: _stray(((0, 0), RAMP, S)), 0, 2),  # off the mesh
        (lambda: _stray(((0, 0), RAMP, E)), 0, 2),  # the neighbour listens nowhere
        (lambda: _stray(((0, 0), RAMP, ())), 0, 2),  # no way on at the source
        (lambda: _stray(((0, 0), RAMP, E), ((0, 1), W, ())), 1, 3),  # nor behind a link
        (lambda: _stray(((0, 0), RAMP, (RAMP, E)), ((0, 1), NO_ROUTE, RAMP)), 0, 2),
    ],
    ids=["off the mesh", "listens nowhere", "empty at source", "empty at end", "half a multicast"],
)
def test_unrouted(run, program, where, cycle):
    program = program()
    end = run(program, ones(program, "x"))
    # A word that cannot leave is left over as well: that bit comes at the end, the cycle is first.
    faults, cycles = [[0, 0]], [[-1, -1]]
    faults[0][where], cycles[0][where] = Fault.UNROUTED | Fault.UNDELIVERED, cycle
    check(end, faults, cycles)
    assert end["now"] == cycle
    assert end["input_total"].sum() == 0


def test_a_neighbour_that_listens_elsewhere_is_not_unrouted(run):
    b, _ = line(words=1)
    b.route(0, 0, 0, RAMP, E)
    b.route(0, 0, 1, E, RAMP)
    program = b.build()
    check(run(program, ones(program, "x")), [[Fault.UNDELIVERED, 0]], [[-1, -1]])


# ---- unwritten reads ---------------------------------------------------------------------------


def test_unwritten_send(run):
    b, x = line()
    b.path(0, (0, 0), (0, 1))
    b.role("sink", at=(0, 1)).thread().receive(0, x)
    program = b.build()
    check(run(program, {}), [[Fault.UNWRITTEN_READ, 0]], [[0, -1]])
    check(run(program, {}, values=False), [[0, 0]], [[-1, -1]])


@pytest.mark.parametrize("what", ["receive", "forward"])
def test_unwritten_operand_of_an_add(run, what):
    b, x = line(words=1)
    u = b.tile("u", (1,))
    b.path(0, (0, 0), (0, 1))
    sink = b.role("sink", at=(0, 1))
    if what == "receive":
        sink.thread().receive(0, u, "add")
    else:
        b.path(1, (0, 1), (0, 1))
        sink.thread().forward(0, 1, u).receive(1, x)
    program = b.build()
    check(run(program, ones(program, "x")), [[0, Fault.UNWRITTEN_READ]], [[-1, 4]])


def negate(a):
    return -a


def test_unwritten_kernel_input(run):
    b = ProgramBuilder(hardware("toy", (1, 2)))
    x, u = b.tile("x", (2,)), b.tile("u", (2,))
    b.role("one", at=(0, 1)).thread().signal(0).compute(
        Kernel(name="negate", fn=negate), [u], [x], 3
    )
    program = b.build()
    check(run(program, ones(program, "x")), [[0, Fault.UNWRITTEN_READ]], [[-1, 1]])


# ---- streams that leave the two words of SRAM: the third of three words, of a length in r0 ------


def _too_long(how):
    """PE 1 sends the two words of x from cycle 0 on and one more; PE 0 gets them from 4 on."""
    b, r0 = ProgramBuilder(hardware("toy", (1, 2))), Register(0)
    x = b.tile("x", (2,))
    b.path(0, (0, 1), (0, 0))
    b.path(1, (0, 0), (0, 0))
    source, sink = (b.role(n, at=(0, i)).thread() for i, n in ((1, "source"), (0, "sink")))
    long = x.slice(1, r0, stride=-1) if how == "send below" else x.slice(0, r0)
    match how:
        case "send" | "send below":
            source.set(r0, 3).send(0, long)
            sink.receive(0, x).receive(0, x.slice(1, 1))
        case "forward":
            source.send(0, x).send(0, x.slice(1, 1))
            sink.set(r0, 3).forward(0, 1, long, "max").receive(1, x).receive(1, x.slice(1, 1))
        case _:
            source.send(0, x).send(0, x.slice(1, 1))
            sink.set(r0, 3).receive(0, long, how)
    return b.build()


@pytest.mark.parametrize(
    ("how", "where", "cycle", "last"),
    [
        ("send", 1, 3, "poison"),
        ("send below", 1, 3, "poison"),
        ("copy", 0, 6, 1.0),
        ("add", 0, 6, 2.0),
        ("min", 0, 6, 1.0),
        ("forward", 0, 6, "nan"),
    ],
)
def test_sram_out_of_bounds(run, how, where, cycle, last):
    """What lies outside reads as poison, which is no unwritten read, and is not written."""
    program = _too_long(how)
    end = run(program, ones(program, "x"))
    faults, cycles = [[0, 0]], [[-1, -1]]
    faults[0][where], cycles[0][where] = Fault.SRAM_OUT_OF_BOUNDS, cycle
    check(end, faults, cycles)
    word = end["sram"][1:2, 0, 0]
    if last == "poison":
        assert word[0] == POISON
    else:
        np.testing.assert_equal(word.view(np.float32)[0], np.nan if last == "nan" else last)
    check(run(program, {}, values=False), [[0, 0]], [[-1, -1]])


# ---- kernel races: a kernel runs in cycles 0 .. 7, thread 1 streams in the middle of it ----------


def _race(touch, cycles=8):
    """x -> y in thread 0; thread 1 receives a word of PE 0 in cycle 4, or sends one in cycle 1."""
    b = ProgramBuilder(hardware("toy", (1, 2)))
    x, y, z = (b.tile(n, (2,)) for n in "xyz")
    b.path(0, (0, 0), (0, 1))
    b.path(1, (0, 1), (0, 0))
    other = b.role("other", at=(0, 0))
    role = b.role("race", at=(0, 1))
    role.thread(0).compute(Kernel(name="negate", fn=negate), [x], [y], cycles)
    tile = {"x": x, "y": y, "z": z}[touch[-1]]
    word = tile.slice(1, 1)
    if touch.startswith("send"):
        other.thread().receive(1, z.slice(1, 1))
        role.thread(1).send(1, word)
    else:
        other.thread().send(0, x.slice(0, 1))
        role.thread(1).receive(0, word, "add" if touch.startswith("add") else "copy")
    return b.build()


@pytest.mark.parametrize(
    ("touch", "cycle"),
    [("receive x", 4), ("receive y", 4), ("add x", 4), ("add y", 4), ("send y", 1)],
)
def test_kernel_race(run, touch, cycle):
    program = _race(touch)
    end = run(program, ones(program, "x", "y", "z"))
    check(end, [[0, Fault.KERNEL_RACE]], [[-1, cycle]])


def test_without_values_there_is_nothing_to_race_for(run):
    check(run(_race("receive y"), {}, values=False), [[0, 0]], [[-1, -1]])


@pytest.mark.parametrize("touch", ["receive z", "add z", "send x", "send z"])
def test_no_race_on_other_words_nor_on_reads_of_inputs(run, touch):
    program = _race(touch)
    check(run(program, ones(program, "x", "y", "z")), [[0, 0]], [[-1, -1]])


@pytest.mark.parametrize(("cycles", "races"), [(4, False), (5, True)])
def test_a_race_ends_with_the_kernel(run, cycles, races):
    """Issued in 0: its last cycle is ``cycles - 1``, and the word is received in 4."""
    program = _race("receive y", cycles)
    end = run(program, ones(program, "x", "y", "z"))
    check(end, [[0, Fault.KERNEL_RACE * races]], [[-1, 4 if races else -1]])


# ---- the bits of the end, which happen in no cycle ------------------------------------------


def test_undelivered_in_the_input_queue(run):
    b, x = line(words=2)
    b.path(0, (0, 0), (0, 1))
    b.role("sink", at=(0, 1)).thread().receive(0, x.slice(0, 1))
    program = b.build()
    end = run(program, ones(program, "x"))
    check(end, [[0, Fault.UNDELIVERED]], [[-1, -1]])
    assert end["halted"].all()


def test_undelivered_to_an_idle_pe_fills_its_ramp(run):
    """A PE without a role has no input queue: only the words in its ramp have a place."""
    b, _ = line(words=3)
    b.path(0, (0, 0), (0, 1))
    program = b.build()
    end = run(program, ones(program, "x"))
    assert end["input_total"].tolist() == [[[0, 1]]]
    assert end["router_total"].tolist() == [[[0, 2]]]
    assert end["faults"].tolist() == [[0, Fault.UNDELIVERED]]


def test_deadlock_of_a_lone_wait(run):
    b = ProgramBuilder(hardware("toy", (1, 2)))
    b.role("waits", at=(0, 1)).thread().wait(0)
    check(run(b.build(), {}), [[0, Fault.DEADLOCK]], [[-1, -1]])


def test_deadlock_of_two_that_wait_for_each_other(run):
    b = ProgramBuilder(hardware("toy", (1, 3)))
    x = b.tile("x", (1,))
    b.path(0, (0, 0), (0, 1))
    b.path(1, (0, 1), (0, 0))
    b.role("left", at=(0, 0)).thread().receive(1, x).send(0, x)
    b.role("right", at=(0, 1)).thread().receive(0, x).send(1, x)
    program = b.build()
    end = run(program, ones(program, "x"))
    check(end, [[Fault.DEADLOCK, Fault.DEADLOCK, 0]], [[-1, -1, -1]])


def test_words_left_over_in_a_deadlock_are_not_undelivered(run):
    b, x = line(words=2)
    b.path(0, (0, 0), (0, 1))
    b.role("sink", at=(0, 1)).thread().receive(0, x.slice(0, 1)).wait(0)
    program = b.build()
    end = run(program, ones(program, "x"))
    check(end, [[0, Fault.DEADLOCK]], [[-1, -1]])


def test_the_first_fault_keeps_its_cycle(run):
    b, x = line(words=1)
    b.path(0, (0, 0), (0, 1))
    b.role("sink", at=(0, 1)).thread().receive(0, x, "add").wait(0)
    program = b.build()
    check(
        run(program, {}),
        [[Fault.UNWRITTEN_READ, Fault.UNWRITTEN_READ | Fault.DEADLOCK]],
        [[0, 4]],
    )


@pytest.mark.parametrize(
    "run",
    [Oracle, Machine],
    indirect=True,
)
def test_two_kinds_of_fault_on_one_pe(run):
    """Thread 1 sends poison in cycle 0; the word leaves the ramp in 2, and the mesh at once."""
    b = ProgramBuilder(hardware("toy", (1, 1)))
    x = b.tile("x", (1,))
    b.route(0, 0, 0, RAMP, S)
    role = b.role("one", at=(0, 0))
    role.thread(0).wait(0)
    role.thread(1).send(0, x).signal(0)
    both = Fault.UNWRITTEN_READ | Fault.UNROUTED | Fault.UNDELIVERED
    check(run(b.build(), {}), [[both]], [[0]])
