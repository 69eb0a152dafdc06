"""How the matrices of a decoder lie on the mesh, so that no activation is ever transposed.

A decoder layer occupies a region of Y x X PEs. Decode cuts the embedding axis over the rows (Y) and
what a projection makes of it over the columns (X); the next projection reduces over X and leaves
the embedding cut over Y again. So q, k, v, gate and up have their rows along Y, o and down along X
(WaferLLM, arXiv 2502.04563, section 4.2).

Attention heads are grouped: every key/value head, with the G query heads that share it, has its own
columns of PEs. Of a head a column holds whole RoPE pairs (element t and t + R / 2), the same pairs
of the key, the value and all G queries, so that RoPE and the products of attention are local. That
is a permutation of the rows of the projections, made when the weights are laid out. Elements that
pass through RoPE, from R on, are pairs of that kind, too, which turn by an angle of zero.

Sizes that do not divide the region are padded with zeros, which no operator ever turns into
anything else.

Axes: L layers, E embedding, F SwiGLU width, H query heads, K key/value heads, G = H / K, D head
width, R of it that RoPE turns, V vocabulary; Y and X of the region; small letters for one PE's
part. In `mesh_weights` and below R and C are the axis that a product reduces over and the other.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from wafer_jax.collectives.tiles import tile_size
from wafer_jax.models.config import DecoderConfig

PAD = -1
"""Index of an element that exists only to fill a tile."""


def blocks(length: int, parts: int) -> np.ndarray:
    """[parts, size] int: consecutive elements of an axis cut into equal parts, PAD at its end."""
    index = np.arange(parts * tile_size(length, parts)).reshape(parts, -1)
    return np.where(index < length, index, PAD)


def round_up(size: int, multiple: int) -> int:
    """The next multiple at or above ``size``."""
    return -(-size // multiple) * multiple


@dataclass(frozen=True)
class LayerLayout:
    """Tile sizes of one decoder layer on its region, and the grouping of PEs by head.

    Attributes:
      config: The model.
      mesh: (Y, X) PEs of the region.
      expert_grid: Rows and columns of regions within it that have experts of their own; all experts
        are tiled over the whole region by default.
      kv: How keys and values of a growing context lie over the rows, see `caches`.
    """

    config: DecoderConfig
    mesh: tuple[int, int]
    expert_grid: tuple[int, int] = (1, 1)
    kv: str = "shift"

    @cached_property
    def expert_region(self) -> "LayerLayout":
        """Layout of an expert on its region; rows and columns that are left over idle."""
        mesh = self.mesh[0] // self.expert_grid[0], self.mesh[1] // self.expert_grid[1]
        return replace(self, mesh=mesh, expert_grid=(1, 1))

    @property
    def expert_regions(self) -> int:
        """Regions that have experts of their own."""
        return math.prod(self.expert_grid)

    @property
    def experts_per_region(self) -> int:
        """Experts of a region; the last ones may have fewer."""
        assert self.config.experts is not None
        return tile_size(self.config.experts.count, self.expert_regions)

    @property
    def hidden_y(self) -> int:
        """Elements of the residual stream per PE when it is cut over rows (decode)."""
        return tile_size(self.config.hidden_size, self.mesh[0])

    @property
    def ffn_x(self) -> int:
        """Elements of the SwiGLU layer per PE."""
        return tile_size(self.config.intermediate_size, self.mesh[1])

    @property
    def groups(self) -> int:
        """Groups of columns that share nothing in attention."""
        return min(self.config.num_kv_heads, self.mesh[1])

    @property
    def heads(self) -> int:
        """Key/value heads per group, more than one only where K > X."""
        return tile_size(self.config.num_kv_heads, self.groups)

    @property
    def pairs(self) -> int:
        """RoPE pairs of a head per PE."""
        return tile_size(self.config.head_dim // 2, self.mesh[1] // self.groups)

    @property
    def columns(self) -> int:
        """Columns per group, no more than its pairs fill; those behind all groups idle."""
        return tile_size(self.config.head_dim // 2, self.pairs)

    @property
    def kv_x(self) -> int:
        """Elements of a token's key (or value) per PE."""
        return self.heads * 2 * self.pairs

    @property
    def q_x(self) -> int:
        """Elements of a token's queries per PE."""
        return self.kv_x * self.config.queries_per_kv

    @property
    def gate_x(self) -> int:
        """Gates of a token's queries per PE."""
        return self.q_x * self.config.attention_gate

    @property
    def qkv_x(self) -> int:
        """Columns of the fused projection of q, k, v and gates per PE."""
        return self.q_x + 2 * self.kv_x + self.gate_x

    @property
    def hidden_x(self) -> int:
        """Elements of the residual stream per PE when it is cut over columns (prefill)."""
        return self.contracted(tile_size(self.config.hidden_size, self.mesh[1]))

    def contracted(self, size: int) -> int:
        """Columns per PE of the left operand of MeshGEMM, rounded up to whole blocks.

        On a region that is not square the contracted axis is cut into lcm(Y, X) blocks.
        """
        return round_up(size, math.lcm(*self.mesh) // self.mesh[1])

    def weight_rows(self, size: int) -> int:
        """Rows per PE of MeshGEMM's right operand, the left one having so many columns per PE."""
        return size * self.mesh[1] // self.mesh[0]

    def attention_rows(self, tokens: int) -> int:
        """Keys per row of PEs in prefill, rounded up to whole blocks of a group's mesh Y x c."""
        return round_up(tokens, math.lcm(self.mesh[0], self.columns) // self.mesh[0])

    @cached_property
    def pair_index(self) -> np.ndarray:
        """[p, X] int: RoPE pair of each place of each column, those that turn first, or PAD."""
        column = np.arange(self.mesh[1])
        first = np.where(column < self.groups * self.columns, column % self.columns, 1 << 30)
        index = first * self.pairs + np.arange(self.pairs)[:, None]
        return np.where(index < self.config.head_dim // 2, index, PAD)

    @cached_property
    def head_index(self) -> np.ndarray:
        """[2, p, X] int: element of a head at each place, first and second of a pair, or PAD."""
        pair, whole = self.pair_index, self.config.head_dim
        turned = self.config.rope.turned(whole)
        first = np.where(pair < turned // 2, pair, pair + turned // 2)
        second = pair + np.where(pair < turned // 2, turned // 2, whole // 2)
        return np.where(pair != PAD, [first, second], PAD)

    @cached_property
    def kv_index(self) -> np.ndarray:
        """[heads, 2, p, X] int: row of the k and v projections at each place, or PAD."""
        c, inside = self.config, self.head_index
        head = np.arange(self.mesh[1]) // self.columns * self.heads
        head = (head + np.arange(self.heads)[:, None])[:, None, None]  # [heads, 1, 1, X]
        return np.where((inside != PAD) & (head < c.num_kv_heads), head * c.head_dim + inside, PAD)

    @property
    def inverse_frequencies(self) -> np.ndarray:
        """[p, X] float64: angle per position of each pair; 0 of those that pass through."""
        config = self.config
        turning = config.rope.inverse_frequencies(config.head_dim)
        passing = config.head_dim // 2 - len(turning)
        return np.pad(turning, (0, passing))[self.pair_index]

    @property
    def magnitudes(self) -> np.ndarray:
        """[p, X] float64: factor of each pair's cosine and sine."""
        rope = self.config.rope
        return np.where(self.inverse_frequencies == 0, 1.0, rope.magnitude)

    @cached_property
    def q_index(self) -> np.ndarray:
        """[heads, G, 2, p, X] int: row of the q projection at each place, or PAD."""
        c = self.config
        kv = self.kv_index[:, None]
        head, inside = kv // c.head_dim, kv % c.head_dim
        query = head * c.queries_per_kv + np.arange(c.queries_per_kv)[:, None, None, None]
        return np.where(kv != PAD, query * c.head_dim + inside, PAD)

    @cached_property
    def query_index(self) -> np.ndarray:
        """[heads, G, groups] int: query head of each place of each group of columns, or PAD."""
        first = self.q_index[:, :, 0, 0, : self.groups * self.columns : self.columns]
        return np.where(first != PAD, first // self.config.head_dim, PAD)

    @property
    def q_columns(self) -> np.ndarray:
        """[X, q] int: rows of the q projection that each column of PEs holds, or PAD."""
        return self.q_index.reshape(-1, self.mesh[1]).T

    @property
    def kv_columns(self) -> np.ndarray:
        """[X, kv] int: rows of the k and v projections that each column of PEs holds, or PAD."""
        return self.kv_index.reshape(-1, self.mesh[1]).T


@dataclass(frozen=True)
class VocabLayout:
    """Tile sizes of the embedding or the head: E over the rows, V over the columns.

    Attributes:
      config: The model.
      mesh: (Y, X) PEs of the region.
    """

    config: DecoderConfig
    mesh: tuple[int, int]

    @property
    def hidden_y(self) -> int:
        """Elements of the residual stream per PE."""
        return tile_size(self.config.hidden_size, self.mesh[0])

    @property
    def vocab_x(self) -> int:
        """Tokens of the vocabulary per PE."""
        return tile_size(self.config.vocab_size, self.mesh[1])
