"""Safetensors files, parsed by hand: the header is bounded and every byte accounted for.

The ``safetensors`` package would do for float32, but its NumPy front end knows no bfloat16 and
accepts repeated names. Source of the format: the README of huggingface/safetensors.
"""

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.models.weights import check_finite

_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_FLOATS: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
}
_STORED: dict[str, Any] = {
    **_FLOATS,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "U8": np.uint8,
}


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies in the file.

    Attributes:
        name: as in the file.
        dtype: the format's name of it, such as ``BF16``.
        shape: row-major.
        begin: first byte, from the start of the file.
        end: one beyond the last byte.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsFile:
    """A safetensors file whose header has been checked.

    Attributes:
        path: the file.
        tensors: name to place.
    """

    def __init__(self, path: str | Path):
        """Parse the header.

        Args:
            path: the file.

        Raises:
            WaferError: the file is truncated, damaged, or not in this format.
        """
        self.path = Path(path)
        try:
            with self.path.open("rb") as stream:
                size = stream.seek(0, 2)
                stream.seek(0)
                prefix = stream.read(8)
                length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
                if not 2 <= length <= min(_MAX_HEADER_BYTES, size - 8):
                    raise WaferError(
                        f"{self.path}: its {size} bytes cannot hold a header of {length} "
                        "(truncated, damaged, or not a safetensors file); download it again"
                    )
                header = stream.read(length)
        except OSError as error:
            raise WaferError(f"{self.path}: cannot be read ({error})") from None
        self.tensors = self._parse(header, 8 + length, size)

    def read(self, name: str) -> np.ndarray:
        """Read one tensor as float32.

        Args:
            name: as in the file.

        Returns:
            Its values in a new array, float32.

        Raises:
            WaferError: a dtype other than float16, bfloat16, float32 or float64, or an exponent
                (F8_E8M0); NaN or infinity.
        """
        info = self.tensors[name]
        if info.dtype not in (*_FLOATS, "F8_E8M0"):
            raise WaferError(
                f"{self.path}: tensor {name} is stored as {info.dtype!r}; only F64, F32, F16 and "
                "BF16 are supported, and FP8 or MXFP4 where quantization_config says so"
            )
        with np.errstate(over="ignore", invalid="ignore"):  # check_finite reports either
            values = self.read_stored(name).astype(np.float32)
        check_finite(name, values, where=str(self.path))
        return values

    def read_stored(self, name: str) -> np.ndarray:
        """Read one tensor as it is stored.

        Args:
            name: as in the file, of a dtype of `_STORED`.

        Returns:
            Its values in their own dtype, read-only.

        Raises:
            WaferError: the file changed or cannot be read.
        """
        info = self.tensors[name]
        try:
            with self.path.open("rb") as stream:
                stream.seek(info.begin)
                raw = stream.read(info.end - info.begin)
        except OSError as error:
            raise WaferError(f"{self.path}: cannot be read ({error})") from None
        if len(raw) != info.end - info.begin:
            raise WaferError(f"{self.path}: tensor {name} was cut off while being read")
        return np.frombuffer(raw, dtype=_STORED[info.dtype]).reshape(info.shape)

    def _parse(self, header: bytes, start: int, size: int) -> dict[str, TensorInfo]:
        try:
            entries = json.loads(header.decode("utf-8"), object_pairs_hook=_no_repeats)
        except (ValueError, RecursionError) as error:
            raise self._damaged(str(error)[:120]) from None
        if not isinstance(entries, dict):
            raise self._damaged("it is not a JSON object")
        entries.pop("__metadata__", None)
        found = [self._entry(name, entry, start) for name, entry in entries.items()]
        end = start
        for info in sorted(found, key=lambda i: (i.begin, i.end)):
            # Without holes and overlaps a damaged offset cannot exchange two tensors.
            if info.begin != end:
                raise self._damaged(f"tensor {info.name!r} does not start where the last one ends")
            end = info.end
        if end != size:
            raise WaferError(
                f"{self.path}: its tensors end at byte {end} but the file has {size}: "
                "it is truncated or damaged; download it again"
            )
        return {info.name: info for info in found}

    def _entry(self, name: str, entry: Any, start: int) -> TensorInfo:
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise self._damaged(f"tensor {name!r} needs exactly dtype, shape and data_offsets")
        dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not (_sizes(shape) and _sizes(offsets) and len(offsets) == 2 and len(shape) <= 8):
            raise self._damaged(f"tensor {name!r} has no valid shape and data_offsets")
        begin, end = offsets
        if not isinstance(dtype, str) or end < begin:
            raise self._damaged(f"tensor {name!r} has no valid dtype and data_offsets")
        if dtype in _STORED:
            wanted = math.prod(shape) * np.dtype(_STORED[dtype]).itemsize
            if end - begin != wanted:
                raise self._damaged(
                    f"tensor {name!r} takes {end - begin} bytes, its shape {shape} needs {wanted}"
                )
        return TensorInfo(name, dtype, tuple(shape), start + begin, start + end)

    def _damaged(self, what: str) -> WaferError:
        return WaferError(f"{self.path}: damaged safetensors header: {what}")


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 1 << 63 for v in value)


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name appears twice")
    return result
