"""Tiny random models and their files, for the tests of this folder."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np

from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.parameters import parameter_shapes

# Pairwise distinct dimensions: a transposed or mistaken axis cannot pass by accident.
TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64,
    "rope_theta": 500.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "torch_dtype": "float32",
}

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # Short enough that the ten-wide heads have stretched, kept and interpolated frequencies.
    "original_max_position_embeddings": 32,
}

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}


def random_weights(config: DecoderConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Every parameter random, norms and biases included."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in parameter_shapes(config).items():
        values = rng.standard_normal(shape, dtype=np.float32)
        if "norm" in name:
            plain = name.endswith("linear_attn.norm.weight")  # whatever the others are stored as
            weights[name] = 1 - config.norm_offset * (not plain) + 0.3 * values
        elif name.endswith("A_log"):
            # Slow decay: of few tokens an output may be so small that its norm is all rounding.
            weights[name] = 0.3 * values - 3
        else:
            weights[name] = values * (0.3 if len(shape) == 1 else shape[1] ** -0.5)
    return weights


def safetensors_bytes(
    tensors: Mapping[str, np.ndarray], header_extra: Mapping[str, Any] | None = None
) -> bytes:
    """The format written by hand: 8 bytes of length, a JSON header, the data."""
    kinds = {np.dtype("f4"): "F32", np.dtype("f2"): "F16", np.dtype("f8"): "F64"}
    kinds[np.dtype(ml_dtypes.bfloat16)] = "BF16"
    kinds[np.dtype("i4")] = "I32"
    kinds[np.dtype("u1")] = "U8"
    kinds[np.dtype(ml_dtypes.float8_e4m3fn)] = "F8_E4M3"
    kinds[np.dtype(ml_dtypes.float8_e8m0fnu)] = "F8_E8M0"
    header: dict[str, Any] = dict(header_extra or {})
    data = b""
    for name, values in tensors.items():
        piece = values.tobytes()
        header[name] = {
            "dtype": kinds[values.dtype],
            "shape": list(values.shape),
            "data_offsets": [len(data), len(data) + len(piece)],
        }
        data += piece
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def write_folder(
    folder: Path,
    tensors: Mapping[str, np.ndarray],
    config: Mapping[str, Any] = TINY,
    shards: int = 1,
) -> Path:
    """A Hugging Face folder, sharded if asked for."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
        return folder
    weight_map = {}
    names = list(tensors)
    for i in range(shards):
        shard = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[i::shards]}
        (folder / shard).write_bytes(safetensors_bytes(part))
        weight_map |= dict.fromkeys(part, shard)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_gguf(
    path: Path,
    config: DecoderConfig,
    weights: Mapping[str, np.ndarray],
    *,
    metadata: Mapping[str, int] | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
    quantise: gguf.GGMLQuantizationType | None = None,
) -> Path:
    """A GGUF file as llama.cpp's converter writes it, q and k rows permuted its way."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope.theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    for key, value in (metadata or {}).items():
        writer.add_uint32(key, value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_layers)
    for name, values in weights.items():
        if "q_proj" in name:
            values = _permute(values, config.num_heads)
        elif "k_proj" in name:
            values = _permute(values, config.num_kv_heads)
        stem, _, suffix = name.rpartition(".")
        target = f"{names.get_name(stem)}.{suffix}"
        if quantise is not None and values.ndim == 2:
            raw = gguf.quants.quantize(values, quantise)
            writer.add_tensor(target, raw, raw_dtype=quantise)
        else:
            writer.add_tensor(target, np.ascontiguousarray(values))
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _permute(rows: np.ndarray, heads: int) -> np.ndarray:
    """``LlamaModel.permute`` of llama.cpp's converter."""
    shape = (heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return rows.reshape(shape).swapaxes(1, 2).reshape(rows.shape)
