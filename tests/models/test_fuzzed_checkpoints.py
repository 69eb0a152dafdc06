"""Malformed folders of safetensors: what another reader sees in them, or one line."""

import json
import struct

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.test_bad_checkpoints import CONFIG, GOOD, SMALL, UP, WEIGHTS
from models.tiny_llama import safetensors_bytes, write_folder
from wafer_jax.errors import WaferError
from wafer_jax.models import checkpoints
from wafer_jax.models.families import read_config
from wafer_jax.models.parameters import parameter_shapes

HEADER = struct.unpack("<Q", GOOD[:8])[0]
fuzz = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("fuzzed"), WEIGHTS, SMALL)


def load(folder):
    """The weights, or None if one line that names the folder refuses it."""
    try:
        return checkpoints.load(folder).weights
    except WaferError as refusal:
        text = str(refusal)
    assert "\n" not in text
    assert len(text) < 5000
    assert str(folder) in text
    return None


def check(folder, *files):
    """Whatever is accepted has every parameter once, with the values that are in the files."""
    if (found := load(folder)) is None:
        return None
    assert {k: v.shape for k, v in found.items()} == parameter_shapes(CONFIG)
    stored = {}
    for file in files:
        for name, values in safetensors.numpy.load(file.read_bytes()).items():
            assert name not in stored
            stored[name] = values
    assert set(stored) == set(found)
    for name, values in found.items():
        np.testing.assert_array_equal(values, stored[name].astype(np.float32))
    return found


def draw_tensors(data):
    """The tensors after a few changes: other names, shapes, types, missing and further ones."""
    tensors = dict(WEIGHTS)
    for _ in range(data.draw(st.integers(1, 3))):
        name, other = (data.draw(st.sampled_from(sorted(tensors))) for _ in range(2))
        match data.draw(st.sampled_from(["drop", "swap", "rename", "copy", "shape", "type"])):
            case "drop":
                tensors.pop(name)
            case "swap":
                tensors[name], tensors[other] = tensors[other], tensors[name]
            case "rename":
                layer = data.draw(st.sampled_from(["layers.1", "layers.00", "Layers.0", ""]))
                tensors[name.replace("layers.0", layer)] = tensors.pop(name)
            case "copy":
                tensors[data.draw(st.sampled_from([name + ".1", "odd", "", "\n"]))] = tensors[name]
            case "shape":
                values = tensors[name]
                shape = data.draw(st.sampled_from([values.T.shape, (values.size,), (0,), (1, 1)]))
                tensors[name] = np.resize(values, shape)
            case "type":
                kind = data.draw(st.sampled_from(["f2", "f8", "i4", "u1"]))
                tensors[name] = tensors[name].astype(kind)
    return tensors


@fuzz
@given(st.data())
def test_other_tensors(folder, data):
    file = folder / "model.safetensors"
    file.write_bytes(safetensors_bytes(draw_tensors(data)))
    check(folder, file)


@fuzz
@given(st.data())
def test_a_damaged_header(folder, data):
    """Bytes of the header changed, put in, or taken out; the length says so, or does not."""
    content = bytearray(GOOD[8 : 8 + HEADER])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        new = data.draw(st.sampled_from([b"", b"0", b"9", b'"', b"}", b"]", b",", b"F16", b" "]))
        content[at : at + data.draw(st.integers(0, 2))] = new
    length = data.draw(st.sampled_from([len(content), HEADER]))
    file = folder / "model.safetensors"
    file.write_bytes(struct.pack("<Q", length) + bytes(content) + GOOD[8 + HEADER :])
    check(folder, file)


@fuzz
@given(st.integers(0, 2**64 - 1) | st.integers(0, 2 * len(GOOD)), st.integers(0, len(GOOD)))
def test_any_length_of_the_header_and_of_the_file(folder, length, size):
    file = folder / "model.safetensors"
    file.write_bytes((struct.pack("<Q", length) + GOOD[8:])[:size])
    assert (check(folder, file) is not None) == (length == HEADER and size == len(GOOD))


@fuzz
@given(st.data())
def test_shards_and_their_index(tmp_path_factory, data):
    """Names moved between index, shards and nowhere: all agree, or one line."""
    folder = tmp_path_factory.mktemp("shards", numbered=True)
    write_folder(folder, WEIGHTS, SMALL, shards=2)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    shards = sorted(set(index["weight_map"].values()))
    for _ in range(data.draw(st.integers(0, 2))):
        name = data.draw(st.sampled_from([*WEIGHTS, "ghost"]))
        target = data.draw(st.sampled_from([*shards, "model-3.safetensors", None]))
        if target is None:
            index["weight_map"].pop(name, None)
        else:
            index["weight_map"][name] = target
    path.write_text(json.dumps(index))
    if data.draw(st.booleans()):
        again = {k: WEIGHTS[k] for k in data.draw(st.sets(st.sampled_from([*WEIGHTS])))}
        (folder / shards[1]).write_bytes(safetensors_bytes(again))
    check(folder, *(folder / shard for shard in shards))


@fuzz
@given(st.sampled_from([*SMALL]), st.integers(1, 12) | st.booleans() | st.none())
def test_a_configuration_of_another_model(folder, name, value):
    """Sizes in config.json that the tensors do not have."""
    (folder / "model.safetensors").write_bytes(GOOD)
    (folder / "config.json").write_text(json.dumps({**SMALL, name: value}))
    found = load(folder)
    (folder / "config.json").write_text(json.dumps(SMALL))
    if found is not None:
        config = read_config({**SMALL, name: value})
        assert {k: v.shape for k, v in found.items()} == parameter_shapes(config)
        assert parameter_shapes(config) == parameter_shapes(CONFIG)


def test_the_reference_reader_agrees_on_the_good_file(folder):
    file = folder / "model.safetensors"
    file.write_bytes(GOOD)
    found = check(folder, file)
    assert found is not None
    np.testing.assert_array_equal(found[UP], WEIGHTS[UP])
