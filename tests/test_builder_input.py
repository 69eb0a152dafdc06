"""Values of a wrong kind are refused in one line; numpy's integers are as good as Python's."""
# pyright: reportArgumentType=false

from dataclasses import replace

import numpy as np
import pytest

import wafer_jax as wj
from wafer_jax import events as ev
from wafer_jax.program import Role
from wafer_jax.validation import validate

TOY = wj.hardware("toy", mesh=(3, 4))
R = wj.Register(3)
NO_NUMBERS = [1.5, 2.0, float("nan"), True, np.bool_(True), None, "x", [1, 2], np.ones((2, 2))]


class Given:
    """A builder with a tile, a route and a role to make mistakes with."""

    def __init__(self):
        self.b = wj.ProgramBuilder(TOY, "given")
        self.x = self.b.tile("x", (6,))
        self.b.path(0, (0, 0), (0, 2))
        self.role = self.b.role("r", at=(0, 0))
        self.t = self.role.thread()


def refused(act, message):
    with pytest.raises(wj.WaferError, match=message) as error:
        act()
    assert "\n" not in str(error.value)


NUMBERS = [
    lambda g, v: g.role.thread(v),
    lambda g, v: g.role.bind(v, input_queue=0),
    lambda g, v: g.b.route(v, 0, 0, wj.RAMP, wj.E),
    lambda g, v: g.b.route(2, 0, 0, v, wj.E),
    lambda g, v: g.b.route(2, 0, 0, wj.RAMP, [v]),
    lambda g, v: g.b.path(2, (v, 0), (0, 1)),
    lambda g, v: g.b.switch(v, 0, 0, (wj.RAMP, wj.E), (wj.RAMP, wj.S)),
    lambda g, v: g.t.send(v, g.x),
    lambda g, v: g.t.receive(v, g.x),
    lambda g, v: g.t.control(v, "advance"),
    lambda g, v: g.t.forward(v, 0, g.x),
    lambda g, v: g.t.forward(0, v, words=1),
    lambda g, v: g.t.forward(0, 1, words=v),
    lambda g, v: g.t.signal(v),
    lambda g, v: g.t.wait(v),
    lambda g, v: g.t.set(R, v),
    lambda g, v: g.t.add(R, v),
    lambda g, v: g.t.when(R, "<", v).__enter__(),
    lambda g, v: g.t.loop(v).__enter__(),
    lambda g, v: g.t.reconfigure(v),
    lambda g, v: g.t.compute(wj.Kernel(name="k", fn=abs), [g.x], [g.x], v),
    lambda g, v: wj.Register(v),
    lambda g, v: g.x.slice(v),
    lambda g, v: g.x.slice(0, 1, v),
]


@pytest.mark.parametrize("give", NUMBERS)
def test_what_is_no_whole_number_is_refused(give):
    for value in NO_NUMBERS:
        refused(lambda value=value: give(Given(), value), "whole number|is none of N, E")


@pytest.mark.parametrize("give", NUMBERS)
def test_integers_of_numpy_are_taken(give):
    for kind in (np.int64, np.uint8, np.array):
        give(Given(), kind(1))


def test_a_program_of_numpys_integers_is_saved(tmp_path):
    one, g = np.int64(1), Given()
    g.b.path(one, (one, 0), (1, one))
    g.role.bind(np.int8(0), output_queue=np.int8(2))
    with g.t.loop(np.uint8(2)):
        g.t.send(np.int32(0), g.x.slice(one, np.int64(2), np.int64(2)))
    g.t.set(wj.Register(one), np.int32(-5)).signal(one).reconfigure(np.int64(0))
    with g.t.when(R, ">=", one):
        g.t.add(R, one)
    program = g.b.build(inputs=[g.x])
    wj.save_program(program, tmp_path / "p.npz")
    loaded = wj.load_program(tmp_path / "p.npz")[0]
    assert loaded.roles == program.roles
    assert (loaded.colors, loaded.inputs) == ((0, 1), ("x",))


@pytest.mark.parametrize("number", [2**40, -1, 6])
def test_threads_beyond_the_machine_are_refused(number):
    g = Given()
    refused(lambda: g.role.thread(number), f"there is no thread {number}, toy has 6")
    assert len(g.role.threads) == 1


BEYOND = "reach beyond the 3x4 mesh"
NO_INDEX = "no index of rows or columns"


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (np.array([True, False]), r"a mask of shape \(2,\) for 3"),
        (True, r"a mask of shape \(\) for 3"),
        (1.0, NO_INDEX),
        ([0.0, 1.0], NO_INDEX),
        ("0", NO_INDEX),
        (None, NO_INDEX),
        ([[0, 1]], NO_INDEX),
        ([[0], [1, 2]], NO_INDEX),
        (2**70, NO_INDEX),
        (slice("a", "b"), "whole number"),
        (slice(0, 2.0), "whole number"),
        (slice(0, 2, 0), "step 0"),
        (slice(5, 9), BEYOND),
        ([0, 5], BEYOND),
    ],
)
def test_what_is_no_index_is_refused(index, message):
    b = Given().b
    refused(lambda: b.route(2, index, 0, wj.RAMP, wj.E), message)
    refused(lambda: b.switch(2, index, 0, (wj.RAMP, wj.E), (wj.RAMP, wj.S)), message)
    refused(lambda: b.role("other", at=(index, 0)), message)


def test_a_boolean_array_is_a_mask():
    role = Given().b.role("m", at=(np.array([True, False, True]), [False, True, True, False]))
    np.testing.assert_array_equal(np.argwhere(role.mask), [[0, 1], [0, 2], [2, 1], [2, 2]])


def test_a_segment_of_another_program_is_refused():
    g = Given()
    other = Given().b.segment("second")
    g.b.segment("own")
    refused(lambda: g.t.reconfigure(other), "no segment of this program")
    refused(lambda: g.role.bind(0, input_queue=0, segment=other), "no segment of this program")


KERNEL = wj.Kernel(name="k", fn=abs)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda g: g.t.set(3, 1), r"3 stands where a register belongs: write wj.Register\(3\)"),
        (lambda g: g.t.add(3, 1), r"write wj.Register\(3\)"),
        (lambda g: g.t.when(3, "<", 1).__enter__(), r"write wj.Register\(3\)"),
        (lambda g: g.t.when(R, "<=", 1).__enter__(), "'<=' is none of ==, !=, <, >="),
        (lambda g: g.t.compute(KERNEL, g.x, [g.x], 1), "inputs is Tile.*give a list"),
        (lambda g: g.t.compute(KERNEL, [g.x], None, 1), "outputs is None: give a list"),
        (lambda g: g.t.compute(KERNEL, [3], [g.x], 1), "inputs holds 3"),
        (lambda g: g.t.compute(abs, [g.x], [g.x], 1), r"give wj.Kernel\("),
        (lambda g: g.t.compute(wj.Kernel(name="k", fn=3), [g.x], [g.x], 1), "is no function"),
        (lambda g: g.t.send(0, None), "None: give a tile"),
        (lambda g: g.t.send(0, "x"), "'x': give a tile"),
        (lambda g: g.t.receive(0, 3), "3: give a tile"),
        (lambda g: g.t.forward(0, 1, "x"), "'x': give a tile"),
        (lambda g: wj.ProgramBuilder("wse2"), "a program for 'wse2': give a machine"),
        (lambda g: g.b.build().at("0", 0), "y of a PE is '0': give a whole number"),
        (lambda g: g.b.switch(2, 0, 0, wj.RAMP, wj.E), r"give \(rx, tx\)"),
        (lambda g: g.b.role("other", at=0), r"at=0 is not \(ys, xs\)"),
        (lambda g: g.b.path(2, (0, 0), 3), r"3 is no PE: give \(y, x\)"),
        (lambda g: g.role.bind(0, input_queue=0, segment="first"), "no segment of this program"),
        (lambda g: g.b.build(inputs=None), "inputs=None: give a list"),
        (lambda g: g.b.build(outputs="x"), "outputs='x': give a list"),
        (lambda g: g.b.build(inputs=[3]), "give a list of the names"),
        (lambda g: g.b.tile("y", (True,)), "give positive whole numbers"),
        (lambda g: g.b.tile("y", (2,), ["float32"]), "is none of"),
        (lambda g: (g.t.loop(2).__enter__(), g.b.build()), "inside `with loop`: build after"),
        (lambda g: (g.t.when(R, "<", 2).__enter__(), g.b.build()), "inside `with when`"),
        (lambda g: (g.t.send(5, g.x), g.b.build()), "sends on colour 5, which has no route"),
    ],
)
def test_mistakes_of_kind_are_named(mistake, message):
    refused(lambda: mistake(Given()), message)


def test_too_many_nested_loops_name_the_limit():
    g = Given()
    loops = [g.t.loop(2) for _ in range(9)]
    for loop in loops:
        loop.__enter__()
    g.t.signal(0)
    for loop in reversed(loops):
        loop.__exit__(None, None, None)
    refused(g.b.build, "at most 8 loops can be nested")


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (lambda: ev.Send(0, None), "Send: slice is None"),
        (lambda: ev.SetRegister(0, 1.5), "value is 1.5"),
        (lambda: ev.Branch(0, "<=", 1, 0), "'<=', which is none of"),
        (lambda: "HALT", "'HALT' is no event"),
    ],
)
def test_events_by_hand_are_checked(event, message):
    program = Given().b.build()

    def build():
        role = Role(name="hand", threads=((event(), ev.Halt()),))
        validate(replace(program, roles=(role,) * len(program.roles)))

    refused(build, message)


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), AssertionError(), KeyError("k")])
def test_a_kernel_that_raises_is_named(error):
    def fails(x):
        raise error

    g = Given()
    g.t.compute(wj.Kernel(name="fails", fn=fails), [g.x], [g.x], 1)
    program = g.b.build()
    refused(lambda: wj.run(program), "kernel 'fails' fails on inputs of")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"watchdog_cycles": None}, "watchdog_cycles is None: give a whole number"),
        ({"max_cycles": "7"}, "max_cycles is '7': give a whole number"),
        ({"max_cycles": 0}, "max_cycles=0 is not in 1"),
        ({"packet_words": None}, "packet_words is None"),
        ({"jitter": 5}, "give wj.Jitter"),
        ({"devices": "2"}, "devices='2': give a count"),
        ({"devices": 1.5}, "devices=1.5: give a count"),
        ({"devices": True}, "devices=True: give a count"),
        ({"devices": (1, 2.0)}, "give a count"),
    ],
)
def test_arguments_of_a_run_are_checked(arguments, message):
    program = Given().b.build()
    refused(lambda: wj.run(program, **arguments), message)


def test_what_is_no_program_is_not_run():
    refused(lambda: wj.run(Given().b), r"'given' is not built yet: pass what its .build\(\)")
    refused(lambda: wj.run("case.npz"), "read a file with wj.load_program")
