"""What a model on the mesh remembers: a cache per place in the period of attention kinds."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from wafer_jax.models.attention import kinds_of
from wafer_jax.models.mesh_layout import LayerLayout


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class MeshCache:
    """The tokens seen so far.

    Attributes:
      layers: By place in the period, the kind's own cache.
      length: [] int32, tokens held.
    """

    layers: tuple[Any, ...]
    length: jax.Array

    @classmethod
    def create(cls, layout: LayerLayout, slots: int) -> "MeshCache":
        """Make an empty cache; those that grow hold ``slots`` tokens per row."""
        layers = tuple(kind.create_cache(layout, slots) for kind in kinds_of(layout.config))
        return cls(layers=layers, length=jnp.int32(0))

    @classmethod
    def from_prefill(
        cls, kept: tuple[Any, ...], length: jax.Array, slots: int, layout: LayerLayout
    ) -> "MeshCache":
        """The cache of a prompt, from what `mesh_prefill.prefill_layers` kept."""
        layers = tuple(
            kind.cache_from_prefill(of_place, length, slots, layout)
            for kind, of_place in zip(kinds_of(layout.config), kept, strict=True)
        )
        return cls(layers=layers, length=length)

    @property
    def capacity(self) -> int | None:
        """Tokens that all regions can hold, None where no kind has a limit."""
        limits = [layer.capacity for layer in self.layers if layer.capacity is not None]
        return min(limits, default=None)
