"""What users get wrong: one line that says what, where and what to do; exit code 2."""

import json

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from models.tiny_llama import TINY, random_weights, safetensors_bytes, write_folder

from wafer_jax.models.families import read_config

NORM = "model.norm.weight"


@pytest.fixture(params=["generate", "check", "info"])
def command(request):
    """Every command that takes a model."""
    needs = {"generate": ["--ids", "1,2"]}
    return lambda source: [request.param, source, *needs.get(request.param, [])]


@pytest.fixture
def weights():
    return random_weights(read_config(TINY))


def test_machines(wafer, command, tiny):
    line = command(tiny)
    assert "unknown preset 'wse9'; known presets: dojo_d1" in wafer(*line, "--preset", "wse9").error
    for mesh in ("24", "0x3", "axb", "-1x2"):
        assert f"--mesh '{mesh}': expected rows x columns" in wafer(*line, f"--mesh={mesh}").error
    assert "larger than the device wse2 (994x750" in wafer(*line, "--mesh", "995x1").error
    assert "is not in 1 .. 16384" in wafer(*line, "--mesh", "99999999x3").error
    assert "expected rows x columns" in wafer(*line, "--mesh", "9" * 30 + "x3").error
    assert "cannot read" in wafer(*line, "--preset", "missing.yaml").error


def test_over_the_sram_budget(wafer, command, tiny):
    error = wafer(*command(tiny), "--preset", "toy", "--mesh", "2x3").error
    assert error.startswith("a layer's region of 2x3 PEs needs ")
    assert "toy has 3,584 for data: choose another mesh: the smallest square" in error


def test_damaged_checkpoints(wafer, command, tmp_path, weights):
    folder = write_folder(tmp_path / "model", weights)
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    assert "truncated or damaged" in wafer(*command(folder)).error
    file.write_bytes(b"\0" * 300)
    assert "model.safetensors" in wafer(*command(folder)).error
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"GGUF\3\0\0\0")
    assert "ends inside its header" in wafer(*command(gguf)).error


def test_wrong_tensors(wafer, command, tmp_path, weights):
    file = write_folder(tmp_path / "model", weights) / "model.safetensors"

    def error(changes, without=()):
        tensors = {k: v for k, v in {**weights, **changes}.items() if k not in without}
        file.write_bytes(safetensors_bytes(tensors))
        return wafer(*command(file.parent)).error

    assert f"1 tensor missing: '{NORM}'" in error({}, without=[NORM])
    assert "no place for: 'model.odd'" in error({"model.odd": np.ones(2, np.float32)})
    bad = np.array(weights[NORM])
    bad[3] = np.nan
    assert f"tensor {NORM} has 1 NaN or infinite value(s), the first at [3]" in error({NORM: bad})


def test_architectures(wafer, command, tmp_path, weights):
    folder = write_folder(tmp_path / "model", weights, {**TINY, "model_type": "mamba"})
    error = wafer(*command(folder)).error
    assert "model_type 'mamba' is not supported; supported are llama, qwen2, qwen3" in error
    (folder / "config.json").write_text(json.dumps({**TINY, "hidden_act": "gelu", "odd": 1}))
    error = wafer(*command(folder)).error
    assert "hidden_act='gelu' is unsupported" in error
    assert "unknown attribute 'odd'" in error


def test_a_hub_id_offline(wafer, command, monkeypatch):
    def offline(*_, **__):
        raise LocalEntryNotFoundError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    error = wafer(*command("someone/something")).error
    assert "someone/something: it is not in the local cache and the hub cannot be reached" in error
    assert "no such file or folder" in wafer(*command("./no/such/place")).error


@pytest.mark.parametrize("command", ["generate", "check"])
class TestTokens:
    def test_prompts(self, wafer, command, tiny):
        error = wafer(command, tiny, "--prompt", "hello", "--mesh", "3x4").error
        assert "has no tokenizer that is understood: give token ids, --ids 1,2,3" in error
        assert "--prompt is empty" in wafer(command, tiny, "--prompt", "").error
        assert "give text in UTF-8" in wafer(command, tiny, "--prompt", "a\udcffb").error
        assert "give either --prompt" in wafer(command, tiny, "--prompt", "a", "--ids", "1").error
        assert "expected token ids" in wafer(command, tiny, "--ids", "1,x").error
        assert "expected token ids" in wafer(command, tiny, "--ids", "").error
        assert "outside the vocabulary of 97" in wafer(command, tiny, "--ids", "97").error

    def test_contexts(self, wafer, command, tiny):
        ids = ",".join(["1"] * 65)
        assert "context is 64" in wafer(command, tiny, "--ids", ids, "--mesh", "3x4").error


def test_a_context_over_the_kv_capacity(wafer, tmp_path, weights):
    folder = write_folder(tmp_path / "m", weights, {**TINY, "max_position_embeddings": 1 << 20})
    line = ("generate", folder, "--ids", "1", "--preset", "toy", "--mesh", "20x20")
    error = wafer(*line, "--max-new-tokens", "100000").error
    assert "100,001 tokens are over the KV capacity of a layer's region of 20x20 PEs" in error
