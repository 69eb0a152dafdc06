"""``run`` on chosen devices, with a watchdog, and in packets. The tests see four CPU devices."""

import jax
import numpy as np
import pytest

import wafer_jax as wj
from wafer_jax.cli.device_options import chosen_devices

HW = wj.hardware("toy", mesh=(4, 3))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "chain.npz"
    program = wj.reduce.chain(HW, words=4)
    wj.save_program(program, path, {"x": np.ones((4, 4, 3), np.float32)})
    return str(path)


def test_no_option_leaves_the_choice_to_jax():
    assert chosen_devices(None, None) is None


def test_one_device_by_its_number():
    assert chosen_devices("cpu:2", None) == [jax.devices("cpu")[2]]


@pytest.mark.parametrize(
    ("count", "shape"), [("2", (2, 1)), ("4", (4, 1)), ("2x2", (2, 2)), ("1X3", (1, 3))]
)
def test_counts_make_a_mesh(count, shape):
    mesh = chosen_devices(None, count)
    assert mesh.devices.shape == shape
    assert mesh.axis_names == ("y", "x")


def test_results_do_not_depend_on_the_devices(file, wafer):
    alone = wafer("run", file, "--json").json
    cut = wafer("run", file, "--devices", "2", "--json").json
    assert cut["cycles"] == alone["cycles"]


def test_packets_and_watchdog_reach_the_run(file, wafer):
    options = ("--values", "none", "--packet-words", "4")
    assert wafer("run", file, *options, "--json").json["faults"] == []
    outcome = wafer("run", file, "--watchdog", "2")
    assert outcome.code == 1
    assert "starved" in outcome.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "abacus"), "no such device"),
        (("--device", "cpu;1"), "expected a name"),
        (("--device", "cpu:9"), "device cpu:9 asked for, there are 4 (cpu)"),
        (("--device", "cpu:0", "--devices", "2"), "is one device"),
        (("--devices", "0"), "expected a count"),
        (("--devices", "9"), "9 devices asked for, there are 4 (cpu)"),
        (("--devices", "2x4"), "there are 4"),
        (("--devices", "4", "--device", "cpu", "--trace", "t.json"), "--trace: not with"),
        (("--packet-words", "3"), "values='none'"),
        (("--packet-words", "5", "--watchdog", "4", "--values", "none"), "at least 5"),
        (("--checkpoint", "c", "--resume", "--watchdog", "9"), "those of the checkpoint"),
    ],
)
def test_mistakes_are_one_line(file, wafer, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in wafer("run", file, *options).error
    assert not list(tmp_path.iterdir())
