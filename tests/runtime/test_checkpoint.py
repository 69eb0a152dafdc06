"""A wafer stopped at any cycle, saved and loaded, ends as if it had never stopped."""

import shutil

import jax
import numpy as np
import pytest
from random_families import REGISTER_FAMILIES
from random_programs import random_program

import wafer_jax as wj
from runtime.conftest import assert_same, chain, ones
from wafer_jax.execute import run_from
from wafer_jax.runtime import checkpoint, long_run
from wafer_jax.runtime.sidecar import fingerprint

JITTER = wj.Jitter(7, start_cycles=9, event_cycles=5)


def ktree():
    program = wj.allreduce.ktree(wj.hardware("toy", mesh=(2, 6)), words=5, k=2)
    return program, {"x": np.arange(5 * 12, dtype=np.float32).reshape(5, 2, 6)}


RUNS = {
    "random": (lambda: random_program(2), None),
    "jitter": (lambda: random_program(5), JITTER),
    "registers": (lambda: random_program(11, REGISTER_FAMILIES), JITTER),
    "collective": (ktree, None),
}
PARTS = (0.0, 0.2, 0.45, 0.7, 0.95)
"""Of the run: five kill points each."""


@pytest.fixture(scope="module", params=RUNS)
def whole(request):
    """How to start the run, and its end without a stop."""
    build, jitter = RUNS[request.param]

    def start():
        program, tiles = build()
        return program, wj.initial_state(program, tiles, jitter=jitter)

    program, state = start()
    end = run_from(program, state).state
    assert int(end.now) >= 20
    return start, end


@pytest.mark.parametrize("part", PARTS)
def test_a_stopped_run_ends_the_same(whole, part, tmp_path):
    start, end = whole
    program, state = start()
    stopped = run_from(program, state, max_cycles=int(part * int(end.now))).state
    checkpoint.save(tmp_path, program, stopped)
    fresh, _ = start()
    loaded = checkpoint.load(tmp_path, fresh)
    assert_same(loaded, stopped)
    assert_same(run_from(fresh, loaded).state, end)


@pytest.mark.parametrize(
    "options",
    [
        {"watchdog_cycles": 1000},
        {"values": "none", "packet_words": 2},
        {"devices": 2},
        {"devices": 2, "watchdog_cycles": 500, "jitter": wj.Jitter(3, 5, 2)},
    ],
)
def test_every_way_to_run_is_resumed(options, tmp_path):
    program = chain(words=8, mesh=(2, 6))
    tiles = None if "packet_words" in options else np.ones((8, 2, 6), np.float32)
    end = wj.run(program, tiles, **options).state
    wj.runtime.run(program, tiles, tmp_path, max_cycles=20, **options)
    where = {"devices": options["devices"]} if "devices" in options else {}
    assert_same(wj.runtime.resume(program, tmp_path, **where).state, end)


def test_without_values(tmp_path):
    program = chain()
    end = wj.run(program, values="none").state
    checkpoint.save(tmp_path, program, wj.run(program, values="none", max_cycles=5).state)
    assert_same(long_run.resume(chain(), tmp_path).state, end)


def test_the_last_two_are_kept(tmp_path):
    program = chain()
    for cycle in (3, 5, 7):
        state = wj.run(program, ones(program), max_cycles=cycle).state
        path = checkpoint.save(tmp_path, program, state)
    assert [p.name for p in checkpoint.checkpoints(tmp_path)] == [
        "checkpoint_000001",
        "checkpoint_000002",
    ]
    assert path == checkpoint.latest(tmp_path)
    assert int(checkpoint.load(tmp_path, program).now) == 7


def test_an_unfinished_save_is_passed_over_and_then_removed(tmp_path):
    program = chain()
    state = wj.run(program, ones(program), max_cycles=5).state
    first = checkpoint.save(tmp_path, program, state)
    unfinished = tmp_path / "checkpoint_000001.orbax-checkpoint-tmp"
    shutil.copytree(first, unfinished)
    (unfinished / "state" / "now" / "0").unlink()
    assert_same(checkpoint.load(tmp_path, program), state)
    assert checkpoint.save(tmp_path, program, state).name == "checkpoint_000001"
    assert not unfinished.exists()


def test_a_save_that_dies_before_its_last_step_leaves_the_one_before(tmp_path, monkeypatch):
    """The rename is the last thing that happens to a checkpoint."""
    program = chain()
    state = wj.run(program, ones(program), max_cycles=5).state
    checkpoint.save(tmp_path, program, state)
    renamed = []

    def die(source, target, *_, **__):
        renamed.append(str(source))
        raise OSError("killed")

    monkeypatch.setattr("os.rename", die)
    monkeypatch.setattr("os.replace", die)
    with pytest.raises(wj.WaferError, match=r"cannot write to .*killed"):
        checkpoint.save(tmp_path, program, state)
    monkeypatch.undo()
    assert any("checkpoint_000001.orbax-checkpoint-tmp" in name for name in renamed)
    assert checkpoint.latest(tmp_path).name == "checkpoint_000000"
    assert_same(checkpoint.load(tmp_path, program), state)


def test_saving_leaves_the_state_usable(tmp_path):
    program = chain()
    state = wj.initial_state(program, {"x": ones(program)})
    checkpoint.save(tmp_path, program, state)
    loaded = checkpoint.load(tmp_path, program)
    again = checkpoint.load(tmp_path, program)
    end = run_from(program, state).state
    assert_same(run_from(program, loaded).state, end)
    assert int(again.now) == 0  # what was donated shares nothing with another load
    assert all(not x.is_deleted() for x in jax.tree.leaves(again))


def test_fingerprints_follow_the_content():
    base = fingerprint(chain())
    assert fingerprint(chain()) == base
    assert fingerprint(chain(words=5)) != base
    assert fingerprint(chain(mesh=(1, 4))) != base
    assert fingerprint(random_program(2)[0]) != fingerprint(random_program(12)[0])


def test_a_folder_that_cannot_be_written(tmp_path):
    program = chain()
    (tmp_path / "file").write_text("")
    with pytest.raises(wj.WaferError, match="cannot write to"):
        checkpoint.save(tmp_path / "file", program, wj.initial_state(program))
