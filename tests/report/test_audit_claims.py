"""WaferLLM's claims about PLMR (sections 5.1, 5.2 and 6.1), by brute force and by measurement."""

import sys
from itertools import pairwise, permutations
from pathlib import Path

import pytest

from wafer_jax.collectives import (
    allgather,
    allgather_relayed,
    allreduce_ktree,
    allreduce_pipeline,
    allreduce_ring,
    interleave,
)
from wafer_jax.hardware import RAMP
from wafer_jax.program import NO_ROUTE
from wafer_jax.report.audit import lifted
from wafer_jax.report.audit_measure import measure, paths
from wafer_jax.runtime.algorithms import ALGORITHMS

sys.path.append(str(Path(__file__).parent.parent / "collectives"))
from lines_harness import toy


def longest_link(order: tuple[int, ...]) -> int:
    return max(abs(a - b) for a, b in pairwise((*order, order[0])))


@pytest.mark.parametrize("length", range(3, 9))
def test_two_hops_are_the_least_that_a_ring_on_a_line_needs(length):
    """All cyclic orders; without loss of generality they begin with PE 0."""
    least = min(longest_link((0, *rest)) for rest in permutations(range(1, length)))
    assert least == 2
    assert longest_link(tuple(interleave.order(length).tolist())) == 2


@pytest.mark.parametrize("length", [9, 10, 64, 65])
def test_interleave_takes_two_hops_at_any_length(length):
    assert longest_link(tuple(interleave.order(length).tolist())) == 2


@pytest.mark.parametrize(("length", "k"), [(16, 1), (16, 2), (64, 2), (64, 3), (256, 4)])
def test_paths_of_a_ktree(length, k):
    """The paper gives the root K + 1 paths: one per phase, one for the broadcast. Here the two
    sides of a group have colours of their own: 2 K in, and one for the broadcast.
    """
    program = allreduce_ktree.program(lifted(toy((1, 1)), (1, length)), 4, k=k)
    root = allreduce_ktree.root_of(length, k)
    received = paths(program, delivered=True)[0, root]
    routes = (program.rx[:, 0, root] != NO_ROUTE).sum()
    sent = (program.rx[:, 0, root] == RAMP).sum()
    assert (received, sent, routes) == (2 * k, 1, 2 * k + 1)
    assert measure(program).routes == 2 * k + 1
    assert len(program.colors) <= 4 * k + 1


def test_one_sided_groups_would_take_the_papers_k_plus_1():
    """A group of two has one side; so has every group of a tree over 2^K PEs."""
    for k in (1, 2, 3):
        groups = tuple(2**left for left in range(k - 1, 0, -1))
        program = allreduce_ktree.program(toy((1, 2**k)), 4, k=k, groups=groups)
        root = allreduce_ktree.root_of(2**k, k, groups)
        assert (program.rx[:, 0, root] != NO_ROUTE).sum() == k + 1


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_stages_of_a_ktree_are_those_of_the_formula(k):
    """K N^(1/K) / 2, less up to half a stage per phase; hops N, and 6 % more on some lengths, where
    words of a phase first run away from the middle.
    """
    for length in (16, 27, 64, 81, 100, 256, 625, 1000, 1024):
        hw = lifted(toy((1, 1)), (1, length))
        reduced = measure(allreduce_ktree.program(hw, 4, k=k, broadcast=False))
        assert -1e-9 <= k * length ** (1 / k) / 2 - reduced.chain_stages <= k / 2
        whole = measure(allreduce_ktree.program(hw, 4, k=k))
        assert whole.chain_stages == reduced.chain_stages + 1
        assert length - 1 <= whole.chain_hops <= 1.06 * length


@pytest.mark.parametrize("length", [3, 4, 16, 61])
def test_a_pipeline_takes_2_n_hops_and_n_stages(length):
    found = measure(allreduce_pipeline.program(toy((1, length)), 4))
    assert (found.chain_hops, found.chain_stages) == (2 * (length - 1), length)
    assert found.routes == 3


@pytest.mark.parametrize("length", [4, 9, 32])
def test_a_ring_takes_more_of_both(length):
    """2 (P - 1) messages and 4 P - 6 hops, as Luczynski et al. (HPDC'24) have it."""
    found = measure(allreduce_ring.program(toy((1, length)), 4 * length))
    assert (found.chain_hops, found.chain_stages) == (4 * length - 6, 2 * (length - 1))


@pytest.mark.parametrize("length", [5, 12])
def test_routes_or_relays(length):
    """What allgather costs: a route per source, or a stage per hop."""
    hw = lifted(toy((1, 1)), (1, length))
    multicast, relayed = (measure(a.program(hw, 4)) for a in (allgather, allgather_relayed))
    assert (multicast.routes, multicast.chain_stages) == (length, 1)
    assert (relayed.routes, relayed.chain_stages) == (4, length - 1)
    assert multicast.chain_hops == relayed.chain_hops == length - 1


def tiles(name: str, size: int, **more) -> float:
    """Peak SRAM of a PE in tiles of an N-th by an N-th of a matrix."""
    dense = 8 * size
    hw = lifted(toy((1, 1), threads=8), (size, size))
    program = ALGORITHMS[name].program(hw, dense, dense, dense, **more)
    return measure(program).sram_bytes / (8 * 8 * 4)


@pytest.mark.parametrize("size", [4, 8])
def test_peaks_in_tiles(size):
    """A PE's own A, B and C are three tiles. A shift needs a second A and B to receive into, SUMMA
    two of each besides its own: more than double. An all-gather keeps N of A and of B.
    """
    assert tiles("gemm", size, align="host") == 5
    assert tiles("gemm.cannon", size, align="host") == 5
    assert tiles("gemm.summa", size) == 7 > 2 * 3
    assert tiles("gemm.allgather", size) == 2 * size + 1
