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
from wafer_jax.models.mesh_layout import LayerLayout, VocabLayout
from wafer_jax.models.storage import STORAGES, Span, Storage, storage_of

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
    decode, prefill = _decode_tiles(layout), _prefill_tiles(layout)
    vectors = 2 * layout.hidden_y, 2 * layout.hidden_x
    of = lambda tiles, vector: (
        sum(storage.tile_bytes(*tile) for tile in tiles) + vector * storage.vector_bytes
    )
    biases = layout.qkv_x + max(layout.hidden_x, layout.hidden_y)
    biases *= layout.config.attention_bias * storage.vector_bytes
    return max(of(decode, vectors[0]), of(prefill, vectors[1])) + biases


def _decode_tiles(layout: LayerLayout) -> tuple[tuple[Span, Span], ...]:
    """Rows and columns of q, k, v; gate and up; o; down."""
    hidden, ffn, heads = Span(layout.hidden_y), Span(layout.ffn_x), _pairs(layout, layout.q_x)
    return (
        (hidden, _pairs(layout, layout.qkv_x)),
        (hidden, Span(layout.ffn_x, 2)),
        (heads, hidden),
        (ffn, hidden),
    )


def _prefill_tiles(layout: LayerLayout) -> tuple[tuple[Span, Span], ...]:
    """The same of prefill, whose rows fill up to whole blocks of MeshGEMM."""
    height, width = layout.mesh
    columns, hidden = Span(layout.hidden_x), layout.hidden_x * width // height
    q, ffn = (layout.contracted(size) * width // height for size in (layout.q_x, layout.ffn_x))
    even = layout.contracted(layout.ffn_x) == layout.ffn_x
    return (
        (Span(hidden), _pairs(layout, layout.qkv_x)),
        (Span(hidden), Span(layout.ffn_x, 2)),
        (_pairs(layout, q), columns),
        (Span(ffn, unit=ffn if even else 1), columns),
    )


def _pairs(layout: LayerLayout, size: int) -> Span:
    """Elements of heads, which lie in runs of RoPE pairs."""
    if size % layout.pairs:  # a part of a run at either end
        return Span(1, size)
    unit = math.gcd(layout.pairs, layout.config.head_dim // 2)
    return Span(layout.pairs, size // layout.pairs, unit)


def _decode_buffers(layout: LayerLayout, storage: Storage, size: int, slots: int) -> int:
    """Bytes of the residual stream and of the operator that needs most beside it."""
    scores = slots * layout.heads * layout.config.queries_per_kv
    operators = (
        layout.hidden_y + layout.qkv_x,
        layout.qkv_x + scores + layout.q_x,
        layout.q_x + layout.hidden_y,
        layout.hidden_y + 2 * layout.ffn_x,
        layout.ffn_x + layout.hidden_y,
    )
    row = max(layout.hidden_y, layout.qkv_x, 2 * layout.ffn_x) * storage.is_packed
    rope = 4 * layout.pairs * _SUM_BYTES  # the angles of this token and of one step
    return (layout.hidden_y + max(operators) + row) * size + rope


def _prefill_buffers(layout: LayerLayout, storage: Storage, size: int, prompt: int) -> int:
    """Bytes of the residual stream and of the operator that needs most beside it."""
    tokens = tile_size(prompt, layout.mesh[0])
    hidden, q, ffn = layout.hidden_x, layout.contracted(layout.q_x), layout.contracted(layout.ffn_x)
    qkv_tile, gate_up_tile, out_tile, down_tile = _prefill_tiles(layout)

    def product(left: int, tile: tuple[Span, Span]) -> int:
        columns = tile[1].size
        moving = 2 * tokens * left * size + storage.tile_bytes(*tile)
        return moving + columns * storage.is_packed * size + tokens * columns * _SUM_BYTES

    group, part = layout.config.queries_per_kv, 2 * layout.pairs
    padded = layout.attention_rows(tokens)
    scores = group * tokens * (padded * layout.mesh[0] // layout.columns)
    attention = (tokens * (layout.qkv_x + layout.q_x) + 2 * padded * part + scores) * size
    attention += (scores + group * tokens * part) * _SUM_BYTES
    operators = (
        product(hidden, qkv_tile),
        attention,
        product(q, out_tile),
        product(hidden, gate_up_tile),
        product(ffn, down_tile),
    )
    return tokens * hidden * size + max(operators)
