"""Cycles of a reduction tree, from the latencies of the machine and the shape of the tree.

With ``s = stream_setup_cycles``, ``R = ramp_cycles``, ``h = hop_cycles`` and B words, a member
passes its first word on ``1 + 2 R + h d`` cycles after its predecessor at distance d did (issue,
ramp, links, ramp; 2 T_R + 2 at distance 1 in Luczynski et al., HPDC'24), or ``s`` cycles after it
is done with earlier phases, whichever is later. A root takes B cycles for each side.
"""

from functools import cache, lru_cache, partial
from itertools import pairwise

from wafer_jax.collectives.tree import Phases, members
from wafer_jax.hardware import HardwareSpec
from wafer_jax.plmr import plmr


def pass_cycles(hw: HardwareSpec, distance: int) -> int:
    """Cycles from the issue of a word to its arrival at a PE ``distance`` links away."""
    return plmr(hw).access_cycles(hops=distance, stages=1)


@lru_cache(maxsize=1024)
def tree_cycles(hw: HardwareSpec, phases: Phases, length: int, words: int) -> int:
    """Cycles until the final root has the sum, if all PEs start in cycle 0.

    A later common start adds to it. Exact unless words of a phase run into a group that is still
    busy with the phase before: they then take the RAMP from its words now and then, or wait for
    its root. The trees of this package let that happen in two cases only: a K-tree of four or
    more phases, rarely and for a few cycles; and a K-tree cut by the user into an even number of
    unequal groups, for up to as many cycles as the input queue holds words.
    """
    done = [0] * length
    received = [0] * length
    passing = cache(partial(pass_cycles, hw))
    for placed in members(phases, length):
        for group, positions in placed:
            root = positions[group.root]
            arrivals = []
            for chain in group.chains():
                nodes = [positions[i] for i in chain]
                first = done[nodes[0]] + hw.stream_setup_cycles
                for a, b in pairwise(nodes):
                    ready = done[b] + hw.stream_setup_cycles
                    first = max(ready, first + passing(abs(a - b)))
                arrivals.append(first + passing(abs(nodes[-1] - root)))
            for i, arrival in enumerate(arrivals):
                start = max(done[root] + hw.stream_setup_cycles, arrival)
                done[root] = start + words
                received[root] += 1
                if i == 0 and len(arrivals) == 2:
                    depth = hw.input_queue_depths[received[root]] + hw.ramp_cycles
                    done[root] += _ramp_words(words, depth, arrivals[1] - start)
    return max(done[root], 0)


def _ramp_words(words: int, capacity: int, delay: int) -> int:
    """Words of a root's second side that pass the RAMP in between those of its first side.

    Both sides want the RAMP, one word per cycle, and take turns (the first side first) until the
    second side's input queue of ``capacity`` words is full or the first side has passed. The
    second side's words reach the router ``delay`` cycles after the first side's.
    """
    if delay >= 0:
        return min(words, capacity, max(words - delay - 1, 0))
    ahead = min(words, capacity, -delay)
    return min(min(words, capacity) - ahead, words - 1)
