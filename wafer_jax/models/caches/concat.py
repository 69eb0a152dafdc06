"""A KV cache in the last row of its layers' regions, where every new token is appended.

The baseline of `kv_concat`: other rows remember nothing, so the last row's SRAM limits the context,
and attention takes as long as that row does. A prompt's tokens are appended like any others, so
they come down to the last row when decode begins. Only that row is held here.

Axes: P layers of a stack, S slots, m key/value heads of a column's group, d elements of a head on
one PE, l tokens per row in prefill, Y, X.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.collectives import kv_slots, relayout
from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.collectives.tiles import tile_size
from wafer_jax.hardware import DTYPE_BYTES
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.operator_cost import Meter, OperatorCost


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class ConcatCache:
    """Keys and values of the tokens seen so far; their number is held outside.

    Attributes:
      keys: [P, S, m, d, 1, X] float32, after RoPE.
      values: [P, S, m, d, 1, X] float32.
    """

    keys: jax.Array
    values: jax.Array

    @classmethod
    def create(cls, layout: LayerLayout, slots: int) -> "ConcatCache":
        """Make an empty cache with ``slots`` tokens in the last row."""
        sizes = (layout.heads, 2 * layout.pairs, 1, layout.mesh[1])
        zeros = lambda: jnp.zeros((layout.config.periods, slots, *sizes), jnp.float32)
        return cls(keys=zeros(), values=zeros())

    @classmethod
    def from_prefill(
        cls, keys: jax.Array, values: jax.Array, length: jax.Array, slots: int
    ) -> "ConcatCache":
        """Bring down what prefill made, [P, l, m, d, Y, X] with token t in row t // l."""
        place = jnp.arange(slots, dtype=jnp.int32)[:, None]
        number = jnp.where(place < length, place, -1)
        take = lambda tiles: relayout.take_tokens(tiles, number, slot_axis=1)
        return cls(keys=take(keys), values=take(values))

    @property
    def slots(self) -> int:
        """Tokens S that the last row can hold."""
        return self.keys.shape[1]

    @property
    def capacity(self) -> int:
        """Tokens that the region can hold, see `kv_concat.capacity`."""
        return self.slots

    def make_room(self, length: jax.Array) -> "ConcatCache":
        """Nothing."""
        return self

    def put(
        self, key: jax.Array, value: jax.Array, layer: jax.Array, length: jax.Array
    ) -> "ConcatCache":
        """Write the vectors [m, d, X] of token ``length`` of one layer."""
        zero = jnp.int32(0)
        at = (layer, length, zero, zero, zero, zero)
        write = lambda tiles, new: lax.dynamic_update_slice(tiles, new[None, None, :, :, None], at)
        return replace(self, keys=write(self.keys, key), values=write(self.values, value))

    def held(self, length: jax.Array) -> jax.Array:
        """[S, 1] bool: places that hold one of ``length`` tokens."""
        return jnp.arange(self.slots, dtype=jnp.int32)[:, None] < length


create, from_prefill = ConcatCache.create, ConcatCache.from_prefill


def rows(layout: LayerLayout) -> int:
    """Rows that tokens are spread over."""
    return 1


def put_costs(meter: Meter, layout: LayerLayout) -> OperatorCost:
    """Writing the key and value of a token of every sequence; nothing crosses a link."""
    copy = kv_slots.copy_cycles(meter.hw, 2 * layout.kv_x, meter.dtype)
    return meter.compute("KV concat", meter.batch * copy)


def balance_costs(meter: Meter, layout: LayerLayout, tokens: int) -> OperatorCost:
    """A prompt's keys and values to the last row, all over the links into it."""
    elements, (height, width) = 2 * layout.kv_x, layout.mesh
    crossing = min(tokens, tile_size(tokens, height) * (height - 1))
    cycles = 0
    if crossing:
        words = crossing * block_words(elements, meter.dtype)
        cycles = relayout.stream_cycles(meter.hw, words, height - 1)
    moved = crossing * elements * width * DTYPE_BYTES[meter.dtype]
    return OperatorCost("KV balance", cycles, 0, cycles, moved)
