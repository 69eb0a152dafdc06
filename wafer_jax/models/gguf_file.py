"""GGUF files: a bounded header parser, and Llama weights in Hugging Face's names and layout.

The ``gguf`` package supplies the format's constants and the dequantisation. Its reader is not used:
it believes the counts that it finds in the file, so a damaged one can keep it busy without end.

Source of the format: ggml's ``docs/gguf.md``; of the row permutation:
``LlamaModel.permute`` in llama.cpp's ``conversion``.
"""

import math
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.models import families
from wafer_jax.models.config import DecoderConfig, Llama3Scaling, RopeConfig
from wafer_jax.models.weights import check_finite, check_tensors

_SCALARS = {
    gguf.GGUFValueType.UINT8: "B",
    gguf.GGUFValueType.INT8: "b",
    gguf.GGUFValueType.UINT16: "H",
    gguf.GGUFValueType.INT16: "h",
    gguf.GGUFValueType.UINT32: "I",
    gguf.GGUFValueType.INT32: "i",
    gguf.GGUFValueType.FLOAT32: "f",
    gguf.GGUFValueType.BOOL: "?",
    gguf.GGUFValueType.UINT64: "Q",
    gguf.GGUFValueType.INT64: "q",
    gguf.GGUFValueType.FLOAT64: "d",
}

_MAX_ENTRIES = 1 << 16  # metadata entries, and tensors


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies in the file.

    Attributes:
        name: as in the file.
        shape: NumPy order (the reverse of the file's).
        kind: storage type, perhaps quantised.
        offset: first byte, from the start of the file.
        num_bytes: stored size.
    """

    name: str
    shape: tuple[int, ...]
    kind: gguf.GGMLQuantizationType
    offset: int
    num_bytes: int


class GGUFFile:
    """A GGUF file, its header parsed and every tensor's extent checked.

    Attributes:
        path: the file.
        metadata: key to value (scalar, string or list).
        tensors: name to place.
    """

    def __init__(self, path: str | Path):
        """Parse the header.

        Args:
            path: the file.

        Raises:
            WaferError: not a GGUF file, an unsupported version or type, or damaged.
        """
        self.path = Path(path)
        try:
            self._data = np.memmap(self.path, dtype=np.uint8, mode="r")
        except (OSError, ValueError) as error:
            raise WaferError(f"{self.path}: cannot be read ({error})") from None
        cursor = _Cursor(self._data.data, str(self.path))
        if cursor.take(4) != b"GGUF":
            raise WaferError(f"{self.path}: not a GGUF file (it does not start with 'GGUF')")
        version = cursor.scalar("I")
        if version not in (2, 3):
            raise WaferError(f"{self.path}: GGUF version {version} is unsupported (2 or 3 is)")
        num_tensors = cursor.count("Q", _MAX_ENTRIES)
        num_entries = cursor.count("Q", _MAX_ENTRIES)
        self.metadata: dict[str, Any] = {}
        for _ in range(num_entries):
            key = cursor.string()
            if key in self.metadata:
                cursor.fail(f"metadata key {key!r} appears twice")
            self.metadata[key] = cursor.value(cursor.scalar("I"))
        headers = [_tensor_header(cursor) for _ in range(num_tensors)]
        align = self.metadata.get("general.alignment", 32)
        if isinstance(align, bool) or not isinstance(align, int) or not 0 < align <= 1 << 16:
            cursor.fail(f"general.alignment={align!r} is out of range")
        self.tensors = _place(headers, align, cursor)

    def read(self, name: str) -> np.ndarray:
        """Read one tensor and undo its quantisation.

        Args:
            name: as in the file.

        Returns:
            Its values in a new array, float32, in NumPy order of axes.

        Raises:
            WaferError: NaN or infinity among the values, or a type without dequantisation.
        """
        info = self.tensors[name]
        try:
            # Scales of damaged blocks overflow on the way; check_finite reports them.
            with np.errstate(all="ignore"):
                values = gguf.quants.dequantize(self.read_blocks(name), info.kind)
        except NotImplementedError:
            raise WaferError(
                f"{self.path}: tensor {name} is stored as {info.kind.name}, which the gguf package "
                "cannot dequantise; convert the file to Q8_0 or F16"
            ) from None
        values = np.array(values, dtype=np.float32).reshape(info.shape)
        check_finite(name, values, where=str(self.path))
        return values

    def read_blocks(self, name: str) -> np.ndarray:
        """One tensor's rows as they are stored, ``[rows, bytes] uint8``."""
        info = self.tensors[name]
        raw = np.asarray(self._data[info.offset : info.offset + info.num_bytes])
        return raw.reshape(math.prod(info.shape[:-1]), -1)


class _Cursor:
    """Reads little-endian values in order and never beyond the end of the file."""

    def __init__(self, data: memoryview, where: str):
        self.data, self.where, self.position = data, where, 0

    def fail(self, what: str) -> None:
        raise WaferError(f"{self.where}: damaged GGUF header: {what}")

    def take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise WaferError(
                f"{self.where}: the file ends inside its header (it is truncated or damaged); "
                "download it again"
            )
        piece = self.data[self.position : end]
        self.position = end
        return bytes(piece)

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def count(self, code: str, most: int) -> int:
        number = self.scalar(code)
        if number > most:
            self.fail(f"a count of {number} where at most {most} is plausible")
        return number

    def string(self) -> str:
        piece = self.take(self.count("Q", len(self.data)))
        try:
            return piece.decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"a string that is not UTF-8 before byte {self.position}")
            raise

    def value(self, kind: int) -> Any:
        if kind == gguf.GGUFValueType.STRING:
            return self.string()
        if kind == gguf.GGUFValueType.ARRAY:
            item = self.scalar("I")
            number = self.count("Q", len(self.data))
            if item == gguf.GGUFValueType.STRING:
                return [self.string() for _ in range(number)]
            code = self._code(item)
            size = struct.calcsize("<" + code)
            return list(struct.unpack(f"<{number}{code}", self.take(number * size)))
        return self.scalar(self._code(kind))

    def _code(self, kind: int) -> str:
        if kind not in _SCALARS:
            self.fail(f"unknown value type {kind} before byte {self.position}")
        return _SCALARS[gguf.GGUFValueType(kind)]


def _tensor_header(cursor: _Cursor) -> TensorInfo:
    """One tensor's header; its offset is still relative to the data section."""
    name = cursor.string()
    dims = [cursor.scalar("Q") for _ in range(cursor.count("I", 4))]
    kind_id, offset = cursor.scalar("I"), cursor.scalar("Q")
    if not dims or min(dims) < 1:
        cursor.fail(f"tensor {name!r} has dimensions {dims}")
    try:
        kind = gguf.GGMLQuantizationType(kind_id)
        block_items, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError):
        cursor.fail(f"tensor {name!r} has the unknown storage type {kind_id}")
        raise
    if dims[0] % block_items:
        cursor.fail(f"tensor {name!r}: rows of {dims[0]} do not fill blocks of {block_items}")
    num_bytes = math.prod(dims) // block_items * block_bytes
    return TensorInfo(name, tuple(reversed(dims)), kind, offset, num_bytes)


def _place(headers: list[TensorInfo], align: int, cursor: _Cursor) -> dict[str, TensorInfo]:
    """Make offsets absolute; check that the tensors are distinct and fill the file.

    They follow one another up to alignment, as ggml's own reader wants it. So a damaged offset or
    storage type cannot pass for another.
    """
    aligned = lambda position: -(-position // align) * align
    placed: dict[str, TensorInfo] = {}
    start = end = aligned(cursor.position)
    for header in sorted(headers, key=lambda h: h.offset):
        info = replace(header, offset=start + header.offset)
        if info.name in placed:
            cursor.fail(f"tensor {info.name!r} appears twice")
        if info.offset < end:
            cursor.fail(f"tensor {info.name!r} overlaps another")
        if info.offset != aligned(end):
            cursor.fail(f"tensor {info.name!r} does not start where the last one ends")
        end = info.offset + info.num_bytes
        if end > len(cursor.data):
            raise WaferError(
                f"{cursor.where}: tensor {info.name!r} ends at byte {end} of {len(cursor.data)}: "
                "the file is truncated or damaged; download it again"
            )
        placed[info.name] = info
    if len(cursor.data) > aligned(end):
        cursor.fail(f"{len(cursor.data) - end} bytes follow the last tensor")
    return placed


# Keys of the architecture that are handled, or that only describe the file.
_HANDLED_KEYS = frozenset(
    """block_count context_length embedding_length feed_forward_length attention.head_count
    attention.head_count_kv attention.layer_norm_rms_epsilon attention.key_length
    attention.value_length rope.freq_base rope.dimension_count rope.scaling.type vocab_size
    """.split()
)

_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def read_config(file: GGUFFile) -> DecoderConfig:
    """Read the configuration from the metadata.

    Args:
        file: an open file of the architecture ``llama``.

    Returns:
        The configuration; the head is tied when the file has no ``output.weight``.

    Raises:
        WaferError: another architecture, or a key that is unknown, missing or out of range.
    """
    meta, where = file.metadata, str(file.path)
    architecture = meta.get("general.architecture")
    if architecture != "llama":
        raise WaferError(f"{where}: architecture {architecture!r} is not supported (only 'llama')")
    llama = {k.removeprefix("llama."): v for k, v in meta.items() if k.startswith("llama.")}
    if unknown := sorted(set(llama) - _HANDLED_KEYS):
        raise WaferError(f"{where}: unsupported metadata: {', '.join(map(repr, unknown))[:200]}")
    embedding = file.tensors.get("token_embd.weight")
    vocab = llama.get("vocab_size", embedding.shape[0] if embedding else None)
    # The same validation as for config.json: names, types and ranges are checked in one place.
    hf = {
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": llama.get("embedding_length"),
        "intermediate_size": llama.get("feed_forward_length"),
        "num_hidden_layers": llama.get("block_count"),
        "num_attention_heads": llama.get("attention.head_count"),
        "num_key_value_heads": llama.get("attention.head_count_kv"),
        "head_dim": llama.get("attention.key_length"),
        "rms_norm_eps": llama.get("attention.layer_norm_rms_epsilon"),
        "rope_theta": llama.get("rope.freq_base"),
        "max_position_embeddings": llama.get("context_length"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
    }
    if hf["rms_norm_eps"] is None:
        raise WaferError(f"{where}: llama.attention.layer_norm_rms_epsilon is missing")
    config = families.read_config(hf, where=where)
    for key in ("attention.value_length", "rope.dimension_count"):
        if llama.get(key, config.head_dim) != config.head_dim:
            raise WaferError(f"{where}: llama.{key}={llama[key]!r}, head_dim={config.head_dim}")
    if llama.get("rope.scaling.type", "none") != "none":
        raise WaferError(f"{where}: rope scaling {llama['rope.scaling.type']!r} is unsupported")
    if "rope_freqs.weight" in file.tensors:
        config = replace(config, rope=_llama3_rope(file, config))
    return config


def _llama3_rope(file: GGUFFile, config: DecoderConfig) -> RopeConfig:
    """Recover Llama 3.1's scaling: GGUF stores its quotients per frequency, not its parameters."""
    divisors = file.read("rope_freqs.weight")
    foreign = WaferError(
        f"{file.path}: tensor rope_freqs.weight is not Llama 3.1's RoPE scaling, "
        "the only one supported"
    )
    if divisors.shape != (config.head_dim // 2,) or divisors.min() < 1:
        raise foreign
    # Every published model with this scaling uses 1, 4 and 8192; only the factor varies.
    scaling = Llama3Scaling(float(divisors.max()), 1.0, 4.0, 8192)
    rope = replace(config.rope, scaling=scaling)
    wanted = RopeConfig(rope.theta).inverse_frequencies(config.head_dim)
    wanted = wanted / rope.inverse_frequencies(config.head_dim)
    if not np.allclose(divisors, wanted, rtol=1e-3):
        raise foreign
    return rope


def read_weights(file: GGUFFile, config: DecoderConfig) -> dict[str, np.ndarray]:
    """Read every parameter under its Hugging Face name, in that layout.

    Args:
        file: the open file.
        config: what ``read_config`` returned for it.

    Returns:
        Name to float32 array; projections ``[out, in]``, rows of q and k in half-split RoPE order.

    Raises:
        WaferError: a tensor is missing, unknown, of the wrong shape, or has NaN or infinity.
    """
    names = {name: hf_name(name) for name in file.tensors if name != "rope_freqs.weight"}
    check_tensors(
        [(hf, file.tensors[name].shape) for name, hf in names.items()],
        config,
        where=str(file.path),
    )
    weights = {}
    for name, hf in names.items():
        values = file.read(name)
        if ".attn_q." in name:
            values = to_half_split(values, config.num_heads)
        elif ".attn_k." in name:
            values = to_half_split(values, config.num_kv_heads)
        weights[hf] = values
    return weights


def hf_name(name: str) -> str:
    """Translate a tensor's name; one without translation keeps its own and is reported as extra."""
    parts = name.split(".")
    if len(parts) == 2 and parts[0] in _TOP_NAMES and parts[1] == "weight":
        return f"{_TOP_NAMES[parts[0]]}.weight"
    if len(parts) == 4 and parts[0] == "blk" and parts[1].isdecimal() and parts[2] in _NAMES:
        return f"model.layers.{parts[1]}.{_NAMES[parts[2]]}.{parts[3]}"
    return name


def to_half_split(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Undo GGUF's interleaving of a head's two halves: rows ``0, D/2, 1, D/2+1, ...`` to order."""
    pairs = rows.reshape(num_heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
