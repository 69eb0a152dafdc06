"""Cycles of one operator on a region, and how they are counted (cost level).

Matrix products and allreduces cost what their collectives' ``cost`` says, all else is counted in
vector instructions. A PE's time is split in three: kernels; words that it sends or receives while
it computes nothing; and waiting, for hops, ramps, and PEs whose turn comes first.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from wafer_jax.collectives import allreduce_ktree, gemm_transposed, relayout
from wafer_jax.collectives.gemm_cost import cost_parts
from wafer_jax.collectives.gemm_layout import block_words, layout_of
from wafer_jax.collectives.kernels import gemm_cycles, gemv_cycles
from wafer_jax.collectives.tiles import Axis, tile_size
from wafer_jax.hardware import WORD_BYTES, HardwareSpec
from wafer_jax.models.operator_routes import (
    STREAM_ROUTES,
    Routes,
    gemm_routes,
    transposed_routes,
    tree_routes,
)
from wafer_jax.models.storage import STORAGES, Storage

EXP = 9
"""Vector instructions of an exponential: (1 + x / 256)^256, as in WaferLLM's kernels."""
RECIPROCAL = 6
"""Vector instructions of 1 / x or 1 / sqrt(x): two Newton steps (an estimate)."""


@dataclass(frozen=True)
class OperatorCost:
    """What one operator takes.

    Attributes:
      operator: Its name.
      cycles: From the first PE's start to the last one's end.
      compute_cycles: In kernels.
      communication_cycles: Sending or receiving a word, and not computing at the same time.
      moved_bytes: What all PEs of the region send; a multicast counts once.
      routes: Of the collectives that it runs.
    """

    operator: str
    cycles: int
    compute_cycles: int
    communication_cycles: int
    moved_bytes: int
    routes: frozenset[Routes] = frozenset()

    @property
    def idle_cycles(self) -> int:
        """Waiting."""
        return self.cycles - self.compute_cycles - self.communication_cycles


def in_sequence(operator: str, *parts: OperatorCost) -> OperatorCost:
    """Several steps, one after another, under one name."""
    return OperatorCost(
        operator,
        sum(p.cycles for p in parts),
        sum(p.compute_cycles for p in parts),
        sum(p.communication_cycles for p in parts),
        sum(p.moved_bytes for p in parts),
        frozenset().union(*(p.routes for p in parts)),
    )


def expected(costs: Iterable[tuple[float, OperatorCost]]) -> OperatorCost:
    """One operator that takes this or that, with a probability each."""
    found = list(costs)
    mean = lambda field: round(sum(p * getattr(cost, field) for p, cost in found))
    return OperatorCost(
        found[0][1].operator,
        mean("cycles"),
        mean("compute_cycles"),
        mean("communication_cycles"),
        mean("moved_bytes"),
        frozenset().union(*(cost.routes for _, cost in found)),
    )


@dataclass(frozen=True)
class Meter:
    """Counts operators for one machine, element type and K-tree.

    Attributes:
      hw: The machine; its mesh is not looked at.
      dtype: Element type of activations, and of weights when they are multiplied.
      k: Phases of the K-tree allreduces.
      storage: Format of the weights; packed ones are unpacked before every product.
      batch: Sequences whose tokens are decoded together: vector work and words count so often, the
        latency of an allreduce and the unpacking of weights once.
    """

    hw: HardwareSpec
    dtype: str
    k: int = 2
    storage: Storage = STORAGES["float32"]
    batch: int = 1

    @property
    def plain(self) -> "Meter":
        """For weights that no format packs."""
        return replace(self, storage=STORAGES["float32"])

    def vector(self, elements: int, instructions: int = 1) -> int:
        """Cycles of so many vector instructions over ``elements`` each, of every sequence."""
        return self.batch * self._instructions(elements, instructions)

    def gemv(self, rows: int, columns: int) -> int:
        """Cycles of every sequence's vector times a tile [r, c]."""
        return self.batch * gemv_cycles(self.hw, rows, columns, self.dtype)

    def compute(self, operator: str, cycles: int) -> OperatorCost:
        """Something local."""
        return OperatorCost(operator, cycles, cycles, 0, 0)

    def allreduce(
        self,
        operator: str,
        mesh: tuple[int, int],
        elements: int,
        axis: Axis,
        *,
        copies: int = 1,
        compute: int = 0,
    ) -> OperatorCost:
        """Kernels of ``compute`` cycles, then a K-tree allreduce on ``copies`` meshes at once.

        ``elements`` are those of one sequence, ``compute`` is of all.
        """
        words = block_words(self.batch * elements, self.dtype)
        length = mesh[0 if axis == "y" else 1]
        cycles = allreduce_ktree.cost(self.hw.replace(mesh=mesh), words, self.k, axis)
        alone = length == 1
        # A member passes the words of the sum on, and receives the result.
        issue = 0 if alone else min(2 * words, cycles)
        moved = 0 if alone else copies * mesh[0] * mesh[1] * words
        routes = frozenset({tree_routes(mesh, axis, self.k)} if length > 1 else ())
        return OperatorCost(operator, compute + cycles, compute, issue, moved * WORD_BYTES, routes)

    def multiply(self, tile: tuple[int, int]) -> int:
        """Cycles of a PE's own part of MeshGEMV with tiles [r, c], unpacked on the way."""
        return self.gemv(*tile) + self.unpacking(*tile)

    def matvec(
        self, operator: str, mesh: tuple[int, int], tile: tuple[int, int], axis: Axis
    ) -> OperatorCost:
        """MeshGEMV with tiles [r, c] whose rows lie along ``axis``, as `gemv.cost` counts it."""
        return self.allreduce(operator, mesh, tile[1], axis, compute=self.multiply(tile))

    def unpacking(self, rows: int, columns: int) -> int:
        """Cycles that turn a tile of packed weights into numbers, row by row; 0 of plain ones."""
        steps = self.storage.instructions
        return rows * self._instructions(columns, steps) if steps else 0

    def project(
        self, operator: str, mesh: tuple[int, int], sizes: tuple[int, int, int]
    ) -> OperatorCost:
        """`matmul` whose right operand are weights; every tile that comes by is unpacked."""
        unpacking = self.unpacking(sizes[1], tile_size(sizes[2], mesh[1]))
        return in_sequence(
            operator, self.compute("", unpacking), self.matmul(operator, mesh, sizes)
        )

    def matmul(
        self, operator: str, mesh: tuple[int, int], sizes: tuple[int, int, int], copies: int = 1
    ) -> OperatorCost:
        """MeshGEMM of sizes (M, K, N), aligned on chip, on ``copies`` meshes at once."""
        parts = cost_parts(self.hw.replace(mesh=mesh), *sizes, dtype=self.dtype)
        layout, (height, width) = layout_of(mesh, *sizes), mesh
        words = 0
        for length, blocks, rounds, size in (
            (width, layout.a_blocks, layout.a_rounds, layout.tile_m * layout.block_k),
            (height, layout.b_blocks, layout.b_rounds, layout.block_k * layout.tile_n),
        ):
            moves = layout.steps - 1 + rounds * blocks if length > 1 else 0
            words += moves * block_words(size, self.dtype)
        exposed = parts.total - parts.compute
        moved = copies * height * width * words * WORD_BYTES
        issue, routes = min(2 * words, exposed), frozenset({gemm_routes(mesh)})
        return OperatorCost(operator, parts.total, parts.compute, issue, moved, routes)

    def matmul_transposed(
        self, operator: str, mesh: tuple[int, int], sizes: tuple[int, int, int], copies: int = 1
    ) -> OperatorCost:
        """Transposed MeshGEMM of sizes (M, K, N), on ``copies`` meshes at once."""
        (height, width), (m, k, n) = mesh, sizes
        cycles = gemm_transposed.cost(self.hw.replace(mesh=mesh), m, k, n, dtype=self.dtype)
        tile_m, tile_k = tile_size(m, height), tile_size(k, width)
        steps = math.lcm(height, width)
        tile_n = tile_size(n, steps) * steps // height
        compute = height * gemm_cycles(self.hw, tile_m, tile_k, tile_n, self.dtype)
        passed = block_words(tile_n * tile_k, self.dtype) if height > 1 else 0
        summed = tile_m * tile_n if width > 1 else 0
        issue = min(height * (2 * passed + summed), cycles - compute)
        moved = copies * height * width * height * (passed + summed) * WORD_BYTES
        routes = frozenset({transposed_routes(mesh)})
        return OperatorCost(operator, cycles, compute, issue, moved, routes)

    def stream(self, operator: str, words: int, hops: int, moved_words: int) -> OperatorCost:
        """Words over one busiest link on ways of so many hops, and all words that are sent.

        Both of one sequence.
        """
        words, moved_words = self.batch * words, self.batch * moved_words
        cycles = relayout.stream_cycles(self.hw, words, hops)
        issue, routes = min(words, cycles), frozenset({STREAM_ROUTES})
        return OperatorCost(operator, cycles, 0, issue, moved_words * WORD_BYTES, routes)

    def host_link(self, operator: str, moved_bytes: int) -> OperatorCost:
        """Bytes of one sequence from one wafer to the next over the host link."""
        moved_bytes *= self.batch
        seconds = moved_bytes / self.hw.host_link_bytes_per_s
        cycles = math.ceil(seconds * self.hw.clock_hz)
        return OperatorCost(operator, cycles, 0, cycles, moved_bytes)

    def _instructions(self, elements: int, count: int) -> int:
        return math.ceil(count * self.hw.vector_cycles(elements, self.dtype))
