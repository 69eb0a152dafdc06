"""How the heads of gated DeltaNet lie on the mesh.

Every key head, with the value heads that share it, has its own columns of PEs. Projections leave q,
k, v and z over these columns, Dk and Dv elements cut alike. The state [Dk, Dv] of a value head lies
over both axes: Dk over the columns, where k and q are, and Dv over the rows.

The projections of the rate and the decay are one column of weights per value head. Every column of
PEs has those of its heads itself: a few more weights, and nothing is to be spread.

Axes: g groups of c columns, m key heads of a group, r value heads per key head, dk elements of a
key per PE, dvx and dvy elements of a value per PE where it lies over columns or over rows; Y, X as
in `mesh_layout`.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.collectives.tiles import tile_size
from wafer_jax.models.config import DeltaHeads
from wafer_jax.models.mesh_layout import PAD, LayerLayout, blocks
from wafer_jax.models.mesh_relay import pad


@dataclass(frozen=True)
class DeltaLayout:
    """Tile sizes of one layer of gated DeltaNet, and the grouping of PEs by key head.

    Attributes:
      delta: The heads.
      mesh: (Y, X) PEs of the region.
    """

    delta: DeltaHeads
    mesh: tuple[int, int]

    @classmethod
    def of(cls, layout: LayerLayout) -> "DeltaLayout":
        """The layout of a layer's gated DeltaNet."""
        assert layout.config.delta is not None
        return cls(layout.config.delta, layout.mesh)

    @property
    def groups(self) -> int:
        """Groups of columns that share nothing."""
        return min(self.delta.keys, self.mesh[1])

    @property
    def heads(self) -> int:
        """Key heads m per group, more than one only where there are more than columns."""
        return tile_size(self.delta.keys, self.groups)

    @property
    def value_heads(self) -> int:
        """Value heads m r per group."""
        return self.heads * self.delta.per_key

    @property
    def key_x(self) -> int:
        """Elements dk of a key per PE."""
        return tile_size(self.delta.key_dim, self.mesh[1] // self.groups)

    @property
    def value_x(self) -> int:
        """Elements dvx of a value per PE where it lies over columns."""
        return tile_size(self.delta.value_dim, self.mesh[1] // self.groups)

    @property
    def value_y(self) -> int:
        """Elements dvy of a value per PE where it lies over rows."""
        return tile_size(self.delta.value_dim, self.mesh[0])

    @property
    def columns(self) -> int:
        """Columns per group, no more than keys or values fill; those behind all groups idle."""
        key, value = self.delta.key_dim, self.delta.value_dim
        return max(tile_size(key, self.key_x), tile_size(value, self.value_x))

    @property
    def keys_x(self) -> int:
        """Elements of a token's keys (or queries) per PE."""
        return self.heads * self.key_x

    @property
    def values_x(self) -> int:
        """Elements of a token's values per PE."""
        return self.value_heads * self.value_x

    @property
    def channels_x(self) -> int:
        """Elements of queries, keys and values per PE, which the convolution runs over."""
        return 2 * self.keys_x + self.values_x

    @property
    def state_size(self) -> int:
        """Elements of the state per PE."""
        return self.value_heads * self.key_x * self.value_y

    def _elements(self, width: int) -> np.ndarray:
        """[d, X] int: element of a head at each place of each column, or PAD."""
        over_group = blocks(width, self.columns)
        index = np.tile(over_group, (self.groups, 1))
        idle = np.full((self.mesh[1] - len(index), index.shape[1]), PAD)
        return np.concatenate([index, idle]).T

    @property
    def _value_heads(self) -> np.ndarray:
        """[m, r, X] int: number of the value head, beyond the last one where there is none."""
        key = np.arange(self.mesh[1]) // self.columns * self.heads
        key = key + np.arange(self.heads)[:, None]
        return key[:, None] * self.delta.per_key + np.arange(self.delta.per_key)[:, None]

    @property
    def key_columns(self) -> np.ndarray:
        """[X, m dk] int: rows of the q and k projections that each column holds, or PAD."""
        heads = self._value_heads[:, :1] // self.delta.per_key  # [m, 1, X]
        return self._columns(heads, self.delta.keys, self.delta.key_dim)

    @property
    def value_columns(self) -> np.ndarray:
        """[X, m r dvx] int: rows of the v and z projections that each column holds, or PAD."""
        return self._columns(self._value_heads, self.delta.values, self.delta.value_dim)

    def _columns(self, heads: np.ndarray, count: int, width: int) -> np.ndarray:
        element = self._elements(width)
        index = heads[:, :, None] * width + element
        index = np.where((element != PAD) & (heads < count)[:, :, None], index, PAD)
        return index.reshape(-1, self.mesh[1]).T

    @property
    def head_columns(self) -> np.ndarray:
        """[X, m r] int: the value heads of each column, the same in a whole group, or PAD."""
        used = np.arange(self.mesh[1]) < self.groups * self.columns
        there = used & (self._value_heads < self.delta.values)
        return np.where(there, self._value_heads, PAD).reshape(-1, self.mesh[1]).T

    @property
    def value_elements(self) -> np.ndarray:
        """[dvx, X] int: element of a value at each place of each column, or PAD."""
        return self._elements(self.delta.value_dim)

    def to_rows(self, values: jax.Array) -> jax.Array:
        """Values over columns [..., dvx, X] cut over rows, [..., dvy, Y, g]."""
        used = values[..., : self.groups * self.columns]
        by_group = used.reshape(*used.shape[:-1], self.groups, -1)
        whole = jnp.moveaxis(by_group, -3, -1)  # [..., g, c, dvx]
        whole = whole.reshape(*whole.shape[:-2], -1)[..., : self.delta.value_dim]
        whole = pad(whole, whole.ndim - 1, self.mesh[0] * self.value_y)
        rows = whole.reshape(*whole.shape[:-1], self.mesh[0], self.value_y)
        return jnp.moveaxis(rows, -3, -1).swapaxes(-3, -2)

    def to_columns(self, values: jax.Array) -> jax.Array:
        """Values over rows [..., dvy, Y, g] cut over columns, [..., dvx, X]."""
        whole = jnp.moveaxis(values.swapaxes(-3, -2), -1, -3)  # [..., g, Y, dvy]
        whole = whole.reshape(*whole.shape[:-2], -1)[..., : self.delta.value_dim]
        whole = pad(whole, whole.ndim - 1, self.columns * self.value_x)
        columns = whole.reshape(*whole.shape[:-1], self.columns, self.value_x)
        columns = jnp.moveaxis(columns, -1, -3)  # [..., dvx, g, c]
        columns = columns.reshape(*columns.shape[:-2], -1)
        return pad(columns, columns.ndim - 1, self.mesh[1])

    def by_group(self, tiles: jax.Array) -> jax.Array:
        """[..., d, Y, X] to [Y, g, ..., c d], what a row's PEs of one group hold together."""
        used = tiles[..., : self.groups * self.columns]
        grouped = used.reshape(*used.shape[:-1], self.groups, -1)  # [..., d, Y, g, c]
        grouped = jnp.moveaxis(grouped, (-3, -2, -4), (0, 1, -1))
        return grouped.reshape(*grouped.shape[:-2], -1)

    def by_column(self, grouped: jax.Array) -> jax.Array:
        """[Y, g, ..., c d] back to [..., d, Y, X]; idle columns get zeros."""
        split = grouped.reshape(*grouped.shape[:-1], self.columns, -1)
        tiles = jnp.moveaxis(split, (0, 1, -1), (-3, -2, -4))  # [..., d, Y, g, c]
        tiles = tiles.reshape(*tiles.shape[:-2], -1)
        return pad(tiles, tiles.ndim - 1, self.mesh[1])

    def first_columns(self, tiles: jax.Array) -> jax.Array:
        """[..., X], alike on all columns of a group, to [..., g]."""
        return tiles[..., : self.groups * self.columns : self.columns]

    def over_mesh(self, state: jax.Array) -> jax.Array:
        """States [g, m, r, c dk, c dvx] cut over columns and rows, [m, r, dk, dvy, Y, X]."""
        state = pad(state[..., : self.delta.value_dim], 4, self.mesh[0] * self.value_y)
        shape = (*state.shape[:3], self.columns, self.key_x, self.mesh[0], self.value_y)
        tiles = state.reshape(shape).transpose(1, 2, 4, 6, 5, 0, 3)
        return pad(tiles.reshape(*tiles.shape[:5], -1), 5, self.mesh[1])
