"""The front door: load a model, run it on a machine."""

import subprocess
import sys
from dataclasses import replace

import pytest

from models.tiny_llama import TINY, random_weights, write_folder
from wafer_jax import hardware
from wafer_jax.cli import check
from wafer_jax.errors import WaferError
from wafer_jax.models import Model, layer_check, load
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.families import read_config


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    weights = random_weights(read_config(TINY))
    return load(write_folder(tmp_path_factory.mktemp("tiny"), weights))


HW = hardware("wse2", mesh=(3, 2)).replace(sram_bytes=1 << 20)


def test_generate_on_a_machine(model):
    generation = model.generate([5, 6, 7], HW, max_new_tokens=4, stop_ids=())
    assert list(generation.ids) == model.dense.generate([5, 6, 7], max_new_tokens=4, stop_ids=())
    assert (generation.level, generation.decode.level) == ("bulk", "cost")


def test_the_last_layout_is_kept(model):
    first = model.on(HW)
    assert model.on(HW) is first
    assert model.on(HW, k=1) is not first
    assert model.on(HW) is not first


def test_what_it_needs_and_what_it_is(model):
    placement = model.place(HW, context=40, dtype="float16")
    assert placement.dtype == "float16"
    assert placement.kv_capacity >= 40
    assert "parameters" in repr(model)
    assert model.tokenizer is None
    with pytest.raises(WaferError, match="no tokenizer"):
        model.generate("text", HW)


@pytest.mark.parametrize("dtype", ["float32", "q4_1"])
def test_every_layer_against_the_dense_reference(model, dtype):
    frame = model.check([5, 6, 7], HW, decode_tokens=2, dtype=dtype)
    stages = ["embedding", "layer 0", "layer 1", "layer 2", "logits"]
    assert frame["phase"].tolist() == ["prefill"] * 5 + ["decode"] * 5
    assert frame["stage"].tolist() == 2 * stages
    assert frame["passes"].all()
    assert 0 < frame["relative"].max() < 1e-5


def test_a_check_that_fails(model, monkeypatch):
    """The reference has one weight of layer 1 changed: the layer before it passes."""
    tensors = dict(model.checkpoint.weights)
    name = "model.layers.1.mlp.up_proj.weight"
    tensors[name] = tensors[name].copy()
    tensors[name][3, 5] += 0.5
    other = DenseModel.from_checkpoint(replace(model.checkpoint, weights=tensors))
    monkeypatch.setitem(vars(model), "dense", other)
    frame = model.check([5, 6, 7], HW, decode_tokens=2)
    assert frame.query("phase == 'prefill'")["passes"].tolist() == [True, True, False, False, False]
    with pytest.raises(WaferError, match="ask for at least 1"):
        model.check([5, 6, 7], HW, decode_tokens=0)


def test_the_bar_of_the_command_is_that_of_the_library():
    assert check.TOLERANCE == layer_check.TOLERANCE


def test_importing_models_asks_for_no_progress_bars():
    """In a notebook tqdm warns that it finds no widgets, and nothing is downloaded yet."""
    code = "import sys, wafer_jax; wafer_jax.models.load; sys.exit('tqdm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
