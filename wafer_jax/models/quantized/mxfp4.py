"""MXFP4: 4-bit floats (e2m1) in groups of 32 that share a power of two (e8m0).

Two codes lie in a byte, the low nibble first. GPT-OSS stores its experts so: ``..._blocks`` and
``..._scales``, with groups along the axis that a product contracts.

Source: OCP Microscaling Formats (MX) Specification 1.0; ``convert_moe_packed_tensors`` in
transformers' ``integrations/mxfp4.py``.
"""

import numpy as np

GROUP = 32
"""Weights that share a scale."""

VALUES = np.array(
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0],
    np.float32,
)
"""What each code stands for: sign, two bits of exponent, one of mantissa."""

NAN_SCALE = 255
"""What e8m0 has for a scale that is no number."""

BIAS = 127
"""Of e8m0."""


def nibbles(blocks: np.ndarray) -> np.ndarray:
    """Take two codes out of every byte, ``[..., 16]`` to ``[..., 32]``, the low one first."""
    return np.stack([blocks & 0xF, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], GROUP)


def dequantise(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Undo the packing.

    Args:
        blocks: ``[..., G, 16] uint8``, two codes per byte.
        scales: ``[..., G] uint8``, exponents of two with a bias of 127.

    Returns:
        ``[..., 32 G] float32``. A scale of 255 is 2^128 as in transformers, although the
        specification calls it NaN.
    """
    with np.errstate(over="ignore"):
        values = np.ldexp(VALUES[nibbles(blocks)], scales.astype(np.int32)[..., None] - BIAS)
    return values.reshape(*scales.shape[:-1], -1)
