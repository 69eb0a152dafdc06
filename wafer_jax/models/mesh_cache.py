"""The KV cache of a model over the rows of its layers' regions, balanced by `kv_shift`.

Axes: L layers, S slots per row, m key/value heads of a column's group, d elements of a head on one
PE, l tokens per row in prefill, Y, X.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.collectives import kv_shift, relayout
from wafer_jax.models.mesh_layout import LayerLayout


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class MeshCache:
    """Keys and values of the tokens seen so far.

    Attributes:
      keys: [L, S, m, d, Y, X] float32, after RoPE.
      values: [L, S, m, d, Y, X] float32.
      length: [] int32, tokens held.
    """

    keys: jax.Array
    values: jax.Array
    length: jax.Array

    @classmethod
    def create(cls, layout: LayerLayout, slots: int) -> "MeshCache":
        """Make an empty cache with ``slots`` tokens per row."""
        sizes = (layout.heads, 2 * layout.pairs, *layout.mesh)
        zeros = lambda: jnp.zeros((layout.config.num_layers, slots, *sizes), jnp.float32)
        return cls(keys=zeros(), values=zeros(), length=jnp.zeros((), jnp.int32))

    @classmethod
    def from_prefill(
        cls, keys: jax.Array, values: jax.Array, length: jax.Array, slots: int
    ) -> "MeshCache":
        """Re-lay what prefill made, [L, l, m, d, Y, X] with token t in row t // l, to balance."""
        balance = lambda tiles: relayout.balance(tiles, length, slots, slot_axis=1)
        return cls(keys=balance(keys), values=balance(values), length=length)

    @property
    def slots(self) -> int:
        """Tokens S that a row can hold."""
        return self.keys.shape[1]

    @property
    def capacity(self) -> int:
        """Tokens that the region can hold."""
        return kv_shift.capacity(self.keys, slot_axis=1)

    def make_room(self) -> "MeshCache":
        """Shift upwards, so that the last row can take one more token.

        Rows decide by counts alone, so all layers shift at once, ahead of the new vectors.
        """
        shift = lambda tiles: kv_shift.shift(tiles, self.length, slot_axis=1)
        return replace(self, keys=shift(self.keys), values=shift(self.values))

    def put(self, key: jax.Array, value: jax.Array, layer: jax.Array) -> "MeshCache":
        """Write the new token's [m, d, X] of one layer into the last row.

        What `kv_shift.append` does, but in place: it would need the layer cut out of the stack.
        """
        zero, last = jnp.int32(0), jnp.int32(self.keys.shape[-2] - 1)
        at = (layer, self.length % self.slots, zero, zero, last, zero)
        write = lambda tiles, new: lax.dynamic_update_slice(tiles, new[None, None, :, :, None], at)
        return replace(self, keys=write(self.keys, key), values=write(self.values, value))
