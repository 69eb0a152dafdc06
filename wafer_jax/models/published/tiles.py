"""How WaferLLM's code cuts a decoder layer on P x P PEs.

The published decode kernel has one head as wide as the layer: keys and values have as many
elements as queries, whatever the model's key/value heads, and every size is rounded up to a
multiple of P (its configurations of LLaMA3-8B and Qwen2-72B, public repository MeshInfra/WaferLLM).
Prefill and the baselines are taken to be cut alike, so that all systems do the same work.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.collectives.tiles import tile_size
from wafer_jax.collectives.transpose import check_square
from wafer_jax.hardware import HardwareSpec
from wafer_jax.models.config import DecoderConfig

DTYPE = "float16"
"""Of everything in that code, sums included."""


class Product(NamedTuple):
    """A PE's part of a matrix product, [rows, contracted] x [contracted, columns]."""

    name: str
    rows: int
    contracted: int
    columns: int

    @property
    def left_words(self) -> int:
        """Words of the left tile, of activations."""
        return block_words(self.rows * self.contracted, DTYPE)

    @property
    def right_words(self) -> int:
        """Words of the right tile, of weights, keys or values."""
        return block_words(self.contracted * self.columns, DTYPE)

    @property
    def result_words(self) -> int:
        """Words of the result's tile."""
        return block_words(self.rows * self.columns, DTYPE)


@dataclass(frozen=True)
class LayerTiles:
    """Elements per PE of each axis of a layer.

    Attributes:
      side: P.
      hidden: Of the residual stream, and of queries, keys and values.
      ffn: Of the SwiGLU layer.
      context: Tokens in the KV cache; those of the prompt, in prefill.
    """

    side: int
    hidden: int
    ffn: int
    context: int

    def products(self, rows: int) -> tuple[Product, ...]:
        """The nine products of a layer, for so many tokens per PE."""
        e, f, t = self.hidden, self.ffn, self.context
        return (
            *(Product(name, rows, e, e) for name in "qkv"),
            Product("scores", rows, e, t),
            Product("attention output", rows, t, e),
            Product("o", rows, e, e),
            Product("up", rows, e, f),
            Product("gate", rows, e, f),
            Product("down", rows, f, e),
        )


def tiles_of(hw: HardwareSpec, config: DecoderConfig, tokens: int) -> LayerTiles:
    """Cut a layer.

    Args:
      hw: Machine; its mesh is the region of a layer.
      config: The model.
      tokens: Tokens of the prompt or in the KV cache.

    Raises:
      WaferError: A mesh that is not square.
    """
    side = check_square(hw.mesh)
    sizes = config.hidden_size, config.intermediate_size, tokens
    return LayerTiles(side, *(tile_size(size, side) for size in sizes))


def groups_of(side: int) -> int:
    """Groups of the K-tree: the largest divisor of P that is not above its root.

    So have all published configurations but one (P = 512, with 32 groups instead of 16).
    """
    return max(g for g in range(1, math.isqrt(side) + 1) if side % g == 0)
