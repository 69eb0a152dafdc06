"""Programs as files: the same program comes back, and bad files are refused in one line."""

import json
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wafer_jax as wj
from wafer_jax.program_file import VERSION


def scale(x, n):
    return x * n.astype(x.dtype)


SCALE = wj.Kernel(name="scale", fn=scale)


def example():
    """Registers, a branch, a loop, a kernel, strides, 16-bit tiles, all kinds of events."""
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(2, 3)), "example")
    x, h = b.tile("x", (6,)), b.tile("h", (4,), "float16")
    b.path(3, (0, 0), (1, 2))
    b.path(5, (1, 2), (0, 1))
    n = wj.Register(1)
    source = b.role("source", at=(0, 0))
    thread = source.thread().set(n, 3).compute(SCALE, [x, n], [x], 4)
    with thread.loop(2):
        thread.send(3, x.slice(words=n))
    with thread.when(n, "<", 2):
        thread.add(n, 1)
    thread.send(3, h).wait(0).control(7, "advance").reconfigure(wj.Register(1))
    source.thread(1).signal(0)
    sink = b.role("sink", at=(1, 2))
    sink.thread().receive(3, x, "add").receive(3, h, "max")
    sink.thread().send(5, x.slice(0, 2, 3))
    second = b.segment("second")
    second.switch(7, 0, 0, (wj.RAMP, wj.E), (wj.RAMP, [wj.S, wj.E]), ring=True)
    b.path(7, (0, 0), (0, 1))
    sink.thread().reconfigure(second)
    b.role("end", at=(0, 1)).thread().receive(5, x.slice(1, words=2))
    return b.build(inputs=["x", "h"], outputs=["x"])


def tiles():
    rng = np.random.default_rng(0)
    return {
        "x": rng.standard_normal((6, 2, 3)).astype(np.float32),
        "h": rng.standard_normal((4, 2, 3)).astype(np.float16),
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs") / "example.npz"
    wj.save_program(example(), path, tiles())
    return path


def test_the_same_program_comes_back(saved):
    program, loaded = wj.load_program(saved, kernels=[SCALE])
    expected = example()
    assert program.roles == expected.roles
    assert program.hw == expected.hw
    np.testing.assert_array_equal(program.role_of, expected.role_of)
    assert [s.name for s in program.segments] == ["first", "second"]
    for one, other in zip(program.segments, expected.segments, strict=True):
        for name in ("rx", "tx", "positions", "ring"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (program.colors, program.inputs, program.outputs) == ((3, 5, 7), ("x", "h"), ("x",))
    for name, value in tiles().items():
        np.testing.assert_array_equal(loaded[name], value)
    first, again = wj.run(expected, tiles()), wj.run(program, loaded)
    assert again.cycles == first.cycles
    np.testing.assert_array_equal(again.values, first.values)


@pytest.mark.parametrize(
    "program",
    [
        wj.reduce.chain(wj.hardware("wse2", mesh=(2, 5)), words=3),
        wj.allreduce.ktree(wj.hardware("wse3", mesh=(3, 7)), words=2, k=2),
        wj.ProgramBuilder(wj.hardware("toy", mesh=(1, 1)), "empty").build(),
    ],
)
def test_collectives_come_back(program, tmp_path):
    wj.save_program(program, tmp_path / "p.npz")
    loaded, none = wj.load_program(tmp_path / "p.npz")
    assert loaded.roles == program.roles
    assert not none


def test_a_kernel_must_be_given(saved):
    with pytest.raises(wj.WaferError, match="kernel 'scale' is needed"):
        wj.load_program(saved)


def rewritten(saved, tmp_path, change):
    """The example with its JSON changed."""
    path = tmp_path / "changed.npz"
    with np.load(saved) as archive:
        arrays = dict(archive)
    text = json.loads(bytes(arrays["program"]))
    change(text, arrays)
    arrays["program"] = np.frombuffer(json.dumps(text).encode(), np.uint8)
    np.savez(path, allow_pickle=False, **arrays)
    return path


def _first_send(text):
    role = next(r for r in text["roles"] if r["name"] == "source")
    return next(e for e in role["threads"][0] if e["op"] == "Send")


def _set(where, **values):
    where.update(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, a: _set(t, version=VERSION + 1), "version 4 is not 3"),
        (lambda t, a: _set(t, format="other"), "no program of wafer_jax"),
        (lambda t, a: t.pop("roles"), "damaged"),
        (lambda t, a: _set(t["hw"], hops=1), "unknown key hops"),
        (lambda t, a: _set(t["hw"], mesh=[2, 10**9]), "mesh = 1000000000"),
        (lambda t, a: _set(t["hw"], hop_cycles=0), "hop_cycles = 0"),
        (lambda t, a: _set(t, colors=[5, 3, 7]), "colours are not in order"),
        (lambda t, a: _set(t, colors=[3, 5, 99]), "uses colours"),
        (lambda t, a: _set(_first_send(t), op="__import__"), "no event"),
        (lambda t, a: _set(_first_send(t), color=True), "no 32-bit number"),
        (lambda t, a: _set(_first_send(t), color=4), "has no route|without a queue"),
        (lambda t, a: _set(_first_send(t)["slice"], offset=10**6), "lie outside"),
        (lambda t, a: _set(_first_send(t)["slice"], words=10**6), "lie outside"),
        (lambda t, a: _set(_first_send(t)["slice"], words={"register": 40}), "no register 40"),
        (lambda t, a: _set(_first_send(t)["slice"], dtype="float64"), "no element type"),
        (lambda t, a: _set(_first_send(t), slice=None), "Send: slice is None"),
        (lambda t, a: _first_send(t).pop("slice"), "has fields"),
        (lambda t, a: _set(_first_send(t)["slice"], stride=2**30), "a stride of 1073741824 words"),
        (lambda t, a: t["roles"][0]["threads"][0].clear(), "does not end in Halt"),
        (lambda t, a: _set(t["roles"][1]["tiles"][0], shape=[10**6]), "bytes of SRAM per PE"),
        (lambda t, a: _set(a, role_of=a["role_of"] + 9), "role_of holds numbers outside"),
        (lambda t, a: _set(a, **{"rx:0": a["rx:0"].astype(np.int64)}), "type int64"),
        (lambda t, a: _set(a, **{"rx:0": a["rx:0"][:, :1]}), "rx has shape"),
        (lambda t, a: _set(a, **{"rx:0": a["rx:0"][:0]}), "no positions"),
        (lambda t, a: _set(a, **{"rx:0": a["rx:0"][0, 0, 0, 0]}), "no positions"),
        (lambda t, a: _set(a, **{"tx:0": a["tx:0"] | 64}), "tx holds numbers outside"),
        (lambda t, a: _set(a, **{"positions:0": a["positions:0"] * 0}), "positions holds"),
        (lambda t, a: _set(a, **{"positions:0": a["positions:0"] * 5}), "positions holds"),
        (lambda t, a: _set(a, **{"ring:0": a["ring:0"][..., :1]}), "ring has shape"),
        (lambda t, a: _set(a, other=a["role_of"]), "do not belong"),
        (lambda t, a: _set(t, segments=[]), "do not belong"),
        (lambda t, a: _set(t, segments=["a", "b", "c"]), "damaged"),
        (lambda t, a: t["roles"][0].update(queues=[[[], []]] * 3), "in a segment"),
    ],
)
def test_bad_content_is_refused(saved, tmp_path, change, message):
    path = rewritten(saved, tmp_path, change)
    with pytest.raises(wj.WaferError, match=message) as error:
        wj.load_program(path, kernels=[SCALE])
    assert "\n" not in str(error.value)


def test_pickles_bombs_and_missing_files_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "pickle.npz"
    np.savez(path, program=np.array([{"a": 1}], dtype=object))
    with pytest.raises(wj.WaferError, match="damaged"):
        wj.load_program(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("program.npy", bytes(1 << 20))
    monkeypatch.setattr("wafer_jax.program_file.MAX_BYTES", 1 << 16)
    with pytest.raises(wj.WaferError, match="over the limit"):
        wj.load_program(path)
    with pytest.raises(wj.WaferError, match="no such file"):
        wj.load_program(tmp_path / "absent.npz")


def test_nothing_half_written_stays_behind(tmp_path):
    with pytest.raises(wj.WaferError, match="cannot write"):
        wj.save_program(example(), tmp_path / "absent" / "p.npz")
    assert not list(tmp_path.iterdir())


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_files_give_one_line(saved, data):
    raw = bytearray(saved.read_bytes())
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    path = saved.with_name("damaged.npz")
    path.write_bytes(raw)
    roles, message = None, ""
    try:
        roles = wj.load_program(path, kernels=[SCALE])[0].roles
    except wj.WaferError as error:
        message = str(error)
    assert "\n" not in message
    assert message or roles == example().roles
