"""KV cache by concatenation: every new vector is appended on the last row of the mesh.

The PagedAttention-like baseline of WaferLLM (OSDI'25), section 4.3: the last row fills, and
computes attention, while the others stay idle. So a mesh of any height holds as many vectors as one
row has slots; `kv_shift` holds as many times more as there are rows. Nothing crosses a link.

Axes: S slots of a row, Y and X of the mesh.
"""

import jax
import jax.numpy as jnp

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives import kv_slots
from wafer_jax.collectives.checked import checked
from wafer_jax.hardware import HardwareSpec
from wafer_jax.program import Program


@checked
def program(
    hw: HardwareSpec, elements: int, length: int, slots: int, dtype: str = "float32"
) -> Program:
    """Append tile entry [elements] to tile cache [slots, elements] of the last row, in place.

    Args:
      hw: Machine and mesh.
      elements: Elements of keys and values of one vector on one PE.
      length: Vectors held before.
      slots: S.
      dtype: Element type.

    Raises:
      WaferError: A full cache, sizes below 1, slots that share a word, tiles over the SRAM budget.
    """
    kv_slots.check_cache(elements, slots, length, slots, dtype)
    builder = ProgramBuilder(hw, f"KV concat of vector {length}")
    cache, entry = kv_slots.tiles(builder, elements, slots, dtype)
    last = builder.role("last row", at=(hw.mesh[0] - 1, slice(None)))
    kv_slots.copy(last.thread(), hw, entry, kv_slots.slot_tile(cache, length))
    return builder.build(inputs=("cache", "entry"), outputs=("cache",))


def apply(cache: jax.Array, entry: jax.Array, length: jax.Array | int) -> jax.Array:
    """Bulk level: vector ``length`` goes to that slot of the last row.

    A pure function of arrays for use inside a decode loop; `capacity` says when it is full, which
    cannot be checked here.

    Args:
      cache: [S, ..., Y, X].
      entry: [..., X], the new vector, cut over the columns.
      length: [] int32, vectors held before.
    """
    return cache.at[length, ..., -1, :].set(jnp.asarray(entry).astype(cache.dtype))


def capacity(cache: jax.Array) -> int:
    """Vectors that a cache [S, ..., Y, X] can hold: the slots of one row."""
    return cache.shape[0]


@checked
def cost(hw: HardwareSpec, elements: int, length: int, slots: int, dtype: str = "float32") -> int:
    """Cycles of `program` with the same arguments: one copy within the SRAM of the last row.

    Raises:
      WaferError: As `program`, less the SRAM budget.
    """
    kv_slots.check_cache(elements, slots, length, slots, dtype)
    return kv_slots.copy_cycles(hw, elements, dtype)
