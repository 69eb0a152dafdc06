"""A KV cache of a window, over the rows of its layers' regions: new tokens replace old ones.

The places of all rows form a ring: token t takes row t mod Y and slot t / Y, both modulo the size
of the ring, which is the window filled up to whole rows. The rows hold equally many tokens at any
time, and every row has a new token's key and value (they are sums over the rows), so nothing moves.

Axes: P layers of a stack, S slots per row, m key/value heads of a column's group, d elements of a
head on one PE, l tokens per row in prefill, Y, X.
"""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.collectives import relayout
from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.collectives.tiles import tile_size
from wafer_jax.hardware import DTYPE_BYTES
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.operator_cost import Meter, OperatorCost


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class RingCache:
    """Keys and values of the latest tokens; the number of all so far is held outside.

    Attributes:
      keys: [P, S, m, d, Y, X] float32, after RoPE.
      values: [P, S, m, d, Y, X] float32.
      window: Tokens that a token sees, itself included.
    """

    keys: jax.Array
    values: jax.Array
    window: int = field(metadata={"static": True})

    @classmethod
    def create(cls, layout: LayerLayout, slots: int) -> "RingCache":
        """Make an empty cache for a context of ``slots`` tokens per row, or the window if less."""
        window, (rows, _) = window_of(layout), layout.mesh
        sizes = (layout.heads, 2 * layout.pairs, *layout.mesh)
        shape = (layout.config.periods, min(slots, tile_size(window, rows)), *sizes)
        zeros = lambda: jnp.zeros(shape, jnp.float32)
        return cls(keys=zeros(), values=zeros(), window=window)

    @classmethod
    def from_prefill(
        cls, keys: jax.Array, values: jax.Array, length: jax.Array, slots: int, layout: LayerLayout
    ) -> "RingCache":
        """Re-lay what prefill made, [P, l, m, d, Y, X] with token t in row t // l, to the ring."""
        window, rows = window_of(layout), layout.mesh[0]
        numbers = ring_numbers(length, min(slots, tile_size(window, rows)), rows)
        take = lambda tiles: relayout.take_tokens(tiles, numbers, slot_axis=1)
        return cls(keys=take(keys), values=take(values), window=window)

    @property
    def slots(self) -> int:
        """Tokens S that a row holds at most."""
        return self.keys.shape[1]

    @property
    def capacity(self) -> int | None:
        """Tokens until one would be lost that is still in the window; None: never."""
        size = self.slots * self.keys.shape[-2]
        return size if size < self.window else None

    def make_room(self, length: jax.Array) -> "RingCache":
        """Nothing: the token that leaves the window is overwritten."""
        return self

    def put(
        self, key: jax.Array, value: jax.Array, layer: jax.Array, length: jax.Array
    ) -> "RingCache":
        """Write the vectors [m, d, X] of token ``length`` of one layer."""
        zero, rows = jnp.int32(0), self.keys.shape[-2]
        at = (layer, length // rows % self.slots, zero, zero, length % rows, zero)
        write = lambda tiles, new: lax.dynamic_update_slice(tiles, new[None, None, :, :, None], at)
        return replace(self, keys=write(self.keys, key), values=write(self.values, value))

    def held(self, length: jax.Array) -> jax.Array:
        """[S, Y] bool: places that hold one of ``length`` tokens that is in the window."""
        number = ring_numbers(length, self.slots, self.keys.shape[-2])
        return (number >= 0) & (number >= length - self.window)


def ring_numbers(length: jax.Array | int, slots: int, rows: int) -> jax.Array:
    """[S, Y] int32: the latest of ``length`` tokens that belongs in each place, negative: none."""
    place = np.arange(slots)[:, None] * rows + np.arange(rows)
    newest = jnp.asarray(length, jnp.int32) - 1
    return newest - (newest - jnp.asarray(place, jnp.int32)) % (slots * rows)


def put_costs(meter: Meter, layout: LayerLayout) -> OperatorCost:
    """Writing one token's key and value where its row has them."""
    return meter.compute("KV ring", meter.vector(2 * layout.kv_x))


def balance_costs(meter: Meter, layout: LayerLayout, tokens: int) -> OperatorCost:
    """Dealing the last tokens of a prompt out to the rows, as estimated in `relayout`."""
    elements, rows = 2 * layout.kv_x, layout.mesh[0]
    token = np.arange(max(0, tokens - window_of(layout)), tokens)
    source, target = token // tile_size(tokens, rows), token % rows
    border = np.arange(1, rows)[:, None]
    south = ((source < border) & (border <= target)).sum(axis=1)
    north = ((target < border) & (border <= source)).sum(axis=1)
    crossing = int(np.maximum(south, north).max(initial=0))
    cycles = 0
    if crossing:
        hops = int(np.abs(source - target).max())
        words = crossing * block_words(elements, meter.dtype)
        cycles = relayout.stream_cycles(meter.hw, words, hops)
    moved = len(token) * elements * layout.mesh[1] * DTYPE_BYTES[meter.dtype]
    return OperatorCost("KV balance", cycles, 0, cycles, moved)


def window_of(layout: LayerLayout) -> int:
    """Tokens that a token sees, itself included."""
    assert layout.config.window is not None
    return layout.config.window
