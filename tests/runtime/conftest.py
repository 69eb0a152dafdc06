"""Programs that are stopped and resumed, each built anew on every call."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import wafer_jax as wj

sys.path.append(str(Path(__file__).parent.parent / "fabric"))


def assert_same(first, second):
    """Two states are equal in every leaf, bit for bit and in type."""
    one, two = (jax.tree_util.tree_flatten_with_path(state)[0] for state in (first, second))
    assert [path for path, _ in one] == [path for path, _ in two]
    for (path, x), (_, y) in zip(one, two, strict=True):
        name = jax.tree_util.keystr(path)
        assert (x.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type), name
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), name


def chain(words=4, mesh=(1, 3)):
    return wj.reduce.chain(wj.hardware("toy", mesh=mesh), words=words)


def ones(program):
    return np.ones((4, *program.hw.mesh), np.float32)


def endless():
    """Two PEs that pass a word back and forth a million times."""
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(1, 2)), "endless")
    x = b.tile("x", (1,))
    b.path(0, (0, 0), (0, 1))
    b.path(1, (0, 1), (0, 0))
    for at, out, back in (((0, 0), 0, 1), ((0, 1), 1, 0)):
        thread = b.role(f"pe {at[1]}", at=at).thread()
        with thread.loop(1_000_000):
            if at == (0, 0):
                thread.send(out, x)
                thread.receive(back, x)
            else:
                thread.receive(back, x)
                thread.send(out, x)
    return b.build(inputs=["x"], outputs=["x"])


@pytest.fixture
def short_chunks(monkeypatch):
    """Runs look at their state every 16 steps."""
    monkeypatch.setattr("wafer_jax.execute._chunk", lambda _: 16)
    monkeypatch.setattr("wafer_jax.execute._next_chunk", lambda *_: 16)
