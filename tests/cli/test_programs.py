"""``run`` and ``show`` on program files."""

import json

import numpy as np
import pytest

import wafer_jax as wj
from wafer_jax.cli import main

HW = wj.hardware("toy", mesh=(1, 3))


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "chain.npz"
    program = wj.reduce.chain(HW, words=4)
    wj.save_program(program, path, {"x": np.ones((4, 1, 3), np.float32)})
    return path


@pytest.fixture(scope="module")
def stuck(tmp_path_factory):
    b = wj.ProgramBuilder(HW, "stuck")
    x = b.tile("x", (1,))
    b.path(0, (0, 0), (0, 2))
    b.role("sink", at=(0, 2)).thread().receive(0, x)
    path = tmp_path_factory.mktemp("files") / "stuck.npz"
    wj.save_program(b.build(), path)
    return path


def test_run_says_how_it_ends(good, capsys):
    assert main(["run", str(good), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["cycles"] == wj.run(wj.reduce.chain(HW, words=4), values="none").cycles
    assert record["level"] == "fabric"
    assert record["faults"] == []


def test_a_stopped_run_says_so(good, capsys):
    for options, stopped in (([], False), (["--max-cycles", "3"], True)):
        assert main(["run", str(good), "--json", *options]) == 0
        record = json.loads(capsys.readouterr().out)
        assert (record["stopped"], record["starved"]) == (stopped, False)


def test_a_starved_run_says_so(good, capsys):
    assert main(["run", str(good), "--json", "--watchdog", "2"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert (record["stopped"], record["starved"]) == (False, True)


def test_faults_in_packets_point_to_how_streams_are_cut(stuck, capsys):
    for words, said in (("1", False), ("2", True)):
        assert main(["run", str(stuck), "--values", "none", "--packet-words", words]) == 1
        out = capsys.readouterr().out
        assert ("In packets of 2 words: streams must be cut alike" in out) == said


def test_jitter_takes_longer(good, capsys):
    cycles = []
    for options in ([], ["--jitter", "3"]):
        assert main(["run", str(good), "--values", "none", "--json", *options]) == 0
        cycles.append(json.loads(capsys.readouterr().out)["cycles"])
    assert cycles[1] > cycles[0]


def test_faults_exit_with_one_and_say_who_waits(stuck, capsys):
    assert main(["run", str(stuck)]) == 1
    out = capsys.readouterr().out
    assert "deadlock" in out
    assert "waits for a word that PE (y=0, x=0) never sends" in out


def test_show_a_program_and_a_pe(good, capsys):
    assert main(["show", str(good)]) == 0
    assert "chain" in capsys.readouterr().out
    assert main(["show", str(good), "--pe", "0,1"]) == 0
    assert "FORWARD" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "absent.npz"], "no such file"),
        (["show", "{good}", "--pe", "9,9"], "not on the 1x3 mesh"),
        (["show", "{good}", "--pe", "9"], "expected row,column"),
        (["run", "{good}", "--values", "some"], "choose 'full' or 'none'"),
        (["run", "{good}", "--trace", "{good}"], "it is the input"),
        (["run", "{good}", "--trace", "/dev/null"], "it is a device or a pipe"),
        (["run", "{good}", "--checkpoint", ""], "--checkpoint is empty"),
        (["run", "{good}", "--every", "5"], "--every: say where to save"),
    ],
)
def test_mistakes_exit_with_two(good, capsys, arguments, message):
    assert main([a.format(good=good) for a in arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
