"""FP8 (e4m3) matrices with one scale per block, as DeepSeek-V3 and Qwen3 publish them.

A weight is its code times the scale of its block. Blocks at the lower and right edge of a matrix
that does not divide into them are cut off.

Source: ``weight_dequant_kernel`` in DeepSeek-V3's ``kernel.py``; ``_dequantize_fp8_weight`` in
transformers' ``finegrained_fp8.py``.
"""

import ml_dtypes
import numpy as np

BLOCK = (128, 128)
"""Rows and columns of a block in all published checkpoints."""

_LARGEST = np.float32(448)  # of e4m3


def dequantise(codes: np.ndarray, scales: np.ndarray, block: tuple[int, int] = BLOCK) -> np.ndarray:
    """Multiply every block by its scale, in float32.

    Args:
        codes: ``[..., N, K] float8_e4m3fn``.
        scales: ``[..., ceil(N / n), ceil(K / k)]``, any float type.
        block: rows n and columns k of a block.

    Returns:
        ``[..., N, K] float32``.
    """
    values = codes.astype(np.float32)
    values *= over_block(scales.astype(np.float32), block, codes.shape)
    return values


def quantise(weight: np.ndarray, block: tuple[int, int] = BLOCK) -> tuple[np.ndarray, np.ndarray]:
    """Choose scales so that the largest element of every block has the largest code.

    Args:
        weight: ``[N, K] float32``.
        block: rows n and columns k of a block.

    Returns:
        Codes ``[N, K] float8_e4m3fn`` and scales ``[ceil(N / n), ceil(K / k)] float32``.
    """
    (rows, columns), (n, k) = scale_shape(weight.shape, block), block
    padding = [(0, rows * n - weight.shape[0]), (0, columns * k - weight.shape[1])]
    blocks = np.pad(np.abs(weight), padding).reshape(rows, n, columns, k)
    largest = blocks.max(axis=(1, 3))
    scales = np.where(largest > 0, largest / _LARGEST, np.float32(1)).astype(np.float32)
    scaled = weight / over_block(scales, block, weight.shape)
    codes = np.clip(scaled, -_LARGEST, _LARGEST).astype(ml_dtypes.float8_e4m3fn)
    return codes, scales


def scale_shape(shape: tuple[int, ...], block: tuple[int, int] = BLOCK) -> tuple[int, ...]:
    """Shape of the scales of a matrix, or of a stack of matrices."""
    *lead, rows, columns = shape
    return (*lead, -(-rows // block[0]), -(-columns // block[1]))


def over_block(scales: np.ndarray, block: tuple[int, int], shape: tuple[int, ...]) -> np.ndarray:
    """Repeat every scale over its block, cut to a matrix of ``shape``."""
    rows = np.repeat(scales, block[0], axis=-2)[..., : shape[-2], :]
    return np.repeat(rows, block[1], axis=-1)[..., : shape[-1]]
