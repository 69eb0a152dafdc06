"""WaferLLM's published kernels: cycles of a decoder layer, operator by operator.

The operators are those of the public code (MeshInfra/WaferLLM, Decode and Prefill for the WSE-2),
one after another, sizes as in `tiles`. It differs from this package's own operators (`mesh_costs`)
in what it costs, not in what it computes: allreduces by whole messages (`message_cost`), one head
as wide as the layer, no causal mask, and in prefill RMSNorm and softmax by the pipeline allreduce.

Decode takes no constant but those of the machine. Prefill takes one more, of the
local product (`local_product.MAP_CALL_CYCLES`).
"""

import math

from wafer_jax.collectives import message_cost
from wafer_jax.collectives.gemm_cost import align_rounds_cycles, shifts_cycles
from wafer_jax.collectives.gemm_layout import block_words, layout_of
from wafer_jax.collectives.kernels import gemv_cycles
from wafer_jax.hardware import WORD_BYTES, HardwareSpec
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.mesh_costs import PhaseCosts
from wafer_jax.models.operator_cost import RECIPROCAL, OperatorCost, in_sequence
from wafer_jax.models.published.local_product import product_cycles
from wafer_jax.models.published.tiles import DTYPE, LayerTiles, Product, groups_of, tiles_of

FAST_EXP = 3
"""Vector instructions of the code's exponential, (1 + x / 256)^4."""
SILU = FAST_EXP + RECIPROCAL + 3
ROPE = 12
"""Vector instructions over half a tile that turn queries and keys."""


def decode_costs(hw: HardwareSpec, config: DecoderConfig, context: int) -> PhaseCosts:
    """One token, ten K-tree allreduces a layer, two phases, groups as in the configurations.

    Args:
      hw: Machine; its mesh is the region of a layer.
      config: The model.
      context: Tokens in the KV cache, which the code neither appends to nor shifts.

    Raises:
      WaferError: A mesh that is not square.
    """
    tiles = tiles_of(hw, config, context)
    layer = tuple(_decode_layer(hw, tiles))
    return PhaseCosts("decode", context, layer, (), config.num_layers, hw.clock_hz)


def prefill_costs(hw: HardwareSpec, config: DecoderConfig, tokens: int) -> PhaseCosts:
    """A prompt, nine MeshGEMMs a layer, one of them transposed.

    Args:
      hw: Machine; its mesh is the region of a layer.
      config: The model.
      tokens: Tokens of the prompt.

    Raises:
      WaferError: A mesh that is not square.
    """
    tiles = tiles_of(hw, config, tokens)
    layer = tuple(_prefill_layer(hw, tiles))
    return PhaseCosts("prefill", tokens, layer, (), config.num_layers, hw.clock_hz)


def _decode_layer(hw: HardwareSpec, tiles: LayerTiles) -> list[OperatorCost]:
    e, f, t = tiles.hidden, tiles.ffn, tiles.context
    groups = (groups_of(tiles.side),)

    def allreduce(name: str, elements: int, compute: int) -> OperatorCost:
        words = block_words(elements, DTYPE)
        return _reduced(
            hw, name, words, compute, message_cost.ktree_cycles(hw, words, groups=groups)
        )

    gemv = lambda k, n: gemv_cycles(hw, k, n, DTYPE)
    norm = lambda name: in_sequence(
        name,
        allreduce("", 1, _vector(hw, e)),
        _local("", _vector(hw, 1, RECIPROCAL) + _vector(hw, e, 2)),
    )
    residual = lambda name: _local(name, _vector(hw, e))
    return [
        norm("attention norm"),
        allreduce("q, k, v", 3 * e, 3 * gemv(e, e)),
        _local("RoPE", _vector(hw, -(-e // 2), ROPE)),
        in_sequence("scores", allreduce("", t, gemv(e, t)), _local("", _vector(hw, t))),
        in_sequence(
            "softmax",
            allreduce("", 1, _vector(hw, t)),
            allreduce("", 1, _vector(hw, t, FAST_EXP + 2)),
            _local("", _vector(hw, 1, RECIPROCAL) + _vector(hw, t)),
        ),
        allreduce("attention output", e, gemv(t, e)),
        allreduce("o", e, gemv(e, e)),
        residual("attention residual"),
        norm("feed-forward norm"),
        allreduce("up, gate", 2 * f, 2 * gemv(e, f)),
        _local("SiLU", _vector(hw, f, SILU)),
        allreduce("down", e, gemv(f, e)),
        residual("feed-forward residual"),
    ]


def _prefill_layer(hw: HardwareSpec, tiles: LayerTiles) -> list[OperatorCost]:
    e, f, t = tiles.hidden, tiles.ffn, tiles.context
    rows = t
    q, k, v, scores, output, o, up, gate, down = tiles.products(rows)
    every = lambda elements, instructions=1: rows * _vector(hw, elements, instructions)

    def allreduce(compute: int) -> OperatorCost:
        words = block_words(rows, DTYPE)
        return _reduced(hw, "", words, compute, message_cost.pipeline_cycles(hw, words))

    norm = lambda name: in_sequence(
        name,
        allreduce(every(e)),
        _local("", _vector(hw, rows, RECIPROCAL) + every(e, 2)),
    )
    return [
        norm("attention norm"),
        _multiplied(hw, tiles, q, aligned=True),
        _multiplied(hw, tiles, k),
        _multiplied(hw, tiles, v),
        _local("RoPE", every(-(-e // 2), ROPE)),
        in_sequence("scores", _transposed(hw, tiles, scores), _local("", every(t))),
        in_sequence(
            "softmax",
            allreduce(every(t)),
            allreduce(every(t, FAST_EXP + 2)),
            _local("", _vector(hw, rows, RECIPROCAL) + every(t)),
        ),
        _multiplied(hw, tiles, output, aligned=True),
        _multiplied(hw, tiles, o, aligned=True),
        _local("attention residual", every(e)),
        norm("feed-forward norm"),
        _multiplied(hw, tiles, up, aligned=True),
        _multiplied(hw, tiles, gate),
        _local("SiLU", every(f, SILU)),
        _multiplied(hw, tiles, down, aligned=True),
        _local("feed-forward residual", every(e)),
    ]


def _multiplied(
    hw: HardwareSpec, tiles: LayerTiles, product: Product, aligned: bool = False
) -> OperatorCost:
    """MeshGEMM whose last step shifts, too, so that the next product finds its tiles aligned."""
    side, local = tiles.side, product_cycles(hw, product)
    layout = layout_of(hw.mesh, *(side * size for size in product[1:]))
    cycles = shifts_cycles(hw, layout, side, local, DTYPE)
    words = side * (product.left_words + product.right_words)
    if aligned:
        cycles += align_rounds_cycles(hw, layout, "left", DTYPE)
        words += layout.a_rounds * product.left_words
    return _moving(hw, product.name, cycles, side * local, words)


def _transposed(hw: HardwareSpec, tiles: LayerTiles, product: Product) -> OperatorCost:
    """In each step the keys move along Y, and a sum along X ends in another column."""
    side, local = tiles.side, product_cycles(hw, product)
    shifted = product.right_words
    summed = product.result_words
    step = local + 2 * hw.launch_cycles + shifted + hw.task_cycles
    cycles = message_cost.rotating_sums_cycles(hw, summed, step)
    return _moving(hw, product.name, cycles, side * local, side * (shifted + summed))


def _vector(hw: HardwareSpec, elements: int, instructions: int = 1) -> int:
    return math.ceil(instructions * hw.vector_cycles(elements, DTYPE))


def _local(name: str, cycles: int) -> OperatorCost:
    return OperatorCost(name, cycles, cycles, 0, 0)


def _reduced(
    hw: HardwareSpec, name: str, words: int, compute: int, communication: int
) -> OperatorCost:
    return _moving(hw, name, compute + communication, compute, words)


def _moving(hw: HardwareSpec, name: str, cycles: int, compute: int, words: int) -> OperatorCost:
    """An operator in which every PE sends, and receives, so many words."""
    issue = min(2 * words, cycles - compute)
    return OperatorCost(name, cycles, compute, issue, words * hw.num_pes * WORD_BYTES)
