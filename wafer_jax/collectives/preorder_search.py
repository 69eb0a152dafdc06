"""Search over all pre-order trees of a line: least energy, best by the model, earliest sum.

Symbols: B words, P positions, R ``ramp_cycles``, h ``hop_cycles``, s ``stream_setup_cycles``.
"""

from functools import lru_cache

import numpy as np

from wafer_jax.collectives.preorder_tree import Parents
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec
from wafer_jax.plmr import plmr

NO_TREE = 1 << 28
"""Energy of what does not exist; two of them still fit an int32."""

LONGEST = 128
"""Positions up to which energies are tabulated by contention, about P^5 steps: 1 s."""


@lru_cache(maxsize=4)
def least_energies(length: int, contention: int) -> np.ndarray:
    """Least energy of trees with at most C children per vertex, c of them at the root.

    A tree splits at the root's last child into the tree before it, with one child fewer, and the
    child's own, with one stage less; its words cross as many links as the first part has
    positions (Luczynski et al., HPDC'24, Auto-Gen, where C and c are one number):
    ``E(n, d, c) = min over i of E(i, d, c - 1) + E(n - i, d - 1, C) + i``.

    Returns:
      [d, c, n] int32 for depths d < P, c up to C, n up to P positions; `NO_TREE` where none is.
    """
    n = np.arange(length + 1)
    behind = n[:, None] - n[None, :]
    splits = (behind >= 1) & (n >= 1)
    table = np.full((length, contention + 1, length + 1), NO_TREE, np.int32)
    table[:, :, 1] = 0
    for d in range(1, length):
        child = np.where(splits, table[d - 1, contention][behind] + n, NO_TREE).astype(np.int32)
        for c in range(1, contention + 1):
            best = (table[d, c - 1] + child).min(axis=1)
            table[d, c] = np.minimum(table[d, c - 1], best)
            if np.array_equal(table[d, c], table[d, c - 1]):
                table[d, c + 1 :] = table[d, c]
                break
    return table


@lru_cache(maxsize=8)
def energy_table(length: int) -> np.ndarray:
    """[C, D] int32: least energy with at most C children per vertex and depth at most D.

    Raises:
      WaferError: A line longer than `LONGEST`.
    """
    if length > LONGEST:
        raise WaferError(
            f"a search over trees of {length} positions: choose at most {LONGEST}, or the earliest"
        )
    table = np.full((length, length), NO_TREE, np.int32)
    for contention in range(1, length):
        table[contention] = least_energies(length, contention)[:, contention, length]
    return table


def least_energy_tree(length: int, contention: int, depth: int) -> Parents:
    """A tree of least energy with at most ``contention`` children per vertex and that depth."""
    table = least_energies(length, contention)
    parents = [-1] * length
    todo = [(0, length, depth, contention)]
    while todo:
        root, n, d, c = todo.pop()
        if n == 1:
            continue
        split = next(
            i
            for i in range(1, n)
            if table[d, c - 1, i] + table[d - 1, contention, n - i] + i == table[d, c, n]
        )
        parents[root + split] = root
        todo += [(root, split, d, c - 1), (root + split, n - split, d - 1, contention)]
    return tuple(parents)


def best_by_model(hw: HardwareSpec, words: int, length: int) -> Parents:
    """The tree with the least `model_cycles`: Auto-Gen of Luczynski et al., HPDC'24.

    Raises:
      WaferError: A line longer than `LONGEST`.
    """
    if length == 1:
        return (-1,)
    energy, links = energy_table(length), length - 1
    contention, depth = np.ogrid[:length, :length]
    moved = np.maximum(contention * words, energy * words / links + links)
    cycles = np.where(energy < NO_TREE, moved + plmr(hw).beta_cycles * depth, np.inf)
    least = np.unravel_index(np.argmin(cycles), cycles.shape)
    return least_energy_tree(length, int(least[0]), int(least[1]))


@lru_cache(maxsize=8)
def least_energy_by_depth(length: int) -> np.ndarray:
    """[D] int64: least energy of a pre-order tree of depth at most D, at index 0 of no use."""
    energy = np.full((length, length + 1), NO_TREE, np.int64)
    energy[:, 1] = 0
    for d in range(1, length):
        for n in range(2, length + 1):
            first = np.arange(1, n)
            energy[d, n] = (energy[d, first] + energy[d - 1, n - first] + first).min()
    return energy[:, length]


def earliest_tree(hw: HardwareSpec, words: int, length: int) -> Parents:
    """The tree whose root has the sum first if every link is free when a word comes.

    S(n), the cycle in which a vertex with n positions issues the first word of its last stream, is
    the least over i, the positions before its last child, of the latest of: the child's first word
    comes, ``S(n - i) + 2 R + 1 + h i``; the vertex is done with its other children and set up,
    ``S(i) + B + s``; the child before has handed over its router, ``S(i) + B + 1 + h``.
    """
    start = np.full(length + 1, hw.stream_setup_cycles)
    splits = np.zeros(length + 1, int)
    between = max(hw.stream_setup_cycles, 1 + hw.hop_cycles)
    for n in range(2, length + 1):
        first = np.arange(1, n)
        comes = start[n - first] + pass_cycles(hw, 0) + hw.hop_cycles * first
        ready = np.where(first == 1, hw.stream_setup_cycles, start[first] + words + between)
        issued = np.maximum(comes, ready)
        splits[n] = 1 + np.argmin(issued)
        start[n] = issued.min()
    parents = [-1] * length
    todo = [(0, length)]
    while todo:
        root, n = todo.pop()
        if n > 1:
            split = int(splits[n])
            parents[root + split] = root
            todo += [(root, split), (root + split, n - split)]
    return tuple(parents)
