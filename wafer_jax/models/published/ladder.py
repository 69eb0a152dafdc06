"""Ladder on a mesh, as WaferLLM's paper defines the baseline: all SRAM is one shared memory.

Ladder (OSDI'24) lays tensors out for a memory with uniform access. On a wafer that memory is the
cores' SRAM, so every tile that a core works on comes over the mesh (WaferLLM, section 7). Fetching
one takes latency and bandwidth:

    fetch = accesses * 2 (2 P / 3) (alpha + beta) + P / 2 beta words

Its accesses depend on one another and are answered by a core two thirds of P hops away on average
(two PEs at random on P x P), through every core on the way, alpha = h and beta = 2 T_R + 1 (PLMR,
section 3). Of a tile's words half cross the middle of the mesh, where every core passes on those of
P / 2 cores, beta each. A prefill takes P steps per product and fetches a tile of either operand in
each; in decode only weights, keys and values are fetched, the token's vector is at hand.

`ACCESSES` is fitted to one row, the decode of LLaMA3-8B on 420 x 420 (table 4). All other rows are
held out. Work that is no product is left out.
"""

from wafer_jax.collectives.kernels import gemv_cycles
from wafer_jax.hardware import WORD_BYTES, HardwareSpec
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.mesh_costs import PhaseCosts
from wafer_jax.models.operator_cost import OperatorCost
from wafer_jax.models.published.local_product import product_cycles
from wafer_jax.models.published.tiles import DTYPE, tiles_of
from wafer_jax.plmr import plmr

ACCESSES = 49
"""Accesses of a tile's fetch that wait for one another."""


def decode_costs(hw: HardwareSpec, config: DecoderConfig, context: int) -> PhaseCosts:
    """One token; arguments and errors as of `waferllm.decode_costs`."""
    layer = []
    for product in tiles_of(hw, config, context).products(1):
        local = gemv_cycles(hw, product.contracted, product.columns, DTYPE)
        layer.append(_fetched(hw, product.name, 1, 1, product.right_words, local))
    return PhaseCosts("decode", context, tuple(layer), (), config.num_layers, hw.clock_hz)


def prefill_costs(hw: HardwareSpec, config: DecoderConfig, tokens: int) -> PhaseCosts:
    """A prompt; arguments and errors as of `waferllm.prefill_costs`."""
    tiles, layer = tiles_of(hw, config, tokens), []
    for product in tiles.products(tiles.context):
        words, local = product.left_words + product.right_words, product_cycles(hw, product)
        layer.append(_fetched(hw, product.name, tiles.side, 2, words, local))
    return PhaseCosts("prefill", tokens, tuple(layer), (), config.num_layers, hw.clock_hz)


def _fetched(
    hw: HardwareSpec, name: str, steps: int, fetches: int, words: int, local: int
) -> OperatorCost:
    """A product of so many steps, each with so many fetches of ``words`` together."""
    side, machine = hw.mesh[0], plmr(hw)
    hops = 2 * side // 3
    latency = ACCESSES * 2 * machine.access_cycles(hops=hops, stages=hops)
    routed = side * machine.beta_cycles * words // 2
    cycles = steps * (fetches * latency + routed + local)
    moved = steps * hw.num_pes * words * WORD_BYTES
    return OperatorCost(name, cycles, steps * local, steps * routed, moved)
