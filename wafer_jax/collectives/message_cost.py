"""Cycles of allreduces whose cores pass on whole messages.

Published code of the K-tree (WaferLLM's decode) adds a message to its own by one blocking
instruction, and then sends the sum by another. The programs here pass every word on as soon as it
is there (`Forward`), as one instruction from the fabric to the fabric would. By whole messages a
core sends B words after it has added all B, and launches the send: over d hops, a stage takes

    launch + 2 T_R + 1 + h d + B    instead of    2 T_R + 1 + h d

No program here does so. The launch is `HardwareSpec.launch_cycles`, of vector instructions that
stand alone.
"""

from itertools import pairwise

import numpy as np

from wafer_jax.collectives import broadcast
from wafer_jax.collectives.allreduce_ktree import phases_of
from wafer_jax.collectives.interleave import order
from wafer_jax.collectives.lines import line_length
from wafer_jax.collectives.tiles import Axis
from wafer_jax.collectives.tree import Phases, final_root, members, whole
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.hardware import HardwareSpec


def ktree_cycles(
    hw: HardwareSpec,
    words: int,
    k: int = 2,
    axis: Axis = "x",
    groups: tuple[int, ...] | None = None,
) -> int:
    """Cycles of `allreduce_ktree` by whole messages, broadcast included.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE.
      k: Phases.
      axis: Lines are rows ("x") or columns ("y").
      groups: Number of groups per phase but the last, see `phases_of`.

    Raises:
      WaferError: k < 1, unfit groups; an unknown axis.
    """
    length = line_length(hw, axis)
    return _cycles(hw, phases_of(length, k, groups), length, words)


def pipeline_cycles(hw: HardwareSpec, words: int, axis: Axis = "x") -> int:
    """Cycles of `allreduce_pipeline` by whole messages, broadcast included.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE.
      axis: Lines are rows ("x") or columns ("y").

    Raises:
      WaferError: An unknown axis.
    """
    length = line_length(hw, axis)
    return _cycles(hw, whole(length, 0), length, words)


def rotating_sums_cycles(hw: HardwareSpec, words: int, between_cycles: int) -> int:
    """Cycles of one sum along a row per PE of it, each in another PE's turn as the root.

    The transposed product of WaferLLM's prefill: after each step's local work every PE passes its
    message on towards the root, which moves along the row as tiles do on an interleaved ring.
    PEs wait for the messages of those behind them only, so the far ends run ahead.

    Args:
      hw: Machine and mesh.
      words: 32-bit words per PE and step.
      between_cycles: Of a step's local work.
    """
    length = line_length(hw, "x")
    if length == 1:
        return between_cycles
    send = hw.launch_cycles + words
    stage = send + pass_cycles(hw, 1)
    place = np.arange(length)
    way, free = stage * place, np.zeros(length, np.int64)
    for root in order(length):
        ready = free + between_cycles
        east = np.maximum.accumulate(ready - way) + way
        west = np.maximum.accumulate((ready + way)[::-1])[::-1] - way
        free = np.where(place < root, east, west) + send
        free[root] = ready[root]
        for side, end in ((east, root - 1), (west, root + 1)):
            if 0 <= end < length:
                free[root] = max(free[root] + send, side[end] + stage)
    return int(free.max())


def _cycles(hw: HardwareSpec, phases: Phases, length: int, words: int) -> int:
    if length == 1:
        return 0
    root = final_root(phases, length)
    flood = hw.launch_cycles + broadcast.flood_cycles(hw, words, length, root)
    return _sum_cycles(hw, phases, length, words) + flood


def _sum_cycles(hw: HardwareSpec, phases: Phases, length: int, words: int) -> int:
    """Cycles until the final root has the sum; a root adds its two sides one after the other."""
    done = [0] * length
    for placed in members(phases, length):
        for group, positions in placed:
            root = positions[group.root]
            for chain in group.chains():
                nodes = [*(positions[i] for i in chain), root]
                for a, b in pairwise(nodes):
                    arrived = done[a] + hw.launch_cycles + pass_cycles(hw, abs(a - b)) + words
                    busy = done[b] + hw.launch_cycles + words if done[b] else 0
                    done[b] = max(arrived, busy)
    return max(done)
