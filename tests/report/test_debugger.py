"""Breakpoints and watches against stepping cycle by cycle."""

from itertools import pairwise

import numpy as np
import pytest
from random_families import FAMILIES
from random_programs import random_program

import wafer_jax as wj
from wafer_jax.errors import WaferError
from wafer_jax.events import Halt

from .stepping import Stepping

FAMILY = 3
SEEDS = [FAMILY + len(FAMILIES) * k for k in range(4)]


@pytest.fixture(scope="module", params=SEEDS)
def case(request):
    program, _ = random_program(request.param)
    jitter = wj.Jitter(request.param, 9, 5)
    return program, jitter, Stepping(program, jitter)


def debugger(case):
    program, jitter, _ = case
    return wj.Debugger(program, values="none", jitter=jitter)


def stops(case, condition):
    """Cycles reached by steps (before, after) for which a condition holds."""
    snaps = case[2].snapshots
    return [b["now"] for a, b in pairwise(snaps) if condition(a, b)]


def visit(dbg, limit=10_000):
    """Cycles at which a debugger stops until the run ends."""
    out = []
    while not bool(dbg.run().state.stuck):
        out.append(dbg.now)
        assert len(out) < limit
    return out


def test_steps_and_cycles(case):
    dbg, snaps = debugger(case), case[2].snapshots
    assert dbg.step().now == snaps[1]["now"]
    assert dbg.step(7).now == snaps[8]["now"]
    middle = snaps[len(snaps) // 2]["now"]
    assert dbg.run_to(middle).now == middle
    assert "stopped as asked" in repr(dbg)
    dbg.run()
    for key, value in snaps[-1].items():
        assert np.array_equal(dbg.snapshot[key], value), key
    assert ("deadlock" in dbg.stopped) == bool(dbg.result.diagnosis.waiting)
    assert dbg.step().now == snaps[-1]["now"]


def test_events(case):
    program, (height, width) = case[0], case[0].hw.mesh
    for y, x in np.ndindex(height, width):
        for t, events in enumerate(program.role_at(y, x).threads):
            e = next((i for i, v in enumerate(events) if i and not isinstance(v, Halt)), None)
            if e is None:
                continue
            dbg = debugger(case)
            dbg.break_at_event(y, x, t, e)

            def comes(a, b, t=t, y=y, x=x, e=e):
                moved = a["ready_at"][t, y, x] != b["ready_at"][t, y, x]
                return moved and b["pc"][t, y, x] == e

            assert visit(dbg) == stops(case, comes)
            assert len(dbg.breakpoints) == 1


def test_words(case):
    program, _, stepping = case
    for c, color in enumerate(program.colors):
        for pe in ((), (0, 1), (1, 2)):
            here = (c, *(pe or (slice(None), slice(None))))

            def leaves(a, b, here=here):
                return (stepping.passed(b) - stepping.passed(a))[here].any()

            def received(a, b, here=here):
                return (b["received"] - a["received"])[here].any()

            for name, condition in (("word", leaves), ("receive", received)):
                dbg, first = debugger(case), stops(case, condition)[:1]
                getattr(dbg, f"break_at_{name}")(color, *pe)
                assert visit(dbg) == first
                assert len(dbg.breakpoints) == 1 - len(first)


def test_faults(case):
    dbg = debugger(case)
    dbg.break_at_fault()
    assert visit(dbg) == stops(case, lambda a, b: (a["faults"] != b["faults"]).any())


def test_watched_queues(case):
    program, _, stepping = case
    color = program.colors[0]
    dbg = debugger(case)
    dbg.watch(1, 1, color)
    dbg.run()
    seen = dbg.watched.set_index("cycle")
    fills = [[s["router_total"][0, 1, 1], s["input_total"][0, 1, 1]] for s in stepping.snapshots]
    changed = [0] + [i for i in range(1, len(fills)) if fills[i] != fills[i - 1]]
    assert list(seen.index) == [stepping.snapshots[i]["now"] for i in changed]
    assert seen.to_numpy().tolist() == [fills[i] for i in changed]


def counting(hw=None):
    """One PE counts up in a register and in a float16 tile; the other receives a word."""
    b = wj.ProgramBuilder(hw or wj.hardware("toy", mesh=(1, 2)), "counting")
    x, h, r = b.tile("x", (2,)), b.tile("h", (3,), "float16"), wj.Register(1)
    b.path(4, (0, 0), (0, 1))
    kernel = wj.Kernel(name="increment", fn=lambda h: h + h.dtype.type(1))
    t = b.role("source", at=(0, 0)).thread()
    with t.loop(3):
        t.add(r, 2).compute(kernel, [h], [h], 5)
    t.send(4, x)
    b.role("sink", at=(0, 1)).thread().receive(4, x)
    tiles = {"x": np.arange(4.0, dtype=np.float32).reshape(2, 1, 2), "h": np.zeros((3, 1, 2))}
    return b.build(inputs=["x", "h"], outputs=["x"]), tiles


def test_registers_and_tiles():
    dbg = wj.Debugger(*counting())
    dbg.watch(0, 0, wj.Register(1))
    dbg.watch(0, 0, "h", slice(1, 3))
    dbg.break_at_register(0, 0, wj.Register(1), ">=", 4)
    assert dbg.run().snapshot["registers"][1, 0, 0] == 4
    assert "r1 >= 4" in dbg.stopped
    # A condition that goes on holding is met no second time.
    assert bool(dbg.run().state.stuck)
    table = dbg.watched
    assert list(table.columns) == ["cycle", "r1 (0, 0)", "h[1] (0, 0)", "h[2] (0, 0)"]
    values = table.to_numpy()[:, 1:].tolist()
    assert values == [[0, 0, 0], [2, 0, 0], [2, 1, 1], [4, 1, 1], [4, 2, 2], [6, 2, 2], [6, 3, 3]]


def test_values_and_registers_are_those_of_run():
    expected = wj.run(*counting()).snapshot
    for run in (wj.Debugger(*counting()).run(), wj.record(*counting()).result):
        for key, value in expected.items():
            assert np.array_equal(run.snapshot[key], value), key


def test_where_says_why():
    dbg = wj.Debugger(*counting())
    dbg.step()
    assert "asks for the issue slot" in dbg.where(0, 0)
    assert "waits for a word from PE (y=0, x=0)" in dbg.where(0, 1)
    dbg.step()
    assert "may issue from cycle 6 on" in dbg.where(0, 0)
    dbg.run()
    assert dbg.where(0, 1).splitlines()[1] == "  thread 0 has halted"


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda d: d.break_at_event(0, 0, 1, 0), "no event 0 in thread 1"),
        (lambda d: d.break_at_event(0, 5, 0, 0), "not on the 1x2 mesh"),
        (lambda d: d.break_at_word(5), "no colour 5, only 4"),
        (lambda d: d.break_at_word(4, y=0), "both y and x"),
        (lambda d: d.break_at_register(0, 0, wj.Register(9), "==", 0), "register 9"),
        (lambda d: d.break_at_register(0, 0, wj.Register(1), "=", 0), "relation"),
        (lambda d: d.break_at_register(0, 0, wj.Register(1), "==", 2**40), "32 bits"),
        (lambda d: d.watch(0, 0, "y"), "no tile 'y'"),
        (lambda d: d.watch(0, 0, "x", slice(2, 3)), "none chosen"),
        (lambda d: [d.watch(0, 0, "x") for _ in range(33)], "at most 64"),
        (lambda d: [d.break_at_fault() for _ in range(33)], "clear"),
        (lambda d: d.step(0), "at least one"),
        (lambda d: d.step(1.5), "n is 1.5: give a whole number"),
        (lambda d: d.step(float("nan")), "n is nan: give a whole number"),
        (lambda d: d.step(True), "n is True: give a whole number"),
        (lambda d: d.run_to(2.5), "cycle is 2.5: give a whole number"),
        (lambda d: d.run_to(2**40), "too large"),
        (lambda d: d.watch(0.5, 0, "x"), "y is 0.5: give a whole number"),
        (lambda d: d.watch(0, 0, [4]), r"colour is \[4\]: give a whole number"),
        (lambda d: d.watch(0, 0, "x", 1), "elements=1: give a slice"),
        (lambda d: d.watch(0, 0, "x", slice(0.5, 2)), "give whole numbers"),
        (lambda d: d.break_at_register(0, 0, 1, "==", 0), "1 is no register"),
        (lambda d: d.break_at_event(0, 0, 0.5, 0), "thread is 0.5: give a whole number"),
        (lambda d: d.run().run_to(0), "make a new Debugger"),
    ],
)
def test_mistakes_are_named(act, message):
    with pytest.raises(WaferError, match=message):
        act(wj.Debugger(*counting()))


def test_where_follows_a_word_on_its_way():
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(1, 3)), "one word")
    word = b.tile("x", (1,))
    b.path(0, (0, 0), (0, 2))
    b.role("source", at=(0, 0)).thread().send(0, word)
    b.role("sink", at=(0, 2)).thread().receive(0, word)
    dbg = wj.Debugger(b.build(), values="none")
    seen = []
    for _ in range(6):
        seen.append(dbg.where(0, 2).splitlines()[1].split(" waits for ")[-1])
        dbg.step()
    # on the toy machine: issued in 0, leaves a router in 2, 3 and 4, is received in 5
    way = [f"a word that is on its way, at PE (y=0, x={x})" for x in (0, 1, 2)]
    before, *under_way, after = dict.fromkeys(seen)
    assert before == "a word from PE (y=0, x=0)"
    assert under_way == way
    assert after.endswith("asks for the issue slot")
