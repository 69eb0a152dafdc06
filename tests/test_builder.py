"""Programs by hand: what the builder paints and binds, and what it refuses."""

import numpy as np
import pytest

import wafer_jax as wj
from wafer_jax.events import Loop
from wafer_jax.program import NO_ROUTE

TOY = wj.hardware("toy", mesh=(3, 4))


def test_a_path_goes_along_x_then_y():
    b = wj.ProgramBuilder(TOY, "path")
    b.path(2, (2, 3), (0, 1))
    b.role("any", at=(0, 0))
    program = b.build()
    assert program.colors == (2,)
    route = {(2, 3): (wj.RAMP, wj.W), (2, 2): (wj.E, wj.W), (2, 1): (wj.E, wj.N),
             (1, 1): (wj.S, wj.N), (0, 1): (wj.S, wj.RAMP)}  # fmt: skip
    for y in range(3):
        for x in range(4):
            rx, tx = route.get((y, x), (NO_ROUTE, None))
            assert program.rx[0, y, x] == rx
            assert program.tx[0, y, x] == (0 if tx is None else 1 << tx)


def test_a_listing_names_the_words_of_a_tile():
    b = wj.ProgramBuilder(TOY, "slices")
    b.tile("x", (4,))
    y, many = b.tile("y", (6,)), wj.Register(3)
    b.path(0, (0, 0), (0, 1))
    send = b.role("source", at=(0, 0)).thread().send(0, y).send(0, y.slice(2, 3))
    send.send(0, y.slice(0, 3, stride=2)).send(0, y.slice(0, many)).send(0, y.slice(2, many))
    lines = [line.split(" of ")[1] for line in b.build().at(0, 0).splitlines() if "SEND" in line]
    assert [line.removesuffix(" on colour 0") for line in lines] == [
        "y", "y[2:5]", "y[0:] stride 2", "y[0:r3]", "y[2:2+r3]",
    ]  # fmt: skip


def test_paths_from_one_start_make_a_tree():
    b = wj.ProgramBuilder(TOY, "tree")
    b.path(0, (0, 0), (0, 3))
    b.path(0, (0, 0), (2, 2))
    program = b.build()
    assert program.tx[0, 0, 2] == (1 << wj.E) | (1 << wj.S)


def test_at_shows_routes_events_and_budget():
    b = wj.ProgramBuilder(TOY, "shown")
    x = b.tile("x", (4,))
    b.path(0, (0, 0), (2, 3))
    thread = b.role("source", at=(0, 0)).thread()
    with thread.loop(3):
        thread.send(0, x)
    b.role("sink", at=(2, 3)).thread().receive(0, x, "add")
    program = b.build(inputs=["x"], outputs=["x"])
    text = program.at(0, 0)
    assert "RAMP -> E" in text
    assert "SEND     4 words of x on colour 0" in text
    assert "LOOP     from 0, 3 times in all" in text
    assert "SRAM 16 of 3584 bytes" in text
    assert "add to x" in program.at(2, 3)
    with pytest.raises(wj.WaferError, match=r"PE \(y=3, x=0\) is not on the 3x4 mesh"):
        program.at(3, 0)


def test_loops_nest_and_single_rounds_vanish():
    b = wj.ProgramBuilder(TOY, "loops")
    thread = b.role("r", at=(0, 0)).thread()
    with thread.loop(2):
        thread.signal(0)
        with thread.loop(3):
            thread.wait(0)
        with thread.loop(1):
            thread.signal(0)
    loops = [e for e in b.build().role_at(0, 0).threads[0] if isinstance(e, Loop)]
    assert loops == [Loop(1, 3, 1), Loop(0, 2, 0)]


def test_sixteen_bit_tiles_lie_two_to_a_word():
    b = wj.ProgramBuilder(TOY, "halves")
    a = b.tile("a", (3, 3), "bfloat16")
    c = b.tile("c", (2,))
    assert (a.words, c.offset) == (5, 5)
    assert a.slice(1, stride=2).words == 2


def _two_senders(b):
    x = b.tile("x", (2,))
    b.path(0, (0, 0), (0, 1))
    role = b.role("r", at=(0, 0))
    role.thread(0).send(0, x)
    role.thread(1).send(0, x)


def _far_send(b):
    x = b.tile("x", (2,))
    b.path(0, (0, 0), (0, 2))
    b.role("r", at=(0, 1)).thread().send(0, x)


def _far_receive(b):
    x = b.tile("x", (2,))
    b.path(0, (0, 0), (0, 2))
    b.role("r", at=(0, 1)).thread().receive(0, x)


def _unknown_combination(b):
    x = b.tile("x", (2,))
    b.path(0, (0, 0), (0, 1))
    b.role("r", at=(0, 1)).thread().receive(0, x, "sum")


def _many_colors(b):
    x = b.tile("x", (1,))
    role = b.role("r", at=(0, 0))
    for c in range(7):
        b.path(c, (0, 0), (0, 1))
        role.thread().send(c, x)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda b: b.path(16, (0, 0), (0, 1)), "colour 16 does not exist"),
        (lambda b: b.path(0, (0, 0), (3, 0)), r"PE \(y=3, x=0\) is not on the 3x4 mesh"),
        (lambda b: (b.path(0, (0, 0), (0, 2)), b.path(0, (0, 3), (0, 1))),
         r"PE \(y=0, x=2\) would receive colour 0 from W and E"),
        (lambda b: b.tile("big", (900,)), "3600 bytes of SRAM per PE, 3584 are free"),
        (lambda b: b.tile("x", (2, 0)), "shape"),
        (lambda b: (b.tile("x", (2,)), b.tile("x", (2,))), "exists already"),
        (lambda b: b.tile("x", (4,)).slice(2, words=3), "outside tile"),
        (lambda b: b.role("r"), "has no PEs"),
        (lambda b: b.role("r", at=(slice(9, 12), 0)), "reach beyond the 3x4 mesh"),
        (lambda b: b.role("r", at=(9, 0)), "rows 9, columns 0 reach beyond the 3x4 mesh"),
        (lambda b: b.role("r", where=np.ones((4, 3))), r"a mask has shape \(4, 3\)"),
        (lambda b: b.role("base", at=(0, 0)), "role 'base' exists already"),
        (lambda b: b.route(0, 0, [0, 7], wj.RAMP, wj.E), "reach beyond the 3x4 mesh"),
        (lambda b: b.route(0, 0, 0, 7, wj.E), "7 is none of N, E, S, W, RAMP"),
        (lambda b: b.route(0, 0, 0, wj.RAMP, 9), "9 is none of"),
        (lambda b: b.route(0, 0, 0, "RAMP", "E"), "'RAMP' is none of"),
        (lambda b: b.route_where(0, np.ones(3), wj.RAMP, wj.E), "a mask has shape"),
        (lambda b: b.tile("x", 4), "give positive whole numbers"),
        (lambda b: b.tile("x", (1.5,)), "give positive whole numbers"),
        (lambda b: b.tile("x", (3,), "int32"), "dtype 'int32' is none of"),
        (lambda b: b.role("r", at=(0, 0)).thread().signal(-1), "no semaphore -1"),
        (lambda b: b.role("r", at=(0, 0)).thread().forward(0, 1), "forward 0 -> 1: say how many"),
        (_unknown_combination, "combines by 'sum'"),
        (lambda b: b.role("r", at=(0, 0)).thread().set(wj.Register(0), 2**31), "does not fit"),
        (lambda b: b.role("r", at=(0, 0)).thread().set(wj.Register(32), 1), "no register 32"),
        (_two_senders, "threads 0 and 1 both use the end that sends on colour 0"),
        (_far_send, r"PE \(y=0, x=1\) sends on colour 0, but its router is not connected"),
        (_far_receive, r"PE \(y=0, x=1\) receives from colour 0, but its router"),
        (_many_colors, "7 colours need 7 distinct queues, toy has 6"),
        (lambda b: b.role("r", at=(0, 0)).thread(6), "there is no thread 6, toy has 6"),
        (lambda b: b.role("r", at=(0, 0)).thread().loop(0).__enter__(), "loop of 0 rounds"),
        (lambda b: b.role("r", at=(0, 0)).thread().compute(wj.Kernel(name="k", fn=abs), [], [], 0),
         "kernel 'k' takes 0 cycles"),
        (lambda b: b.role("r", at=(0, 0)).thread().compute(wj.Kernel(name="k", fn=abs), [], [], 1),
         "kernel 'k' has no input tile"),
    ],
)  # fmt: skip
def test_mistakes_are_named(mistake, message):
    b = wj.ProgramBuilder(TOY, "mistaken")
    b.role("base", at=(slice(None), slice(None)))

    def build():
        mistake(b)
        b.build()

    with pytest.raises(wj.WaferError, match=message) as error:
        build()
    assert "\n" not in str(error.value)


def test_regions_take_indices_slices_and_masks():
    b = wj.ProgramBuilder(TOY, "regions")
    b.role("rows", at=(slice(0, 2), [0, 2]))
    b.role("mask", where=np.eye(3, 4, dtype=bool))
    names = [[b.build().role_at(y, x).name for x in range(4)] for y in range(3)]
    assert names == [
        ["mask", "idle", "rows", "idle"],
        ["rows", "mask", "rows", "idle"],
        ["idle", "idle", "mask", "idle"],
    ]
