import sys
from pathlib import Path

import numpy as np
import pytest

import wafer_jax as wj
from wafer_jax.collectives import allreduce_ktree, broadcast, gemm, reduce_chain, reduce_star
from wafer_jax.hardware import RAMP, E, W
from wafer_jax.report.audit_measure import longest_trip, measure, paths

sys.path.append(str(Path(__file__).parent.parent / "collectives"))
from lines_harness import toy


def test_a_program_by_hand():
    builder = wj.ProgramBuilder(toy((2, 4)), "by hand")
    x = builder.tile("x", (4,))
    builder.path(0, (0, 0), (1, 2))
    builder.path(3, (0, 3), (0, 1))
    builder.role("a", at=(0, 0)).thread().send(0, x)
    last = builder.role("b", at=(1, 2))
    last.tile("sum", (2,), "float16")
    last.thread().receive(0, x, "add")
    found = measure(builder.build())
    assert (found.pes, found.working_share, found.busy_share) == (8, 1 / 8, 2 / 8)
    assert (found.trip_hops, found.chain_hops, found.chain_stages) == (3, 3, 1)
    assert (found.sram_bytes, found.colors) == (4 * 4 + 4, 4)
    # Colour 3 is routed, though nobody sends: 2 at the PEs (0, 1) and (0, 2).
    assert (found.routes, found.paths, found.receive_paths) == (2, 2, 1)
    assert found.routes_mean == (4 + 3) / 8
    assert (found.input_queues, found.output_queues) == (1, 1)


def test_a_trip_needs_a_sender():
    builder = wj.ProgramBuilder(toy((1, 4)), "nobody sends")
    builder.path(0, (0, 0), (0, 3))
    assert longest_trip(builder.build()) == 0


def test_routes_one_after_the_other_are_paths_each():
    """One colour; the source moves from PE 0 to PE 1 to PE 2: three paths into PE 3."""
    builder = wj.ProgramBuilder(toy((1, 4)), "moving source")
    segments = [None, builder.segment("second"), builder.segment("third")]
    for source, segment in enumerate(segments):
        paint = builder.route if segment is None else segment.route
        paint(0, 0, source, RAMP, E)
        paint(0, 0, slice(source + 1, 3), W, E)
        paint(0, 0, 3, W, RAMP)
    x = builder.tile("x", (1,))
    thread = builder.role("sink", at=(0, 3)).thread()
    for segment in segments[1:]:
        thread.receive(0, x).reconfigure(segment)
    program = builder.build()
    assert paths(program).tolist() == [[1, 2, 3, 3]]
    assert paths(program, delivered=True).tolist() == [[0, 0, 0, 3]]


def test_values_decide_so_there_is_no_chain():
    builder = wj.ProgramBuilder(toy((1, 2)), "by values")
    x = builder.tile("x", (1,))
    builder.path(0, (0, 0), (0, 1))
    kernel = wj.Kernel(name="count", fn=lambda x: x[0].astype("int32"))
    thread = builder.role("a", at=(0, 0)).thread()
    thread.compute(kernel, [x], [wj.Register(0)], 3).send(0, x)
    found = measure(builder.build())
    assert found.chain_hops is found.chain_stages is None
    assert found.trip_hops == 1


def test_a_star_takes_one_colour_and_a_path_per_sender():
    found = measure(reduce_star.program(toy((1, 9)), 4))
    assert (found.routes, found.colors) == (1, 1)
    assert (found.paths, found.receive_paths, found.trip_hops) == (8, 8, 8)
    assert (found.chain_hops, found.chain_stages) == (8, 1)


def test_a_position_that_no_word_takes_counts_for_nothing():
    """PE 0 turns the switch of PE 1 before it sends: no word goes as far as PE 2."""
    builder = wj.ProgramBuilder(toy((1, 3)), "turned")
    x = builder.tile("x", (1,))
    builder.route(0, 0, 0, RAMP, E)
    builder.switch(0, 0, 1, (W, E), (W, RAMP))
    builder.route(0, 0, 2, W, RAMP)
    builder.role("a", at=(0, 0)).thread().control(0, "advance").send(0, x)
    builder.role("b", at=(0, 1)).thread().receive(0, x)
    found = measure(builder.build())
    assert (found.trip_hops, found.chain_hops, found.chain_stages) == (1, 1, 1)


def test_an_empty_program():
    found = measure(wj.ProgramBuilder(toy((2, 2)), "empty").build())
    assert (found.routes, found.paths, found.trip_hops, found.chain_hops) == (0, 0, 0, 0)
    assert (found.busy_share, found.sram_bytes, found.colors) == (0, 0, 0)


@pytest.mark.parametrize("axis", ["x", "y"])
def test_lines(axis):
    hw = toy((6, 6))
    assert measure(broadcast.program(hw, 4, axis=axis)).trip_hops == 5
    assert measure(reduce_chain.program(hw, 4, axis=axis)).trip_hops == 1
    assert measure(reduce_chain.program(hw, 4, axis=axis)).working_share == pytest.approx(5 / 6)


def test_every_core_of_a_product_works():
    found = measure(gemm.program(toy((5, 5)), 5, 5, 5, align="host"))
    assert (found.working_share, found.trip_hops, found.routes) == (1.0, 2, 6)


def walk(program, color: int) -> np.ndarray:
    """Hops of every delivery of a colour, router by router from its sources: an independent way."""
    c = program.colors.index(color)
    rx, tx = program.rx[c], program.tx[c]
    steps = {0: (-1, 0, 2), 1: (0, 1, 3), 2: (1, 0, 0), 3: (0, -1, 1)}
    out = np.zeros(rx.shape, int)
    for y, x in np.argwhere(rx == RAMP):
        heads = [(y, x, 0)]
        while heads:
            y, x, hops = heads.pop()
            if tx[y, x] >> RAMP & 1:
                out[y, x] = hops
            for d, (dy, dx, back) in steps.items():
                if tx[y, x] >> d & 1 and rx[y + dy, x + dx] == back:
                    heads.append((y + dy, x + dx, hops + 1))
    return out


@pytest.mark.parametrize(
    "program",
    [
        allreduce_ktree.program(toy((2, 13)), 4, k=2),
        allreduce_ktree.program(toy((13, 1)), 4, k=3, axis="y"),
        gemm.program(toy((4, 7), threads=8), 4, 28, 7),
    ],
    ids=lambda p: p.name,
)
def test_trips_are_those_of_a_walk(program):
    assert longest_trip(program) == max(walk(program, c).max() for c in program.colors)
