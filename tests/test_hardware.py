"""Presets load, and bad specs are refused in one line that says what and where."""

import pytest
import yaml

import wafer_jax as wj
from wafer_jax.hardware import configs_dir


@pytest.mark.parametrize("preset", wj.preset_names())
def test_every_figure_of_a_preset_has_a_source(preset):
    spec = wj.hardware(preset)
    sourced = dict(spec.sources)
    keys = set(yaml.safe_load((configs_dir() / "hardware" / f"{preset}.yaml").read_text()))
    assert keys - {"name", "extends"} <= set(sourced)
    assert all(sourced.values())
    assert hash(spec) == hash(wj.hardware(preset))


def test_extending_keeps_what_it_does_not_change():
    wse2, wse3 = wj.hardware("wse2"), wj.hardware("wse3")
    assert (wse2.hop_cycles, wse3.hop_cycles) == (1, 2)
    assert wse3.ramp_cycles == wse2.ramp_cycles
    assert wse3.output_queue_depths == (8,) * 8


def test_a_preset_may_extend_one_that_extends_another():
    wse3, silicon = wj.hardware("wse3"), wj.hardware("wse3_silicon")
    assert silicon.hop_cycles == wse3.hop_cycles
    assert silicon.sram_bytes == wj.hardware("wse2").sram_bytes
    assert silicon.copy_cycles(1000) > wse3.copy_cycles(1000)


def test_presets_in_a_circle_are_refused(tmp_path):
    for name, base in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{name}.yaml").write_text(f"extends: {base}")
    with pytest.raises(wj.WaferError, match=r"in a circle: a -> b -> c -> a"):
        wj.load_spec(tmp_path / "a.yaml")


def test_replace_is_a_what_if():
    hw = wj.hardware("wse2", mesh=(3, 5))
    assert hw.mesh == (3, 5)
    assert hw.replace(hop_cycles=2).hop_cycles == 2
    assert hw.replace(hop_cycles=2).hash != hw.hash
    assert hw.seconds(1.1e9) == pytest.approx(1.0)


def test_vector_cycles_are_those_of_the_published_sweeps():
    # (L2 - L1) / (P Kt Nt) of the MeshGEMM sweeps on the vendor's WSE-3 simulator.
    wse3 = wj.hardware("wse3")
    assert wse3.vector_cycles(8, "float16") == pytest.approx(8.44, abs=0.1)
    assert wse3.vector_cycles(16, "float16") == pytest.approx(10.5, abs=0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hops": 1}, "unknown key hops"),
        ({"hop_cycles": 0}, "hop_cycles = 0"),
        ({"hop_cycles": 1.5}, "not a whole number"),
        ({"hop_cycles": True}, "not a whole number"),
        ({"mesh": (2000, 3)}, "larger than the device"),
        ({"mesh": (0, 3)}, "mesh = 0"),
        ({"mesh": (1, 2, 3)}, "not a list of whole numbers"),
        ({"input_queue_depths": ()}, "not a list of whole numbers"),
        ({"mesh": 8}, "not a list of whole numbers"),
        ({"clock_hz": float("nan")}, "clock_hz"),
        ({"reserved_bytes": 49152}, "reserved_bytes"),
    ],
)
def test_bad_values_are_refused(change, message):
    with pytest.raises(wj.WaferError, match=message) as error:
        wj.hardware("wse2").replace(**change)
    assert "\n" not in str(error.value)


def test_unknown_preset_lists_the_known_ones():
    with pytest.raises(wj.WaferError, match="dojo_d1, tenstorrent_blackhole, toy, wse2, wse3"):
        wj.hardware("wse4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "mapping"),
        ("a: [", "cannot read"),
        ("extends: ../x", "extends"),
        ("extends: toy\nspeed: 3", "unknown key speed"),
        ("name: x", "missing key"),
        ("extends: toy\nhop_cycles: {value: 1, note: x}", "hop_cycles must be"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    (tmp_path / "toy.yaml").write_text((configs_dir() / "hardware" / "toy.yaml").read_text())
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(wj.WaferError, match=message) as error:
        wj.load_spec(path)
    assert "\n" not in str(error.value)
    with pytest.raises(wj.WaferError, match="cannot read"):
        wj.load_spec(tmp_path / "absent.yaml")


def test_an_unknown_element_type_is_named():
    with pytest.raises(wj.WaferError, match="dtype 'int8' is none of float32, float16, bfloat16"):
        wj.allreduce.ktree(wj.hardware("toy", mesh=(1, 4)), words=4, dtype="int8")
    with pytest.raises(wj.WaferError, match="dtype 'int8'"):
        wj.hardware("wse2").vector_cycles(4, "int8")
