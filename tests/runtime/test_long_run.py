"""Runs that save as they go, stop on request, and are resumed; here and from the command line."""

import itertools
import json
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import wafer_jax as wj
from runtime.conftest import assert_same, endless
from wafer_jax.cli import main
from wafer_jax.execute import run_from
from wafer_jax.runtime import checkpoint, long_run

WORD = {"x": np.ones((1, 1, 2), np.float32)}
CYCLES = 400


@pytest.fixture(scope="module")
def end():
    return wj.run(endless(), WORD, max_cycles=CYCLES).state


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "endless.npz"
    wj.save_program(endless(), path, WORD)
    return path


def stop_once(number):
    """A progress callback that sends this process a signal the first time."""
    pending = [number]

    def progress(*_):
        if pending:
            signal.raise_signal(pending.pop())

    return progress


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("short_chunks")
def test_a_signal_saves_and_stops(number, tmp_path, end, capfd):
    before = signal.getsignal(number)
    with pytest.raises(long_run.Interrupted, match=r"endless: stopped at cycle \d+, saved in"):
        long_run.run(
            endless(), WORD, tmp_path, max_cycles=CYCLES, progress=stop_once(number)
        )  # fmt: skip
    assert signal.getsignal(number) is before
    assert "once more to stop without saving" in capfd.readouterr().err
    stopped = int(checkpoint.load(tmp_path, endless()).now)
    assert 0 < stopped < CYCLES
    result = long_run.resume(endless(), tmp_path, max_cycles=CYCLES)
    assert_same(result.state, end)
    assert int(checkpoint.load(tmp_path, endless()).now) == int(end.now)


@pytest.mark.usefixtures("short_chunks")
def test_a_second_signal_stops_at_once(tmp_path):
    def progress(*_):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as error:
        long_run.run(endless(), WORD, tmp_path, max_cycles=CYCLES, progress=progress)
    assert not isinstance(error.value, long_run.Interrupted)
    assert not checkpoint.checkpoints(tmp_path)


@pytest.mark.usefixtures("short_chunks")
def test_ignored_signals_stay_ignored(tmp_path, end):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        result = long_run.run(
            endless(), WORD, tmp_path, max_cycles=CYCLES, progress=stop_once(signal.SIGINT)
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert_same(result.state, end)


@pytest.mark.usefixtures("short_chunks")
def test_checkpoints_come_as_often_as_asked(tmp_path, monkeypatch, end):
    saved = []

    def save(folder, program, state):
        saved.append(int(state.now))
        return checkpoint.save(folder, program, state)

    clock = SimpleNamespace(monotonic=itertools.count().__next__)
    monkeypatch.setattr(long_run, "checkpoint", SimpleNamespace(
        save=save, checkpoints=checkpoint.checkpoints))  # fmt: skip
    monkeypatch.setattr(long_run, "time", clock)
    result = long_run.run(endless(), WORD, tmp_path, every_s=4, max_cycles=CYCLES)
    assert len(saved) > 4
    assert saved == sorted(set(saved))
    assert saved[-1] == int(end.now)
    assert_same(result.state, end)


def test_a_finished_run_is_resumed_to_its_result(tmp_path):
    program = wj.reduce.chain(wj.hardware("toy", mesh=(1, 3)), words=4)
    x = np.ones((4, 1, 3), np.float32)
    first = long_run.run(program, x, tmp_path)
    again = long_run.resume(program, tmp_path)
    assert again.cycles == first.cycles
    np.testing.assert_array_equal(again.values, first.values)
    assert len(checkpoint.checkpoints(tmp_path)) == 1


@pytest.mark.usefixtures("short_chunks")
def test_the_command_exits_with_130_and_says_how_to_go_on(file, tmp_path, capsys, monkeypatch, end):
    folder = tmp_path / "with space"
    line = ["run", str(file), "--checkpoint", str(folder), "--max-cycles", str(CYCLES)]
    stop = stop_once(signal.SIGINT)
    monkeypatch.setattr("wafer_jax.runtime.progress.progress_text", lambda *_: stop() or "running")
    assert main(line) == 130
    err = capsys.readouterr().err
    assert f"resume it with: wafer-jax run {file} --checkpoint '{folder}' --resume" in err
    assert "Traceback" not in err
    assert main(line) == 2
    assert "holds a checkpoint" in capsys.readouterr().err
    assert main([*line, "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cycles"] == int(end.now)
    assert_same(checkpoint.load(folder, endless()), end)


def test_a_resumed_run_tells_the_jitter_of_its_checkpoint(file, tmp_path, capsys):
    line = ["run", str(file), "--checkpoint", str(tmp_path / "d"), "--max-cycles", "90", "--json"]
    outcomes = []
    for options in (["--jitter", "3"], ["--resume"], ["--resume", "--jitter", "3"]):
        assert main([*line, *options]) == 0
        outcomes.append(json.loads(capsys.readouterr().out))
    assert outcomes[0]["seed"] == 3
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert main([*line, "--resume", "--jitter", "4"]) == 2
    assert "saved with another jitter" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--resume"], "--resume: say where from, with --checkpoint DIR"),
        (["--resume", "--checkpoint", "absent"], "there is no checkpoint in it"),
        (["--checkpoint", "{file}"], "cannot write to"),
        (["--checkpoint", "d", "--every", "0"], "above 0"),
    ],
)
def test_mistakes_exit_with_two(file, capsys, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    options = [o.format(file=file) for o in options]
    assert main(["run", str(file), "--max-cycles", "40", *options]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert [line for line in err.splitlines() if line.startswith("error: ")] == err.splitlines()


def test_a_killed_process_is_resumed_here(file, tmp_path):
    """SIGKILL in the middle, saves several times a second: the newest whole state goes on."""
    folder = tmp_path / "killed"
    code = "import sys; from wafer_jax.cli import main; sys.exit(main())"
    line = ["run", str(file), "--checkpoint", str(folder), "--every", "0.01"]
    process = subprocess.Popen([sys.executable, "-c", code, *line])
    try:
        while not checkpoint.checkpoints(folder) or checkpoint.latest(folder).name[-1] == "0":
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    state = checkpoint.load(folder, endless())
    until = int(state.now) + 500
    reference = wj.initial_state(endless(), WORD)
    assert_same(
        run_from(endless(), state, max_cycles=until).state,
        run_from(endless(), reference, max_cycles=until).state,
    )
