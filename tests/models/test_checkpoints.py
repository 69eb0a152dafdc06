"""Every source of weights gives the same names, layout and values."""

import json

import gguf
import huggingface_hub
import ml_dtypes
import numpy as np
import pytest
import tokenizers

from models.tiny_llama import LLAMA3, TINY, random_weights, write_folder, write_gguf
from wafer_jax.errors import WaferError
from wafer_jax.models import checkpoints
from wafer_jax.models.families import read_config
from wafer_jax.models.parameters import parameter_shapes


def assert_same(found, expected):
    assert set(found) == set(expected)
    for name, values in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("tied", [False, True])
def test_folder(tmp_path, shards, tied):
    config = {**TINY, "tie_word_embeddings": tied, "attention_bias": True}
    weights = random_weights(read_config(config))
    assert ("lm_head.weight" in weights) is not tied
    write_folder(tmp_path / "tiny", weights, config, shards)
    loaded = checkpoints.load(tmp_path / "tiny")
    assert_same(loaded.weights, weights)
    assert (loaded.name, loaded.tokenizer) == ("tiny", None)
    assert loaded.source == str(tmp_path / "tiny")
    assert "'tiny'" in repr(loaded)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_float_types_are_widened(tmp_path, dtype):
    weights = {k: v.astype(dtype) for k, v in random_weights(read_config(TINY)).items()}
    loaded = checkpoints.load(write_folder(tmp_path, weights))
    assert_same(loaded.weights, {k: v.astype(np.float32) for k, v in weights.items()})


def test_what_a_folder_may_hold_besides_parameters(tmp_path):
    config = {**TINY, "tie_word_embeddings": True}
    weights = random_weights(read_config(config))
    more = {
        "model.layers.1.self_attn.rotary_emb.inv_freq": np.ones(5, np.float32),
        "lm_head.weight": weights["model.embed_tokens.weight"],  # a tied head stored twice
    }
    write_folder(tmp_path, {**weights, **more}, config)
    generation = {"eos_token_id": [2, 5, 4000, "x"], "temperature": 0.6}
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    loaded = checkpoints.load(tmp_path)
    assert_same(loaded.weights, weights)
    assert loaded.config.eos_token_ids == (2, 5)


def test_gguf_rows_are_unpermuted(tmp_path):
    config = read_config({**TINY, "attention_bias": True})
    weights = random_weights(config)
    loaded = checkpoints.load(write_gguf(tmp_path / "tiny.gguf", config, weights))
    assert_same(loaded.weights, weights)
    assert loaded.config.rms_norm_eps == pytest.approx(1e-5)
    assert (loaded.config.num_kv_heads, loaded.config.head_dim) == (2, 10)
    assert (loaded.name, loaded.tokenizer) == ("tiny", None)


def test_gguf_head_is_tied_when_absent(tmp_path):
    config = read_config({**TINY, "tie_word_embeddings": True})
    path = write_gguf(tmp_path / "t.gguf", config, random_weights(config))
    assert checkpoints.load(path).config.tie_embeddings


def test_gguf_quantised(tmp_path):
    config = read_config({**TINY, "hidden_size": 96, "intermediate_size": 64, "head_dim": 32})
    weights = random_weights(config)
    path = write_gguf(tmp_path / "t.gguf", config, weights, quantise=gguf.GGMLQuantizationType.Q8_0)
    for name, values in checkpoints.load(path).weights.items():
        step = np.abs(weights[name]).max() / 127
        np.testing.assert_allclose(values, weights[name], rtol=0, atol=step, err_msg=name)


def test_gguf_llama3_scaling_is_recovered(tmp_path):
    scaling = {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 8192}
    wanted = read_config({**TINY, "rope_theta": 5e5, "rope_scaling": scaling})
    plain = read_config({**TINY, "rope_theta": 5e5})
    quotients = plain.rope.inverse_frequencies(10) / wanted.rope.inverse_frequencies(10)
    extra = {"rope_freqs.weight": quotients.astype(np.float32)}
    path = write_gguf(tmp_path / "t.gguf", plain, random_weights(plain), extra=extra)
    assert checkpoints.load(path).config.rope == wanted.rope
    for other in (quotients[::-1], quotients[:-1], quotients * 0):
        extra = {"rope_freqs.weight": np.ascontiguousarray(other, np.float32)}
        path = write_gguf(tmp_path / "t.gguf", plain, random_weights(plain), extra=extra)
        with pytest.raises(WaferError, match=r"not Llama 3\.1's RoPE scaling"):
            checkpoints.load(path)


def test_smollm2(smollm2):
    assert smollm2.name == "SmolLM2-135M-Instruct"
    assert {k: v.shape for k, v in smollm2.weights.items()} == parameter_shapes(smollm2.config)
    config = smollm2.config
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (30, 9, 3)
    assert config.rope.theta == 100000.0
    assert config.tie_embeddings
    assert config.eos_token_ids == (2,)


def test_smollm2_tokenizer(smollm2):
    tokenizer = smollm2.tokenizer
    assert tokenizer.vocab_size == 49152
    assert tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert tokenizer.encode("2018") == [34, 32, 33, 40]  # one token per digit
    for text in ("Ünïcödé 漢字 🙂\n\t x", "  leading", "it's 3.14"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    ids = tokenizer.encode(chat, add_special_tokens=False)
    assert ids[0] == 1
    assert tokenizer.decode(ids) == chat
    assert "<|im_start|>" not in tokenizer.decode(ids, skip_special_tokens=True)


def test_folder_tokenizer(tmp_path):
    write_folder(tmp_path, random_weights(read_config(TINY)))
    words = {"<s>": 0, "a": 1, "b": 2}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<s>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.save(str(tmp_path / "tokenizer.json"))
    template = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    settings = {"bos_token": {"content": "<s>"}, "chat_template": template}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = checkpoints.load(tmp_path).tokenizer
    assert tokenizer is not None
    assert tokenizer.encode("a b a") == [1, 2, 1]
    assert tokenizer.apply_chat_template([{"role": "user", "content": "b"}]) == "<s>b"

    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('no systems') }}")
    with pytest.raises(WaferError, match="chat template failed: no systems"):
        checkpoints.load(tmp_path).tokenizer.apply_chat_template([])
    (tmp_path / "chat_template.jinja").write_text("{{ messages.__class__.__mro__ }}")
    with pytest.raises(WaferError, match="chat template failed"):
        checkpoints.load(tmp_path).tokenizer.apply_chat_template([])
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(WaferError, match=r"tokenizer\.json: not a tokenizer"):
        checkpoints.load(tmp_path)


def test_hub_id_is_fetched_into_a_folder(tmp_path, monkeypatch):
    weights = random_weights(read_config(TINY))
    folder = write_folder(tmp_path / "snapshot", weights)
    asked = []

    def download(repo_id, allow_patterns):
        asked.append((repo_id, allow_patterns))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    loaded = checkpoints.load("some-org/tiny-llama")
    assert_same(loaded.weights, weights)
    assert (loaded.name, loaded.source) == ("tiny-llama", "some-org/tiny-llama")
    assert asked[0][0] == "some-org/tiny-llama"
    assert not any(pattern.endswith((".bin", "*")) for pattern in asked[0][1])
