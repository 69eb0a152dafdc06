"""Packed matrices in one form, whatever their file had: codes, and factors of runs of codes.

A weight is ``code * scale``, plus an offset in formats that have one. Formats whose blocks also
span rows repeat their scales over them.

Source of the block layouts: ``block_q4_0`` ... in ggml's ``ggml-common.h``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import gguf
import ml_dtypes
import numpy as np

from wafer_jax.models.quantized import fp8, mxfp4

_KINDS = {
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
    "q4_1": gguf.GGMLQuantizationType.Q4_1,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "mxfp4": gguf.GGMLQuantizationType.MXFP4,
}
FORMATS = (*_KINDS, "fp8")
"""What can be packed, and multiplied without being unpacked first."""

_BLOCK = 32  # of all kinds above


@dataclass(frozen=True, eq=False)
class PackedMatrix:
    """A matrix ``[N, K]``, K the axis that a product contracts.

    Attributes:
        codes: ``[N, K]`` uint8, int8 or float8_e4m3fn.
        scales: ``[N, ceil(K / block)] float32``.
        offsets: ``[N, ceil(K / block)] float32``, or None.
        block: codes along K that share a scale.
    """

    codes: np.ndarray
    scales: np.ndarray
    offsets: np.ndarray | None
    block: int

    @property
    def shape(self) -> tuple[int, ...]:
        """``(N, K)``."""
        return self.codes.shape

    def map_rows(self, change: Callable[[np.ndarray], np.ndarray]) -> "PackedMatrix":
        """Apply what moves whole rows."""
        return replace(
            self,
            codes=change(self.codes),
            scales=change(self.scales),
            offsets=None if self.offsets is None else change(self.offsets),
        )

    def unpack(self) -> np.ndarray:
        """The weights, ``[N, K] float32``."""
        spread = lambda factors: np.repeat(factors, self.block, axis=1)[:, : self.codes.shape[1]]
        values = self.codes.astype(np.float32) * spread(self.scales)
        return values if self.offsets is None else values + spread(self.offsets)


Matrix = np.ndarray | PackedMatrix
"""Weights [N, K], plain or packed."""


def below(*matrices: Matrix) -> Matrix:
    """Rows of one format below one another."""
    packed = [m for m in matrices if isinstance(m, PackedMatrix)]
    if not packed:
        return np.concatenate([m for m in matrices if isinstance(m, np.ndarray)])
    join = lambda arrays: np.concatenate(list(arrays))
    return replace(
        packed[0],
        codes=join(m.codes for m in packed),
        scales=join(m.scales for m in packed),
        offsets=None if packed[0].offsets is None else join(m.offsets for m in packed),
    )


@dataclass(frozen=True, eq=False)
class PackedSource:
    """A matrix that a checkpoint stores packed, not read yet.

    Attributes:
        format: a name of `FORMATS`.
        read: gives it.
    """

    format: str
    read: Callable[[], PackedMatrix]


def pack(weight: np.ndarray, name: str) -> PackedMatrix:
    """Quantise a matrix as the gguf package (or, to FP8, `fp8.quantise`) does.

    Args:
        weight: ``[N, K] float32``; the last block of a row is filled up with zeros.
        name: the format, one of `FORMATS`.

    Returns:
        The packed matrix.
    """
    if name == "fp8":
        return from_fp8(*fp8.quantise(weight), fp8.BLOCK)
    columns = weight.shape[1]
    filled = np.pad(weight, [(0, 0), (0, -columns % _BLOCK)])
    blocks = gguf.quants.quantize(np.ascontiguousarray(filled, np.float32), _KINDS[name])
    return from_blocks(blocks, name, columns)


def from_blocks(raw: np.ndarray, name: str, columns: int) -> PackedMatrix:
    """Take the blocks of a GGUF tensor apart.

    Args:
        raw: ``[N, bytes] uint8``, whole rows of blocks.
        name: their format.
        columns: K.

    Returns:
        The packed matrix.
    """
    size = gguf.GGML_QUANT_SIZES[_KINDS[name]][1]
    blocks = np.asarray(raw).reshape(raw.shape[0], -1, size)
    offsets = None
    if name == "mxfp4":
        scales = np.ldexp(np.float32(1), blocks[..., 0].astype(np.int32) - mxfp4.BIAS)
        codes = mxfp4.VALUES.astype(ml_dtypes.float8_e4m3fn)[_nibbles(blocks[..., 1:])]
    elif name == "q8_0":
        scales, codes = _half(blocks, 0), np.ascontiguousarray(blocks[..., 2:]).view(np.int8)
    elif name == "q4_0":
        scales, codes = _half(blocks, 0), _nibbles(blocks[..., 2:]).astype(np.int8) - np.int8(8)
    else:
        scales, offsets = _half(blocks, 0), _half(blocks, 2)
        codes = _nibbles(blocks[..., 4:])
    codes = codes.reshape(raw.shape[0], -1)[:, :columns]
    return PackedMatrix(codes, scales, offsets, _BLOCK)


def from_fp8(codes: np.ndarray, scales: np.ndarray, block: tuple[int, int]) -> PackedMatrix:
    """Join FP8 codes ``[N, K]`` and the scales of their blocks."""
    rows = np.repeat(scales.astype(np.float32), block[0], axis=0)[: codes.shape[0]]
    return PackedMatrix(codes, rows, None, block[1])


def from_mxfp4(blocks: np.ndarray, scales: np.ndarray) -> PackedMatrix:
    """Join MXFP4 blocks ``[..., G, 16]`` and scales ``[..., G]``, all leading axes as rows."""
    codes = mxfp4.VALUES.astype(ml_dtypes.float8_e4m3fn)[mxfp4.nibbles(blocks)]
    factors = np.ldexp(np.float32(1), scales.astype(np.int32) - mxfp4.BIAS)
    groups = scales.shape[-1]
    return PackedMatrix(
        codes.reshape(-1, groups * mxfp4.GROUP), factors.reshape(-1, groups), None, mxfp4.GROUP
    )


def _half(blocks: np.ndarray, place: int) -> np.ndarray:
    """The float16 at a place of every block, as float32."""
    raw = np.ascontiguousarray(blocks[..., place : place + 2])
    return raw.view(np.float16)[..., 0].astype(np.float32)


def _nibbles(raw: np.ndarray) -> np.ndarray:
    """Low nibbles of all bytes, then the high ones."""
    return np.concatenate([raw & 0xF, raw >> 4], axis=-1)
