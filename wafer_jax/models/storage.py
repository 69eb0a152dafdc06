"""How weights lie in a PE's SRAM: plain, or packed in blocks that share factors.

A tile keeps the codes of its weights, and the factors of every block that it has a part of: where
a block is cut between PEs, each of them holds its factors. So a format of 20 bytes per 32 weights
takes just that where tiles hold whole blocks, and more where they do not.

Packed weights turn into numbers tile by tile in every product, a row at a time, with as many vector
instructions per row as the format's arithmetic has steps (take the code out of its word, join its
high bits, multiply, add); the counts are an estimate, no machine's kernels are published.

Sources of the formats: ``GGML_QUANT_SIZES`` of the gguf package and ``block_q*`` in ggml's
``ggml-common.h``; DeepSeek-V3's ``weight_block_size``; the OCP MX specification 1.0.
"""

import math
from dataclasses import dataclass

from wafer_jax.errors import WaferError
from wafer_jax.hardware import DTYPE_BYTES


@dataclass(frozen=True)
class Span:
    """What one PE holds of an axis: equal runs of consecutive elements.

    Attributes:
      length: Elements of a run.
      runs: Number of runs.
      unit: Runs start at multiples of it; the length by default.
    """

    length: int
    runs: int = 1
    unit: int | None = None

    @property
    def size(self) -> int:
        """Elements."""
        return self.length * self.runs

    def blocks(self, block: int) -> int:
        """The most blocks of so many elements that the runs have a part of."""
        unit = math.gcd(self.unit or self.length, block)
        touched = (block - unit + self.length - 1) // block + 1
        return self.runs * min(touched, self.length)


@dataclass(frozen=True)
class Storage:
    """A format of weights.

    Attributes:
      name: As options name it.
      bits: Of one weight's code.
      compute: Element type of KV cache and activations, and of a weight once it is a number.
      vocabulary: Format of the embedding and the head beside projections in this one.
      block: Rows (of the axis that a product contracts) and columns that share factors.
      block_bytes: Their factors.
      instructions: Vector instructions that turn a row of a tile into numbers.
      beside_experts: Format of attention's projections beside experts in this one.
    """

    name: str
    bits: int
    compute: str
    vocabulary: str
    block: tuple[int, int] = (1, 1)
    block_bytes: int = 0
    instructions: int = 0
    beside_experts: str | None = None

    def of_attention(self, has_experts: bool) -> "Storage":
        """Format of the projections of attention."""
        if has_experts and self.beside_experts is not None:
            return STORAGES[self.beside_experts]
        return self

    @property
    def is_packed(self) -> bool:
        """Whether weights are codes that need factors."""
        return self.block_bytes > 0

    @property
    def vector_bytes(self) -> int:
        """Bytes of an element of what packed formats leave in float32: norms, biases, routers."""
        return DTYPE_BYTES["float32" if self.is_packed else self.compute]

    def tile_bytes(self, rows: Span, columns: Span) -> int:
        """Bytes of one PE's tile of a matrix.

        Args:
          rows: What it holds of the axis that a product contracts.
          columns: What it holds of the other one.
        """
        codes = -(-rows.size * columns.size * self.bits // 8)
        blocks = rows.blocks(self.block[0]) * columns.blocks(self.block[1])
        return codes + blocks * self.block_bytes


@dataclass(frozen=True)
class MatrixTile:
    """What one PE holds of each of several matrices of one shape.

    Attributes:
      rows: Of the axis that a product contracts.
      columns: Of the other one.
      count: Number of matrices.
      packs: Whether packed formats pack them, as they do all projections.
      mesh: (Y, X) PEs that each of them is cut over; all of the layer's region by default.
      turned: Whether their rows lie along another axis in prefill than in decode.
    """

    rows: Span
    columns: Span
    count: int = 1
    packs: bool = True
    mesh: tuple[int, int] | None = None
    turned: bool = False

    def bytes_in(self, storage: Storage) -> int:
        """Bytes of one of them."""
        if self.packs:
            return storage.tile_bytes(self.rows, self.columns)
        return self.rows.size * self.columns.size * storage.vector_bytes

    def unpacked_row(self, storage: Storage) -> int:
        """Elements of the row that a product unpacks at a time."""
        return self.columns.size if self.packs and storage.is_packed else 0


def _ggml(name: str, bits: int, weights: int, size: int, vocabulary: str, steps: int) -> Storage:
    """``size`` bytes for so many weights, codes and factors together."""
    factors = size - weights * bits // 8
    return Storage(name, bits, "float16", vocabulary, (weights, 1), factors, steps)


STORAGES = {
    storage.name: storage
    for storage in (
        Storage("float32", 32, "float32", "float32"),
        Storage("float16", 16, "float16", "float16"),
        Storage("bfloat16", 16, "bfloat16", "bfloat16"),
        _ggml("q8_0", 8, 32, 34, "q8_0", 2),
        _ggml("q4_1", 4, 32, 20, "q8_0", 3),
        _ggml("q4_0", 4, 32, 18, "q8_0", 3),
        _ggml("q6_k", 6, 256, 210, "q6_k", 5),
        _ggml("q5_k", 5, 256, 176, "q6_k", 5),
        _ggml("q4_k", 4, 256, 144, "q6_k", 3),
        _ggml("q3_k", 3, 256, 110, "q6_k", 5),
        _ggml("q2_k", 2, 256, 84, "q6_k", 3),
        Storage("fp8", 8, "bfloat16", "bfloat16", (128, 128), 4, 2),
        Storage("mxfp4", 4, "bfloat16", "bfloat16", (32, 1), 1, 3, beside_experts="bfloat16"),
    )
}
"""By name. GGUF files of 4 bits keep the embedding in Q8_0, those of K-quants in Q6_K, FP8 and
MXFP4 checkpoints in bfloat16; MXFP4 checkpoints of models with experts pack only these."""


def storage_of(dtype: str) -> Storage:
    """The format that a name stands for.

    Raises:
      WaferError: An unknown name; the line lists the known ones.
    """
    if dtype not in STORAGES:
        raise WaferError(f"dtype {dtype!r}: choose one of {', '.join(STORAGES)}")
    return STORAGES[dtype]
