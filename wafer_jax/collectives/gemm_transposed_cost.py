"""Cycles of the transposed MeshGEMM: one row of PEs, step after step.

A word passes from one PE's core to the next in L = 2 R + 1 + h cycles. In a step PE x has its
product in cycle t_x; its chain's first word leaves it at

    f_x = max over the PEs x' behind it of (t_x' + s + L |x - x'|)

and its last one ``words`` cycles later; the root first copies its own part, then takes the shorter
half-chain's words and the other's, one after the other. Then the PE goes on to the next step, so
the far ends of a row are ahead of its root, and stay ahead while the root moves: a product pays
for the way to a root when chains turn round, not in every step.

B's tiles move meanwhile, and a product takes at least three cycles per word of them, so they show
only in two launches, two waits, a task, and the words that move while the product shares the
datapath with them. Rows wait for each other only to hand tiles on. All rows have the same roots in
turn, each beginning with another one; the last row's order takes longest.

Exact on one row whose chains are shorter than the queues on their way, and where no two half-chains
meet. Residuals, up to 3 cycles a step on square meshes: the half-chain that comes too early fills
its input queue at the root's RAMP and delays the other by as many cycles; with launches as short as
the toy's, events of control and streams want the slot in one cycle. On rows of 7 PEs, and where
Y and X differ, so that a tile has parts for several roots, a delay may add up: 5 % on a WSE-2, 20 %
on the toy, were the most in random shapes.
"""

import math
from functools import lru_cache

import numpy as np

from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.gemm_cost import Parts
from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.collectives.gemm_transposed_layout import parts_of_tile, tile_numbers
from wafer_jax.collectives.kernels import copy_cycles, gemm_cycles
from wafer_jax.collectives.launches import launched
from wafer_jax.collectives.tiles import tile_size
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec


@checked
def cost(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> int:
    """Cycles of ``gemm_transposed.program`` with the same arguments."""
    return cost_parts(hw, m, k, n, dtype=dtype).total


@checked
def cost_parts(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> Parts:
    """Cycles of ``gemm_transposed.program`` with the same arguments, by what they are for.

    Raises:
      WaferError: A size below 1.
    """
    if min(m, k, n) < 1:
        raise WaferError(
            f"transposed MeshGEMM of [{m}, {k}] x [{n}, {k}]: sizes must be at least 1"
        )
    height, width = hw.mesh
    steps = math.lcm(height, width)
    tile_m, tile_k, part_n = tile_size(m, height), tile_size(k, width), tile_size(n, steps)
    rows = part_n * steps // height
    product = gemm_cycles(hw, tile_m, tile_k, rows, dtype)
    total = _row_cycles(hw, product, block_words(rows * tile_k, dtype), part_n * tile_m)
    return Parts(height * product, 0, total - height * product)


@lru_cache(maxsize=256)
def _row_cycles(hw: HardwareSpec, product: int, moved_words: int, part_words: int) -> int:
    """Cycles of the last row, whose PEs start in cycle 0."""
    height, _ = hw.mesh
    start = np.zeros(hw.mesh[1], np.int64)
    around = launched(hw, 2) + moved_words
    for step, tile in enumerate(tile_numbers(height)[:, -1]):
        moves = step < height - 1
        now = start + product + moves * around
        for root, _, count in parts_of_tile(hw.mesh, int(tile)):
            now = _after_chain(hw, now, root, count * part_words)
        start = now + moves * (2 + hw.task_cycles)
    return int(start.max())


def _after_chain(hw: HardwareSpec, now: np.ndarray, root: int, words: int) -> np.ndarray:
    """When each PE [X] is done with a sum in ``root`` that it turns to in cycle ``now``."""
    width, setup, hop = len(now), hw.stream_setup_cycles, pass_cycles(hw, 1)
    if width == 1:
        return now + copy_cycles(hw, words)
    way = hop * np.arange(width)
    east = np.maximum.accumulate(now + setup - way) + way
    west = (np.maximum.accumulate((now + setup + way)[::-1]) - way[::-1])[::-1]
    done = np.where(np.arange(width) < root, east, west) + words
    sides = [(root, east[root - 1]), (width - 1 - root, west[min(root + 1, width - 1)])]
    at_root = now[root] + copy_cycles(hw, words)
    for length, first in sorted(sides, key=lambda side: side[0]):
        if length:
            at_root = max(at_root + setup, first + hop) + words
    done[root] = at_root
    return done
