"""A KV cache on a PE: slots of one vector's elements, and the copy of a new vector into one."""

import math

from wafer_jax.builder import ProgramBuilder, ThreadBuilder
from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.errors import WaferError
from wafer_jax.events import Kernel, Tile
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES, HardwareSpec

COPY = Kernel(name="copy", fn=lambda vector: vector)


def check_cache(elements: int, slots: int, length: int, capacity: int, dtype: str) -> None:
    """Raise ``WaferError`` for sizes below 1, a full cache, or slots that share a word."""
    if min(elements, slots) < 1 or length < 0:
        raise WaferError(
            f"KV cache of {slots} slots of {elements} elements with {length} vectors: sizes must "
            f"be at least 1, the vectors held at least 0"
        )
    if elements * DTYPE_BYTES[dtype] % WORD_BYTES:
        raise WaferError(
            f"{elements} elements of {dtype} end inside a word: give a PE an even number of them"
        )
    if length >= capacity:
        raise WaferError(
            f"the KV cache is full: {length} vectors of {capacity}: give it more slots or more rows"
        )


def tiles(builder: ProgramBuilder, elements: int, slots: int, dtype: str) -> tuple[Tile, Tile]:
    """The tiles cache [slots, elements] and entry [elements]."""
    return builder.tile("cache", (slots, elements), dtype), builder.tile(
        "entry", (elements,), dtype
    )


def slot_tile(cache: Tile, slot: int) -> Tile:
    """One vector of the cache."""
    elements = cache.shape[1]
    words = block_words(elements, cache.dtype)
    offset = cache.offset + slot * words
    return Tile(name=f"slot {slot}", offset=offset, shape=(elements,), dtype=cache.dtype)


def copy(thread: ThreadBuilder, hw: HardwareSpec, vector: Tile, into: Tile) -> None:
    """Copy a vector within the SRAM."""
    thread.compute(COPY, (vector,), (into,), copy_cycles(hw, vector.size, vector.dtype))


def copy_cycles(hw: HardwareSpec, elements: int, dtype: str = "float32") -> int:
    """Cycles to copy a vector within the SRAM."""
    return math.ceil(hw.copy_cycles(elements, dtype))
