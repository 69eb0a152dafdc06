"""Bytes per PE of the regions of a model: weights, KV cache and the buffers of the operators.

Weights lie in their format (`storage`), keys, values and activations in its compute type, MeshGEMM
sums in float32. What moves during a MeshGEMM has a second buffer, as on the fabric: the whole left
operand and the largest weight tile. Packed weights stay packed in both, and a product unpacks its
tile row by row. Decode's and prefill's layout of the weights share their memory.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from wafer_jax.collectives.tiles import tile_size
from wafer_jax.hardware import DTYPE_BYTES
from wafer_jax.models.attention import kinds_of
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.feed_forward import kind_of
from wafer_jax.models.mesh_layout import LayerLayout, VocabLayout
from wafer_jax.models.storage import STORAGES, MatrixTile, Span, Storage, storage_of

_SUM_BYTES = DTYPE_BYTES["float32"]

_Stored = tuple[tuple[MatrixTile, Storage], ...]


@dataclass(frozen=True)
class RegionBytes:
    """What one PE of a region holds.

    Attributes:
      weights_bytes: Tiles of the weights.
      kv_bytes: Keys and values, or what else its attention remembers.
      buffers_bytes: The most that is alive at once in any operator.
    """

    weights_bytes: int
    kv_bytes: int
    buffers_bytes: int

    @property
    def used_bytes(self) -> int:
        """All of it."""
        return self.weights_bytes + self.kv_bytes + self.buffers_bytes


def layer_bytes(
    layout: LayerLayout, dtype: str, context: int, prompt: int, place: int = 0, batch: int = 1
) -> RegionBytes:
    """One decoder layer that holds ``context`` tokens, the first ``prompt`` from one prefill.

    Args:
      layout: Layout of the layer.
      dtype: Format of the weights, a name of `STORAGES`.
      context: Tokens so far.
      prompt: Tokens of the prompt.
      place: Place of the layer in the period of attention kinds.
      batch: Sequences, each of so many tokens; one is prefilled at a time.
    """
    storage, attention = storage_of(dtype), kinds_of(layout.config)[place]
    size = DTYPE_BYTES[storage.compute]
    buffers = max(
        _decode_buffers(layout, attention, storage, context, batch),
        _prefill_buffers(layout, attention, storage, prompt),
    )
    return RegionBytes(
        weights_bytes=_layer_weights(layout, attention, storage),
        kv_bytes=batch * attention.cache_bytes(layout, context, size),
        buffers_bytes=buffers,
    )


def layer_weights_bytes(layout: LayerLayout, dtype: str, place: int = 0) -> int:
    """The weights of one decoder layer alone; arguments as for `layer_bytes`."""
    return _layer_weights(layout, kinds_of(layout.config)[place], storage_of(dtype))


def region_bytes(
    layout: LayerLayout,
    dtype: str,
    context: int,
    prompt: int,
    layers: Sequence[int],
    batch: int = 1,
) -> RegionBytes:
    """Layers that share a region: each has weights and a cache, all use the same buffers.

    Args:
      layout: Layout of a layer.
      dtype: As for `layer_bytes`.
      context: Likewise.
      prompt: Likewise.
      layers: Their numbers.
      batch: As for `layer_bytes`.
    """
    period = len(layout.config.attention)
    times = Counter(i % period for i in layers)
    of = {place: layer_bytes(layout, dtype, context, prompt, place, batch) for place in times}
    return RegionBytes(
        weights_bytes=sum(n * of[place].weights_bytes for place, n in times.items()),
        kv_bytes=sum(n * of[place].kv_bytes for place, n in times.items()),
        buffers_bytes=max(layer.buffers_bytes for layer in of.values()),
    )


def layers_of_regions(config: DecoderConfig, layers_per_region: int) -> list[range]:
    """The numbers of the layers in each region; the last one may have fewer."""
    count = config.num_layers
    return [
        range(first, min(first + layers_per_region, count))
        for first in range(0, count, layers_per_region)
    ]


def different_region_bytes(
    layout: LayerLayout,
    dtype: str,
    context: int,
    prompt: int,
    layers_per_region: int = 1,
    batch: int = 1,
) -> Iterator[RegionBytes]:
    """Every kind of region of layers, one after another; arguments as for `region_bytes`."""
    period = len(layout.config.attention)
    runs = layers_of_regions(layout.config, layers_per_region)
    for run in {(run.start % period, len(run)): run for run in runs}.values():
        yield region_bytes(layout, dtype, context, prompt, run, batch)


def largest_region_bytes(
    layout: LayerLayout,
    dtype: str,
    context: int,
    prompt: int,
    layers_per_region: int = 1,
    batch: int = 1,
) -> RegionBytes:
    """The region of layers that needs most; arguments as for `region_bytes`."""
    regions = different_region_bytes(layout, dtype, context, prompt, layers_per_region, batch)
    return max(regions, key=lambda region: region.used_bytes)


def vocab_bytes(layout: VocabLayout, dtype: str, batch: int = 1) -> RegionBytes:
    """The embedding or the head: its tile, the residual stream before and after the norm, logits.

    Args:
      layout: Layout of the region.
      dtype: Format of the projections' weights, which decides on the vocabulary's.
      batch: Sequences.
    """
    projections = storage_of(dtype)
    storage = STORAGES[projections.vocabulary]
    hidden, vocab = layout.hidden_y, layout.vocab_x
    row = vocab * storage.is_packed
    return RegionBytes(
        weights_bytes=storage.tile_bytes(Span(hidden), Span(vocab)) + hidden * storage.vector_bytes,
        kv_bytes=0,
        buffers_bytes=(batch * (2 * hidden + vocab) + row) * DTYPE_BYTES[projections.compute],
    )


def _layer_weights(layout: LayerLayout, attention: ModuleType, storage: Storage) -> int:
    """Bytes per PE, of the larger one of the two layouts."""
    size, feed_forward = storage.vector_bytes, kind_of(layout.config)
    of = lambda tiles, hidden: (
        sum(tile.count * tile.bytes_in(s) for tile, s in tiles) + 2 * hidden * size
    )
    tiles = attention.prefill_tiles(layout), feed_forward.prefill_tiles(layout)
    prefill = of(_stored(layout, storage, *tiles), layout.hidden_x)
    decode = of(_decode_tiles(layout, attention, storage), layout.hidden_y)
    return max(decode, prefill) + attention.vector_elements(layout) * size


def _decode_tiles(layout: LayerLayout, attention: ModuleType, storage: Storage) -> _Stored:
    feed_forward = kind_of(layout.config).decode_tiles(layout)
    return _stored(layout, storage, attention.decode_tiles(layout), feed_forward)


def _stored(
    layout: LayerLayout,
    storage: Storage,
    attention: Iterable[MatrixTile],
    feed_forward: Iterable[MatrixTile],
) -> _Stored:
    """Tiles with their formats."""
    of_attention = storage.of_attention(layout.config.experts is not None)
    return *((tile, of_attention) for tile in attention), *((t, storage) for t in feed_forward)


def _decode_buffers(
    layout: LayerLayout, attention: ModuleType, storage: Storage, context: int, batch: int
) -> int:
    """Bytes of the residual stream and of the operator that needs most, of all sequences."""
    operators = (
        attention.decode_elements(layout, context),
        kind_of(layout.config).decode_elements(layout),
    )
    tiles = _decode_tiles(layout, attention, storage)
    row = max(tile.unpacked_row(of_tile) for tile, of_tile in tiles)
    elements = batch * (layout.hidden_y + max(operators)) + row
    return elements * DTYPE_BYTES[storage.compute] + batch * attention.step_bytes(layout)


def _prefill_buffers(
    layout: LayerLayout, attention: ModuleType, storage: Storage, prompt: int
) -> int:
    """Bytes of the residual stream and of the operator that needs most beside it."""
    tokens, feed_forward = tile_size(prompt, layout.mesh[0]), kind_of(layout.config)
    size = DTYPE_BYTES[storage.compute]
    of_attention = storage.of_attention(layout.config.experts is not None)
    kept = feed_forward.prefill_elements(layout, tokens) * size

    def product(tile: MatrixTile, storage: Storage) -> int:
        height, width = tile.mesh or layout.mesh
        rows = tile_size(tokens * layout.mesh[0], height)
        left, columns = tile.rows.size * height // width, tile.columns.size
        moving = 2 * rows * left * size + tile.bytes_in(storage)
        return moving + tile.unpacked_row(storage) * size + rows * columns * _SUM_BYTES

    operators = (
        *(product(tile, of_attention) for tile in attention.prefill_tiles(layout)),
        attention.prefill_bytes(layout, tokens, size),
        *(product(tile, storage) + kept for tile in feed_forward.prefill_tiles(layout)),
    )
    return tokens * layout.hidden_x * size + max(operators)
