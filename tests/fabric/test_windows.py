"""Windows around the active rows change nothing but speed: every leaf of the end state is equal."""

import jax
import numpy as np
import pytest
from random_families import DYNAMIC_FAMILIES, FAMILIES
from random_programs import random_program

import wafer_jax as wj
from wafer_jax import windows

SKEWED = wj.Jitter(5, start_cycles=2_000, event_cycles=3)
LOOSE = wj.Jitter(9, start_cycles=300, event_cycles=40)


@pytest.fixture
def window_runs(monkeypatch):
    """Counts the windows that are run; even small wafers are looked at, often."""
    monkeypatch.setattr(windows, "MIN_LANES", 1)
    monkeypatch.setattr(windows, "SHARES", (4, 2))
    monkeypatch.setattr(windows, "STEPS_BETWEEN_LOOKS", 8)
    monkeypatch.setattr(windows, "SOON_CYCLES", 12)
    ran = []
    advance_window = windows._advance_window

    def counted(spec, rows, code, state, top, until, wake):
        ran.append((rows, int(top)))
        return advance_window(spec, rows, code, state, top, until, wake)

    monkeypatch.setattr(windows, "_advance_window", counted)
    return ran


def equal_leaves(one: wj.Result, other: wj.Result) -> None:
    a, b = (jax.tree_util.tree_leaves_with_path(r.state) for r in (one, other))
    for (path, x), (_, y) in zip(a, b, strict=True):
        name = jax.tree_util.keystr(path)
        # The end of the log takes what is not sent: nobody reads it.
        words = len(x) - len(one.state.fault) if name == ".memory.log" else None
        np.testing.assert_array_equal(np.atleast_1d(x)[:words], np.atleast_1d(y)[:words], name)


def compare(program, tiles, ran, monkeypatch, **options):
    on_windows = wj.run(program, tiles, **options)
    count = len(ran)
    with monkeypatch.context() as patch:
        patch.setattr(windows, "MIN_LANES", 1 << 30)
        equal_leaves(on_windows, wj.run(program, tiles, **options))
    assert len(ran) == count
    return count


@pytest.mark.parametrize("jitter", [None, LOOSE])
def test_a_wave_down_the_mesh(jitter, window_runs, monkeypatch):
    program = wj.reduce.chain(wj.hardware("toy", mesh=(48, 3)), words=4, axis="y")
    x = np.arange(4 * 48 * 3, dtype=np.float32).reshape(4, 48, 3)
    compare(program, x, window_runs, monkeypatch, jitter=jitter)
    assert len({top for _, top in window_runs}) > 3


@pytest.mark.parametrize(
    ("families", "seeds"),
    [
        (FAMILIES, (3,)),
        (DYNAMIC_FAMILIES, (1,)),
        pytest.param(FAMILIES, (13, 23, 5), marks=pytest.mark.slow),
        pytest.param(DYNAMIC_FAMILIES, (6, 11, 16, 2), marks=pytest.mark.slow),
    ],
)
def test_replicas_of_random_programs(families, seeds, window_runs, monkeypatch):
    for seed in seeds:
        program, tiles = random_program(seed, families)
        many = wj.replicate(program, 8)
        height = program.hw.mesh[0]
        rows = [np.pad(t, [(0, 0)] * (t.ndim - 2) + [(0, 1), (0, 0)]) for t in tiles.values()]
        stacked = {
            name: np.concatenate([t] * 8, axis=-2)[..., : many.hw.mesh[0], :]
            for name, t in zip(tiles, rows, strict=True)
        }
        assert many.hw.mesh[0] == 8 * (height + 1) - 1
        compare(many, stacked, window_runs, monkeypatch, jitter=SKEWED)
    assert window_runs


def test_packets(window_runs, monkeypatch):
    program = wj.reduce.chain(wj.hardware("toy", mesh=(40, 2)), words=12, axis="y")
    compare(program, None, window_runs, monkeypatch, values="none", packet_words=4)
    assert window_runs


def test_the_watchdog_looks_everywhere(window_runs):
    program = wj.reduce.chain(wj.hardware("toy", mesh=(40, 2)), words=4, axis="y")
    result = wj.run(program, values="none", watchdog_cycles=20)
    assert result.starved
    assert not window_runs
