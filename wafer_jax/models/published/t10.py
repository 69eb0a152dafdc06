"""T10 on a mesh, as WaferLLM's paper defines the baseline: planned for a crossbar.

T10 (SOSP'24) plans products as compute-shift steps between cores whose distance it takes to be
all the same, operator by operator. Ported to a mesh (WaferLLM, section 7), a core fetches its next
tiles from whichever core owns them, and fetches have no routes of their own: cores on the way pass
them on in software. No constant is fitted here: the structure below was chosen with the paper's
rates in view, its constants are the machine's, alpha = h of a hop and beta = 2 T_R + 1 of a word
through a core (PLMR, section 3).

*Prefill.* Every product takes P steps, in each of which a core fetches a tile of either operand.
Owners are anywhere on the line, so half of a line's P fetches cross its middle, whose core passes
on P / 2 of them per step and operand:

    step = local product + P / 2 sum over operands (2 (2 launch + task) + beta (1 + words))

A fetch is a request of one word and a reply; a core takes in, and sends on, each by a launch, in a
task.

*Decode.* Weights stay where they are, and partial sums may be added in any order (the paper's
reason why T10 loses less here), so each of the 13 reductions of a layer is a chain through all
cores of a line, and its result goes back the same way, words passed on at once:

    reduction = local product + 2 ((P - 1) (alpha + beta) + words)

Local work between the products is left out in both.
"""

from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.collectives.kernels import gemv_cycles
from wafer_jax.hardware import WORD_BYTES, HardwareSpec
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.mesh_costs import PhaseCosts
from wafer_jax.models.operator_cost import OperatorCost
from wafer_jax.models.published.local_product import product_cycles
from wafer_jax.models.published.tiles import DTYPE, Product, tiles_of
from wafer_jax.plmr import plmr

SCALAR_REDUCTIONS = ("attention norm", "softmax maximum", "softmax sum", "feed-forward norm")
"""Of decode, one element each."""


def decode_costs(hw: HardwareSpec, config: DecoderConfig, context: int) -> PhaseCosts:
    """One token; arguments and errors as of `waferllm.decode_costs`."""
    tiles = tiles_of(hw, config, context)
    layer = [_reduction(hw, name, 1, 0) for name in SCALAR_REDUCTIONS]
    for product in tiles.products(1):
        local = gemv_cycles(hw, product.contracted, product.columns, DTYPE)
        layer.append(_reduction(hw, product.name, product.columns, local))
    return PhaseCosts("decode", context, tuple(layer), (), config.num_layers, hw.clock_hz)


def prefill_costs(hw: HardwareSpec, config: DecoderConfig, tokens: int) -> PhaseCosts:
    """A prompt; arguments and errors as of `waferllm.prefill_costs`."""
    tiles = tiles_of(hw, config, tokens)
    layer = tuple(_stepped(hw, product) for product in tiles.products(tiles.context))
    return PhaseCosts("prefill", tokens, layer, (), config.num_layers, hw.clock_hz)


def _reduction(hw: HardwareSpec, name: str, elements: int, local: int) -> OperatorCost:
    side, words = hw.mesh[0], block_words(elements, DTYPE)
    stages = side - 1
    cycles = 2 * (plmr(hw).access_cycles(hops=stages, stages=stages) + words)
    moved = 2 * hw.num_pes * words * WORD_BYTES
    return OperatorCost(name, local + cycles, local, 2 * words, moved)


def _stepped(hw: HardwareSpec, product: Product) -> OperatorCost:
    side, local, beta = hw.mesh[0], product_cycles(hw, product), plmr(hw).beta_cycles
    handled = 2 * (2 * hw.launch_cycles + hw.task_cycles)
    words = product.left_words + product.right_words
    routed = side * (2 * (handled + beta) + beta * words) // 2
    moved = side * hw.num_pes * words * WORD_BYTES
    return OperatorCost(product.name, side * (local + routed), side * local, side * routed, moved)
