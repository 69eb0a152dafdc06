"""Generated reduce: the pre-order tree that suits the machine, the length and the words.

Luczynski et al.'s Auto-Gen (HPDC'24, arXiv 2404.15888) takes the tree that is best by their model,
``max(C B, E B / N + L) + (2 T_R + 1) D``: `model_tree`. The model supposes that the streams of a
tree overlap. On this machine a vertex adds one child's words after the other's, so a tree of many
levels with two children each takes longer than the model says (16 PEs, 64 words: 238 cycles
against 150). The generator therefore searches by the critical path, set-ups and switches
included, and takes the best of that tree and the well-known ones.
"""

from functools import lru_cache
from math import isqrt

import jax

from wafer_jax.collectives import preorder_search, reduce_binary_tree, reduce_star
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.lines import line_length
from wafer_jax.collectives.preorder_bulk import reduce_preorder
from wafer_jax.collectives.preorder_cost import critical_path_cycles
from wafer_jax.collectives.preorder_tree import (
    Parents,
    chain_tree,
    check_tree,
    tree_program,
    two_phase_tree,
)
from wafer_jax.collectives.tiles import Axis
from wafer_jax.collectives.tree_bulk import Op
from wafer_jax.hardware import HardwareSpec
from wafer_jax.plmr import plmr
from wafer_jax.program import Program

model_tree = preorder_search.best_by_model


@lru_cache(maxsize=256)
def tree_of(hw: HardwareSpec, words: int, length: int) -> Parents:
    """The generated tree: the earliest by its critical path."""
    trees = (
        preorder_search.earliest_tree(hw, words, length),
        chain_tree(length),
        two_phase_tree(length, isqrt(length)),
        reduce_binary_tree.tree_of(length),
        reduce_star.tree_of(length),
    )
    return min(trees, key=lambda tree: critical_path_cycles(hw, words, tree))


@checked
def program(
    hw: HardwareSpec,
    words: int,
    axis: Axis = "x",
    tree: Parents | None = None,
    dtype: str = "float32",
) -> Program:
    """Reduce tile x along every line over a tree, in place at position 0.

    Other PEs hold their sum with all their children but the last afterwards.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE; x is [words] float32, or [2 words] of a 16-bit type.
      axis: Lines are rows ("x") or columns ("y").
      tree: Position of each position's parent, -1 for position 0; None generates one.
      dtype: Element type.

    Raises:
      WaferError: No pre-order tree, too few colours, or tiles over the SRAM budget.
    """
    length = line_length(hw, axis)
    parents = tree_of(hw, words, length) if tree is None else tuple(tree)
    return tree_program(hw, words, axis, parents, dtype, "reduce over a generated tree")


def apply(tiles: jax.Array, tree: Parents, axis: Axis = "x", op: Op = "add") -> jax.Array:
    """Bulk level: [..., Y, X] to the tiles at position 0, [..., Y, 1] (axis "x") or [..., 1, X].

    Raises:
      WaferError: No pre-order tree, an unknown axis or op.
    """
    return reduce_preorder(tiles, tuple(tree), axis, op)


@checked
def cost(hw: HardwareSpec, words: int, axis: Axis = "x", tree: Parents | None = None) -> int:
    """Cycles of the tree's critical path, with each link free when a word comes.

    Exact for the generated trees of the presets wherever it was tried (up to 64 PEs), and up to
    two cycles too many on machines with shorter or deeper queues. In other trees words that
    wait for their turn share links with those of the subtree that they cross: up to 5 cycles or
    6 % for the trees of `model_tree`, up to 10 cycles or 16 % for any tree over 6 PEs.

    Raises:
      WaferError: No pre-order tree.
    """
    length = line_length(hw, axis)
    parents = tree_of(hw, words, length) if tree is None else tuple(tree)
    check_tree(parents, length)
    return critical_path_cycles(hw, words, parents)


def lower_bound(hw: HardwareSpec, words: int, length: int) -> float:
    """Cycles below which no pre-order tree comes by the model.

    ``min over D of B E(D) / N + L + (2 R + 1) D``: E(D) is the least energy of a pre-order tree of
    depth D; N = L = P - 1 (Luczynski et al.; so is the search in their published code).
    It bounds the model, not the machine: the model adds the time that the links are busy to the
    time that a word travels, where a good tree overlaps the two and may be faster (64 PEs of the
    WSE-2, 16 words: 122 cycles against 132).
    """
    if length == 1:
        return 0.0
    links = length - 1
    energies = preorder_search.least_energy_by_depth(length)
    beta = plmr(hw).beta_cycles
    return min(energies[d] * words / links + links + beta * d for d in range(1, length))
