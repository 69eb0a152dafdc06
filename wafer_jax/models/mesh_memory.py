"""Bytes per PE of the regions of a model: weights, KV cache and the buffers of the operators.

Weights lie in their format (`storage`), keys, values and activations in its compute type, MeshGEMM
sums in float32. What moves during a MeshGEMM has a second buffer, as on the fabric: the whole left
operand and the largest weight tile. Packed weights stay packed in both, and a product unpacks its
tile row by row. Decode's and prefill's layout of the weights share their memory.
"""

import math
from dataclasses import dataclass

from wafer_jax.collectives.tiles import tile_size
from wafer_jax.hardware import DTYPE_BYTES
from wafer_jax.models.feed_forward import kind_of
from wafer_jax.models.mesh_layout import LayerLayout, VocabLayout
from wafer_jax.models.storage import STORAGES, MatrixTile, Span, Storage, storage_of

_SUM_BYTES = DTYPE_BYTES["float32"]


@dataclass(frozen=True)
class RegionBytes:
    """What one PE of a region holds.

    Attributes:
      weights_bytes: Tiles of the weights.
      kv_bytes: Keys and values.
      buffers_bytes: The most that is alive at once in any operator.
    """

    weights_bytes: int
    kv_bytes: int
    buffers_bytes: int

    @property
    def used_bytes(self) -> int:
        """All of it."""
        return self.weights_bytes + self.kv_bytes + self.buffers_bytes


def layer_bytes(layout: LayerLayout, dtype: str, context: int, prompt: int) -> RegionBytes:
    """One decoder layer that holds ``context`` tokens, the first ``prompt`` from one prefill.

    Args:
      layout: Layout of the layer.
      dtype: Format of the weights, a name of `STORAGES`.
      context: Tokens in the KV cache.
      prompt: Tokens of the prompt.
    """
    storage = storage_of(dtype)
    size, slots = DTYPE_BYTES[storage.compute], tile_size(context, layout.mesh[0])
    buffers = max(
        _decode_buffers(layout, storage, size, slots),
        _prefill_buffers(layout, storage, size, prompt),
    )
    return RegionBytes(
        weights_bytes=_layer_weights(layout, storage),
        kv_bytes=2 * layout.kv_x * slots * size,
        buffers_bytes=buffers,
    )


def vocab_bytes(layout: VocabLayout, dtype: str) -> RegionBytes:
    """The embedding or the head: its tile, the residual stream before and after the norm, logits.

    Args:
      layout: Layout of the region.
      dtype: Format of the projections' weights, which decides on the vocabulary's.
    """
    projections = storage_of(dtype)
    storage = STORAGES[projections.vocabulary]
    hidden, vocab = layout.hidden_y, layout.vocab_x
    row = vocab * storage.is_packed
    return RegionBytes(
        weights_bytes=storage.tile_bytes(Span(hidden), Span(vocab)) + hidden * storage.vector_bytes,
        kv_bytes=0,
        buffers_bytes=(2 * hidden + vocab + row) * DTYPE_BYTES[projections.compute],
    )


def _layer_weights(layout: LayerLayout, storage: Storage) -> int:
    """Bytes per PE, of the larger one of the two layouts."""
    config, size = layout.config, storage.vector_bytes
    of = lambda tiles, hidden: (
        sum(tile.count * tile.bytes_in(storage) for tile in tiles) + 2 * hidden * size
    )
    decode = of(_decode_tiles(layout), layout.hidden_y)
    prefill = of(_prefill_tiles(layout), layout.hidden_x)
    biases = layout.qkv_x * config.qkv_bias
    biases += max(layout.hidden_x, layout.hidden_y) * config.out_bias
    norms = 4 * layout.pairs * config.qk_norm  # of queries and of keys
    return max(decode, prefill) + (biases + norms) * size


def _decode_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """Of q, k, v; of o; of the feed-forward layer."""
    hidden = Span(layout.hidden_y)
    return (
        MatrixTile(hidden, _pairs(layout, layout.qkv_x)),
        MatrixTile(_pairs(layout, layout.q_x), hidden),
        *kind_of(layout.config).decode_tiles(layout),
    )


def _prefill_tiles(layout: LayerLayout) -> tuple[MatrixTile, ...]:
    """The same of prefill, whose rows fill up to whole blocks of MeshGEMM."""
    q = layout.weight_rows(layout.contracted(layout.q_x))
    return (
        MatrixTile(Span(layout.weight_rows(layout.hidden_x)), _pairs(layout, layout.qkv_x)),
        MatrixTile(_pairs(layout, q), Span(layout.hidden_x)),
        *kind_of(layout.config).prefill_tiles(layout),
    )


def _pairs(layout: LayerLayout, size: int) -> Span:
    """Elements of heads, which lie in runs of RoPE pairs."""
    if size % layout.pairs:  # a part of a run at either end
        return Span(1, size)
    half = layout.config.head_dim // 2
    break_at = layout.config.rope.turned(layout.config.head_dim) // 2 % half
    run = math.gcd(layout.pairs, break_at)
    return Span(run, size // run, math.gcd(run, half))


def _decode_buffers(layout: LayerLayout, storage: Storage, size: int, slots: int) -> int:
    """Bytes of the residual stream and of the operator that needs most beside it."""
    scores = slots * layout.heads * layout.config.queries_per_kv
    operators = (
        layout.hidden_y + layout.qkv_x,
        layout.qkv_x + scores + layout.q_x,
        layout.q_x + layout.hidden_y,
        kind_of(layout.config).decode_elements(layout),
    )
    row = max(tile.unpacked_row(storage) for tile in _decode_tiles(layout))
    rope = 4 * layout.pairs * _SUM_BYTES  # the angles of this token and of one step
    return (layout.hidden_y + max(operators) + row) * size + rope


def _prefill_buffers(layout: LayerLayout, storage: Storage, size: int, prompt: int) -> int:
    """Bytes of the residual stream and of the operator that needs most beside it."""
    height, width = layout.mesh
    tokens, kind = tile_size(prompt, height), kind_of(layout.config)
    qkv, out, *feed_forward = _prefill_tiles(layout)
    kept = kind.prefill_elements(layout, tokens) * size

    def product(tile: MatrixTile) -> int:
        left, columns = tile.rows.size * height // width, tile.columns.size
        moving = 2 * tokens * left * size + tile.bytes_in(storage)
        return moving + tile.unpacked_row(storage) * size + tokens * columns * _SUM_BYTES

    group, part = layout.config.queries_per_kv, 2 * layout.pairs
    padded = layout.attention_rows(tokens)
    scores = group * tokens * (padded * height // layout.columns)
    attention = (tokens * (layout.qkv_x + layout.q_x) + 2 * padded * part + scores) * size
    attention += (scores + group * tokens * part) * _SUM_BYTES
    operators = (
        product(qkv),
        attention,
        product(out),
        *(product(tile) + kept for tile in feed_forward),
    )
    return tokens * layout.hidden_x * size + max(operators)
