"""A KV cache over the rows of its layers' regions, balanced by `kv_shift`.

Axes: P layers of a stack, S slots per row, m key/value heads of a column's group, d elements of a
head on one PE, l tokens per row in prefill, Y, X.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.collectives import kv_shift, relayout
from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.collectives.tiles import tile_size
from wafer_jax.hardware import DTYPE_BYTES
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.operator_cost import Meter, OperatorCost
from wafer_jax.models.operator_routes import SHIFT_ROUTES


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class ShiftCache:
    """Keys and values of the tokens seen so far; their number is held outside.

    Attributes:
      keys: [P, S, m, d, Y, X] float32, after RoPE.
      values: [P, S, m, d, Y, X] float32.
    """

    keys: jax.Array
    values: jax.Array

    @classmethod
    def create(cls, layout: LayerLayout, slots: int) -> "ShiftCache":
        """Make an empty cache with ``slots`` tokens per row."""
        sizes = (layout.heads, 2 * layout.pairs, *layout.mesh)
        zeros = lambda: jnp.zeros((layout.config.periods, slots, *sizes), jnp.float32)
        return cls(keys=zeros(), values=zeros())

    @classmethod
    def from_prefill(
        cls, keys: jax.Array, values: jax.Array, length: jax.Array, slots: int
    ) -> "ShiftCache":
        """Re-lay what prefill made, [P, l, m, d, Y, X] with token t in row t // l, to balance."""
        balance = lambda tiles: relayout.balance(tiles, length, slots, slot_axis=1)
        return cls(keys=balance(keys), values=balance(values))

    @property
    def slots(self) -> int:
        """Tokens S that a row can hold."""
        return self.keys.shape[1]

    @property
    def capacity(self) -> int:
        """Tokens that the region can hold."""
        return kv_shift.capacity(self.keys, slot_axis=1)

    def make_room(self, length: jax.Array) -> "ShiftCache":
        """Shift upwards, so that the last row can take one more than ``length`` tokens.

        Rows decide by counts alone, so all layers shift at once, ahead of the new vectors.
        """
        shift = lambda tiles: kv_shift.shift(tiles, length, slot_axis=1)
        return replace(self, keys=shift(self.keys), values=shift(self.values))

    def put(
        self, key: jax.Array, value: jax.Array, layer: jax.Array, length: jax.Array
    ) -> "ShiftCache":
        """Write the vectors [m, d, X] of token ``length`` of one layer into the last row.

        What `kv_shift.append` does, but in place: it would need the layer cut out of the stack.
        """
        zero, last = jnp.int32(0), jnp.int32(self.keys.shape[-2] - 1)
        at = (layer, length % self.slots, zero, zero, last, zero)
        write = lambda tiles, new: lax.dynamic_update_slice(tiles, new[None, None, :, :, None], at)
        return replace(self, keys=write(self.keys, key), values=write(self.values, value))

    def held(self, length: jax.Array) -> jax.Array:
        """[S, Y] bool: places that hold one of ``length`` tokens."""
        return kv_shift.held(length, self.slots, self.keys.shape[-2]) >= 0


create, from_prefill = ShiftCache.create, ShiftCache.from_prefill


def rows(layout: LayerLayout) -> int:
    """Rows that tokens are spread over."""
    return layout.mesh[0]


def put_costs(meter: Meter, layout: LayerLayout) -> OperatorCost:
    """Making room for the key and value of a token of every sequence, and writing them."""
    mesh, elements = layout.mesh, meter.batch * 2 * layout.kv_x
    cycles = kv_shift.shift_cost(meter.hw.replace(mesh=mesh), elements, dtype=meter.dtype)
    size = elements * DTYPE_BYTES[meter.dtype]
    issue = min(2 * block_words(elements, meter.dtype), cycles)
    moved, routes = (mesh[0] - 1) * mesh[1] * size, {SHIFT_ROUTES} if mesh[0] > 1 else ()
    return OperatorCost("KV shift", cycles, 0, issue, moved, frozenset(routes))


def balance_costs(meter: Meter, layout: LayerLayout, tokens: int) -> OperatorCost:
    """Balancing a prompt's keys and values over the rows."""
    elements, rows = 2 * layout.kv_x, tile_size(tokens, layout.mesh[0])
    cycles = relayout.balance_cost(meter.hw, rows, tokens, elements, dtype=meter.dtype)
    moved = tokens * elements * layout.mesh[1] * DTYPE_BYTES[meter.dtype]
    return OperatorCost("KV balance", cycles, 0, cycles, moved)
