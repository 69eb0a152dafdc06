"""Bytes per PE of the regions of a model: weights, KV cache and the buffers of the operators.

Weights, keys, values and activations are stored in one dtype, MeshGEMM sums in float32. What moves
during a MeshGEMM has a second buffer, as on the fabric: the whole left operand and the largest
weight tile. Decode's and prefill's layout of the weights share their memory.
"""

from dataclasses import dataclass

from wafer_jax.collectives.tiles import tile_size
from wafer_jax.hardware import DTYPE_BYTES
from wafer_jax.models.feed_forward import kind_of
from wafer_jax.models.mesh_layout import LayerLayout, VocabLayout

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
      dtype: What weights, KV cache and activations are stored in.
      context: Tokens in the KV cache.
      prompt: Tokens of the prompt.
    """
    size = DTYPE_BYTES[dtype]
    slots = tile_size(context, layout.mesh[0])
    buffers = max(_decode_buffers(layout, size, slots), _prefill_buffers(layout, size, prompt))
    return RegionBytes(
        weights_bytes=_layer_weights(layout) * size,
        kv_bytes=2 * layout.kv_x * slots * size,
        buffers_bytes=buffers,
    )


def vocab_bytes(layout: VocabLayout, dtype: str) -> RegionBytes:
    """The embedding or the head: its tile, the residual stream before and after the norm, logits.

    Args:
      layout: Layout of the region.
      dtype: What weights and activations are stored in.
    """
    size = DTYPE_BYTES[dtype]
    hidden, vocab = layout.hidden_y, layout.vocab_x
    return RegionBytes(
        weights_bytes=(vocab + 1) * hidden * size,
        kv_bytes=0,
        buffers_bytes=(2 * hidden + vocab) * size,
    )


def _layer_weights(layout: LayerLayout) -> int:
    """Elements per PE, of the larger one of the two layouts."""
    (height, width), kind = layout.mesh, kind_of(layout.config)
    decode = layout.hidden_y * (layout.qkv_x + layout.q_x + 2)
    decode += sum(n * rows * columns for n, rows, columns in kind.decode_matrices(layout))
    rows_of = lambda contracted: contracted * width // height
    prefill = rows_of(layout.hidden_x) * layout.qkv_x + layout.hidden_x * 2
    prefill += rows_of(layout.contracted(layout.q_x)) * layout.hidden_x
    prefill += sum(n * rows_of(k) * columns for n, k, columns in kind.prefill_matrices(layout))
    biases = layout.qkv_x * layout.config.qkv_bias
    biases += max(layout.hidden_x, layout.hidden_y) * layout.config.out_bias
    norms = 4 * layout.pairs * layout.config.qk_norm  # of queries and of keys
    return max(decode, prefill) + biases + norms


def _decode_buffers(layout: LayerLayout, size: int, slots: int) -> int:
    """Bytes of the residual stream and of the operator that needs most beside it."""
    scores = slots * layout.heads * layout.config.queries_per_kv
    operators = (
        layout.hidden_y + layout.qkv_x,
        layout.qkv_x + scores + layout.q_x,
        layout.q_x + layout.hidden_y,
        kind_of(layout.config).decode_elements(layout),
    )
    rope = 4 * layout.pairs * _SUM_BYTES  # the angles of this token and of one step
    return (layout.hidden_y + max(operators)) * size + rope


def _prefill_buffers(layout: LayerLayout, size: int, prompt: int) -> int:
    """Bytes of the residual stream and of the operator that needs most beside it."""
    height, width = layout.mesh
    tokens = tile_size(prompt, height)
    hidden, q, kind = layout.hidden_x, layout.contracted(layout.q_x), kind_of(layout.config)
    kept = kind.prefill_elements(layout, tokens) * size

    def product(left: int, columns: int) -> int:
        moving = 2 * tokens * left + left * width // height * columns
        return moving * size + tokens * columns * _SUM_BYTES

    group, part = layout.config.queries_per_kv, 2 * layout.pairs
    padded = layout.attention_rows(tokens)
    scores = group * tokens * (padded * height // layout.columns)
    attention = (tokens * (layout.qkv_x + layout.q_x) + 2 * padded * part + scores) * size
    attention += (scores + group * tokens * part) * _SUM_BYTES
    operators = (
        product(hidden, layout.qkv_x),
        attention,
        product(q, hidden),
        *(product(k, columns) + kept for _, k, columns in kind.prefill_matrices(layout)),
    )
    return tokens * hidden * size + max(operators)
