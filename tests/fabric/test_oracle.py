"""The oracle against timelines computed by hand from docs/semantics.md.

The toy machine: hop 1, ramp 1, router depth 2, input queues 2, output queues 1, no set-up. So the
router FIFO of a sender holds 5 words (latency 2), that of a forwarder 3, an input queue 3.
"""

from collections import Counter

import numpy as np
import pytest
from oracle import Oracle
from oracle_state import POISON
from random_families import DYNAMIC_FAMILIES, FAMILIES, REGISTER_FAMILIES
from random_programs import random_program

from wafer_jax.builder import ProgramBuilder
from wafer_jax.events import Kernel
from wafer_jax.faults import Fault
from wafer_jax.hardware import RAMP, E, N, S, W, hardware


def toy(mesh, **changes):
    return hardware("toy", mesh).replace(**changes)


def timeline(oracle, key, at, cycles):
    """``snapshot()[key]`` at an index, at the start of cycles 0 .. cycles-1 (no jump between)."""
    out = []
    for cycle in range(cycles):
        assert oracle.now == cycle
        out.append(int(oracle.snapshot()[key][at]))
        oracle.step()
    return out


def pipe(words, hw=None):
    """PE 0 sends ``words`` words east to PE 1."""
    b = ProgramBuilder(hw or toy((1, 2)), "pipe")
    x = b.tile("x", (words,))
    b.path(0, (0, 0), (0, 1))
    b.role("source", at=(0, 0)).thread().send(0, x)
    b.role("sink", at=(0, 1)).thread().receive(0, x)
    return b.build(inputs=["x"], outputs=["x"])


def chain_reduce(pes, words, hw):
    """PE pes-1 sends west, every other PE adds its own tile and passes on, PE 0 keeps the sum."""
    b = ProgramBuilder(hw, "chain")
    x = b.tile("x", (words,))
    for i in range(1, pes):
        b.path(i % 2, (0, i), (0, i - 1))
    b.role("tail", at=(0, pes - 1)).thread().send((pes - 1) % 2, x)
    for i in range(1, pes - 1):
        b.role(f"middle {i}", at=(0, i)).thread().forward((i + 1) % 2, i % 2, x)
    b.role("root", at=(0, 0)).thread().receive(1, x, "add")
    return b.build(inputs=["x"], outputs=["x"])


# Cycle 0: issue. 2: ready at the ramp, crosses the link. 3: enters the input queue. 4: received.
def test_one_word_across_one_link():
    def watch(key, at):
        return timeline(Oracle(pipe(1)), key, at, 6)

    assert watch("router_total", (0, 0, 0)) == [0, 1, 1, 0, 0, 0]
    assert watch("router_ready", (0, 0, 0)) == [0, 0, 1, 0, 0, 0]
    assert watch("router_ready", (0, 0, 1)) == [0, 0, 0, 1, 0, 0]
    assert watch("input_total", (0, 0, 1)) == [0, 0, 0, 0, 1, 0]
    assert watch("input_ready", (0, 0, 1)) == [0, 0, 0, 0, 1, 0]
    assert watch("sent", (0, 0, 0)) == [0, 1, 1, 1, 1, 1]
    assert watch("received", (0, 0, 1)) == [0, 0, 0, 0, 0, 1]
    assert watch("left", (0, 0, 1)) == [1, 1, 1, 1, 1, 0]


def test_end_of_a_run():
    oracle = Oracle(pipe(1), {"x": np.array([[[7.0, 0.0]]], np.float32)}).run()
    end = oracle.snapshot()
    assert oracle.stuck
    assert end["now"] == oracle.cycles == 5
    assert end["halted"].all()
    assert end["pc"].tolist() == [[[1, 1]]]
    assert end["ready_at"].tolist() == [[[1, 5]]]  # the finish cycles
    assert end["faults"].tolist() == [[0, 0]]
    assert oracle.tile("x").tolist() == [[[7.0, 7.0]]]
    assert not oracle.step()
    assert oracle.now == 5


def test_a_stream_moves_a_word_per_cycle():
    oracle = Oracle(pipe(6))
    assert timeline(oracle, "received", (0, 0, 1), 10) == [0, 0, 0, 0, 0, 1, 2, 3, 4, 5]
    assert oracle.run().cycles == 10


def test_latencies_add_up():
    hw = toy((1, 2), hop_cycles=3, ramp_cycles=2, stream_setup_cycles=4)
    # set-up 4, issue to ready 1 + 2, link 3, ramp 2, and the cycle that receives
    assert Oracle(pipe(1, hw)).run().cycles == 4 + 3 + 3 + 2 + 1


@pytest.mark.parametrize("pes", [2, 3, 5])
@pytest.mark.parametrize("words", [1, 4, 9])
@pytest.mark.parametrize(("ramp", "setup"), [(1, 0), (2, 0), (2, 5)])
def test_chain_reduce(pes, words, ramp, setup):
    program = chain_reduce(
        pes, words, toy((1, pes), ramp_cycles=ramp, stream_setup_cycles=setup, router_depth=1)
    )
    x = np.arange(words * pes, dtype=np.float32).reshape(words, 1, pes)
    oracle = Oracle(program, {"x": x}).run()
    assert oracle.cycles == words + (2 * ramp + 2) * (pes - 1) + setup
    assert np.array_equal(oracle.tile("x")[:, 0, 0], x.sum(axis=(1, 2)))
    assert Oracle(program, values=False).run().cycles == oracle.cycles


def test_back_pressure_fills_every_queue():
    b = ProgramBuilder(toy((1, 2)))
    x = b.tile("x", (20,))
    b.path(0, (0, 0), (0, 1))
    b.role("source", at=(0, 0)).thread().send(0, x)
    b.role("sink", at=(0, 1)).thread().wait(0).receive(0, x)
    oracle = Oracle(b.build(), {"x": np.ones((20, 1, 2), np.float32)}).run()
    end = oracle.snapshot()
    assert end["router_total"].tolist() == [[[5, 3]]]
    assert end["input_total"].tolist() == [[[0, 3]]]
    assert end["sent"][0, 0, 0] == 11
    assert (end["faults"] == Fault.DEADLOCK).all()


def test_a_freed_slot_is_usable_in_the_next_cycle():
    """A full input queue (2 places) that gives a word away in cycle 6 takes none before cycle 7."""
    b = ProgramBuilder(toy((1, 2), router_depth=1, input_queue_depths=(1,)))
    x = b.tile("x", (9,))
    b.path(0, (0, 0), (0, 1))
    b.role("source", at=(0, 0)).thread().send(0, x)
    sink = b.role("sink", at=(0, 1)).thread()
    with sink.loop(9):  # one word every second cycle: the loop event takes the other
        sink.receive(0, x.slice(0, 1))
    oracle = Oracle(b.build(), {"x": np.ones((9, 1, 2), np.float32)})
    # first word received in 4, then in 6, 8, ...: the input queue (2 places) and the router fill up
    assert timeline(oracle, "received", (0, 0, 1), 10) == [0, 0, 0, 0, 0, 1, 1, 2, 2, 3]
    oracle = Oracle(b.build(), {"x": np.ones((9, 1, 2), np.float32)})
    assert timeline(oracle, "input_total", (0, 0, 1), 10) == [0, 0, 0, 0, 1, 1, 2, 1, 2, 1]
    oracle = Oracle(b.build(), {"x": np.ones((9, 1, 2), np.float32)})
    assert timeline(oracle, "router_total", (0, 0, 1), 12) == [0, 0, 0, 1, 1, 1, 1, 2, 1, 2, 1, 2]


def test_arbitration_is_a_round_of_first_losers():
    """Three colours meet in the middle of 3x3 and want the link east; words arrive in 3 and 4."""
    b = ProgramBuilder(toy((3, 3), input_queue_depths=(4, 4, 4)))
    x = b.tile("x", (2,))
    for color, start, out, back in ((3, (0, 1), S, N), (5, (2, 1), N, S), (9, (1, 0), E, W)):
        b.route(color, *start, RAMP, out)
        b.route(color, 1, 1, back, E)
        b.route(color, 1, 2, W, RAMP)
        b.role(f"source {color}", at=start).thread().send(color, x)
    b.role("sink", at=(1, 2)).thread().wait(0)
    program = b.build()
    assert program.colors == (3, 5, 9)
    middle = (1, 1)
    assert timeline(Oracle(program), "color_pointer", middle, 10) == [0, 0, 0, 0, 1, 2, 0, 1, 2, 2]
    totals = [timeline(Oracle(program), "router_total", (c, *middle), 10) for c in range(3)]
    assert totals[0] == [0, 0, 0, 1, 1, 1, 1, 0, 0, 0]  # leaves in 3 and 6
    assert totals[1] == [0, 0, 0, 1, 2, 1, 1, 1, 0, 0]  # in 4 and 7
    assert totals[2] == [0, 0, 0, 1, 2, 2, 1, 1, 1, 0]  # in 5 and 8


def test_multicast_goes_to_all_targets_or_none():
    b = ProgramBuilder(toy((1, 3)))
    x = b.tile("x", (20,))
    b.path(0, (0, 0), (0, 2))
    b.path(0, (0, 0), (0, 1))
    b.role("source", at=(0, 0)).thread().send(0, x)
    b.role("near", at=(0, 1)).thread().receive(0, x)
    b.role("far", at=(0, 2)).thread().wait(0)
    end = Oracle(b.build(), {"x": np.ones((20, 1, 3), np.float32)}).run().snapshot()
    # the far input queue and router hold 3 each; nothing more passes the middle, for either target
    assert end["received"][0, 0].tolist() == [0, 6, 0]
    assert end["router_total"][0, 0].tolist() == [5, 3, 3]


def test_the_issue_slot_goes_round():
    b = ProgramBuilder(toy((1, 1)))
    role = b.role("all", at=(0, 0))
    for t in range(3):
        role.thread(t).signal(0).signal(0)
    program = b.build()
    assert timeline(Oracle(program), "thread_pointer", (0, 0), 7) == [0, 1, 2, 0, 1, 2, 0]
    assert timeline(Oracle(program), "semaphores", (0, 0, 0), 7) == [0, 1, 2, 3, 4, 5, 6]
    assert Oracle(program).run().snapshot()["ready_at"][:, 0, 0].tolist() == [4, 5, 6]


def test_wait_sees_the_signal_one_cycle_later():
    b = ProgramBuilder(toy((1, 1)))
    role = b.role("pair", at=(0, 0))
    role.thread(0).wait(1)
    role.thread(1).signal(1)
    oracle = Oracle(b.build())
    assert timeline(oracle, "semaphores", (1, 0, 0), 3) == [0, 1, 0]
    assert oracle.snapshot()["ready_at"][:, 0, 0].tolist() == [2, 1]
    assert oracle.snapshot()["thread_pointer"][0, 0] == 1


def test_loops_nest():
    b = ProgramBuilder(toy((1, 1)))
    thread = b.role("loop", at=(0, 0)).thread()
    with thread.loop(2), thread.loop(3):
        thread.signal(0)
    program = b.build()
    # signal, loop, signal, loop, signal, loop (falls through), outer loop (jumps), and again
    assert timeline(Oracle(program), "pc", (0, 0, 0), 8) == [0, 1, 0, 1, 0, 1, 2, 0]
    assert timeline(Oracle(program), "loop_counters", (1, 0, 0, 0), 8) == [0, 0, 1, 1, 2, 2, 0, 0]
    assert timeline(Oracle(program), "loop_counters", (0, 0, 0, 0), 8) == [0] * 7 + [1]
    oracle = Oracle(program).run()
    assert oracle.cycles == 14
    assert oracle.snapshot()["semaphores"][0, 0, 0] == 6
    assert not oracle.snapshot()["loop_counters"].any()


def test_a_kernel_takes_the_slot_once_and_idle_cycles_are_skipped():
    b = ProgramBuilder(toy((1, 1)))
    x, y = b.tile("x", (2, 3)), b.tile("y", (3, 2))
    double = Kernel(name="double", fn=lambda a: (a + a).T)
    b.role("one", at=(0, 0)).thread().compute(double, [x], [y], cycles=10).signal(0)
    values = np.arange(6, dtype=np.float32).reshape(2, 3, 1, 1)
    oracle = Oracle(b.build(), {"x": values})
    seen = [oracle.now]
    while oracle.step():
        seen.append(oracle.now)
    assert seen == [0, 1, 10, 11]
    assert oracle.cycles == 11
    assert oracle.seen["jump"] == 1
    assert np.array_equal(oracle.tile("y")[..., 0, 0], 2 * values[..., 0, 0].T)


def test_cycles_in_which_words_are_only_under_way_are_skipped():
    oracle = Oracle(pipe(1, toy((1, 2), hop_cycles=5)))
    seen = [oracle.now]
    while oracle.step():
        seen.append(oracle.now)
    # issued in 0; in 2 it leaves, in 7 it leaves the second router, in 8 it is received
    assert seen == [0, 1, 2, 3, 7, 8, 9]
    assert oracle.cycles == 9


def test_a_kernel_before_halt_ends_at_its_last_cycle():
    b = ProgramBuilder(toy((1, 1)))
    x = b.tile("x", (1,))
    b.role("one", at=(0, 0)).thread().compute(Kernel(name="n", fn=lambda a: -a), [x], [x], 10)
    oracle = Oracle(b.build(), {"x": np.ones((1, 1, 1), np.float32)}).run()
    assert oracle.cycles == 10
    assert oracle.now == 1


def test_set_up_is_paid_by_every_stream_event_and_never_by_others():
    b = ProgramBuilder(toy((1, 1), stream_setup_cycles=3))
    x = b.tile("x", (1,))
    b.path(0, (0, 0), (0, 0))
    b.role("one", at=(0, 0)).thread().signal(0).send(0, x).receive(0, x)
    oracle = Oracle(b.build(), {"x": np.ones((1, 1, 1), np.float32)}).run()
    # signal in 0; send in 1 + 3 = 4; loaded 5, ready 8; the word waits from 4 + 2 + 1 = 7
    assert oracle.cycles == 9


def test_threads_and_pes_without_events_have_finished():
    b = ProgramBuilder(toy((1, 2)))
    b.role("two", at=(0, 0)).thread(1).signal(0)
    start = Oracle(b.build()).snapshot()
    assert start["halted"].tolist() == [[[True, True]], [[False, True]]]
    assert start["ready_at"].tolist() == [[[0, 0]], [[0, 0]]]
    assert start["router_total"].shape == (0, 1, 2)
    assert start["sram"].shape == (0, 1, 2)


def test_16_bit_elements_add_on_their_own_and_tails_are_zero():
    b = ProgramBuilder(toy((1, 2)))
    x = b.tile("x", (3,), "float16")
    u = b.tile("u", (1,))
    b.path(0, (0, 0), (0, 1))
    b.role("source", at=(0, 0)).thread().send(0, x)
    b.role("sink", at=(0, 1)).thread().receive(0, x, "add")
    values = np.array([[[1, 10]], [[2, 20]], [[3, 30]]], np.float16)
    oracle = Oracle(b.build(), {"x": values}).run()
    assert oracle.tile("x")[:, 0].T.tolist() == [[1, 2, 3], [11, 22, 33]]
    sram = oracle.snapshot()["sram"]
    assert sram[u.offset, 0, 0] == POISON
    first, second = (int(np.float16(v).view(np.uint16)) for v in (1, 2))
    assert sram[0, 0, 0] == first | second << 16  # element 0 in the low half
    assert sram[1, 0, 0] >> 16 == 0


def test_a_limit_on_cycles_leaves_no_verdict():
    b = ProgramBuilder(toy((1, 1)))
    x = b.tile("x", (8,))
    b.path(0, (0, 0), (0, 0))
    b.role("one", at=(0, 0)).thread().send(0, x)
    oracle = Oracle(b.build(), {"x": np.ones((8, 1, 1), np.float32)}).run(max_cycles=3)
    assert oracle.now == 3
    assert not oracle.snapshot()["faults"].any()


EVERYWHERE = {
    "clean": 0.35, "multicast": 0.5, "lost_link": 0.2, "slot_contention": 0.5, "compute": 0.5,
    "loop": 0.5, "wait": 0.2, "jump": 0.3, "DEADLOCK": 0.1, "UNDELIVERED": 0.02,
    "UNROUTED": 0.02, "UNWRITTEN_READ": 0.02, "KERNEL_RACE": 0.02, "listens_elsewhere": 0.01,
}  # fmt: skip
WITH_REGISTERS = {
    "length": 0.9, "empty": 0.5, "branch": 0.9, "branch_taken": 0.9, "setregister": 0.9,
    "addtoregister": 0.9, "cycles": 0.4, "kernel_register": 0.5, "max": 0.5, "min": 0.5,
    "SRAM_OUT_OF_BOUNDS": 0.02, "UNROUTED": 0.01,
}  # fmt: skip

WITH_CHANGES = {
    "clean": 0.15, "clean_change": 0.05, "segment_change": 0.5, "segment_again": 0.02,
    "by_register": 0.2, "NO_SUCH_SEGMENT": 0.01, "MIXED_SEGMENT": 0.1, "listens_elsewhere": 0.2,
    "unrouted_after_change": 0.1, "latency_change": 0.05, "held_up": 0.015, "over_full": 0.01,
    "none": 0.1, "advance": 0.4, "reset": 0.2, "tear down": 0.1, "ring_wrap": 0.1,
    "past_last": 0.05, "torn_down_with_words": 0.05, "control_ends": 0.5, "control_passes": 0.5,
    "SRAM_OUT_OF_BOUNDS": 0.005, "max": 0.1, "min": 0.1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("families", "minimum"),
    [
        (FAMILIES, EVERYWHERE),
        (REGISTER_FAMILIES, EVERYWHERE | WITH_REGISTERS),
        (DYNAMIC_FAMILIES, EVERYWHERE | WITH_CHANGES),
    ],
)
def test_random_programs_still_show_every_feature(families, minimum):
    """The share of standard seeds in which each thing really happened, and no seed without end."""
    seeds = 200
    share: Counter[str] = Counter()
    for seed in range(seeds):
        program, tiles = random_program(seed, families)
        oracle = Oracle(program, tiles).run(20_000)
        assert oracle.stuck, seed
        faults = np.bitwise_or.reduce(oracle.snapshot()["faults"], axis=None)
        share.update(str(f.name) for f in Fault if f & faults)
        share.update(what for what, times in oracle.seen.items() if times)
        share["clean"] += not faults
        share["clean_change"] += not faults and bool(oracle.seen["segment_change"])
    rare = {what: share[what] for what, least in minimum.items() if share[what] < least * seeds}
    assert not rare, f"of {seeds} programs: {rare}"


class Patient(Oracle):
    """An oracle that waits through the cycles in which nothing happens."""

    def _advance(self, moved):
        after = self.now + 1
        going = super()._advance(moved)
        self.now = after if going else self.now
        return going


def test_skipping_idle_cycles_changes_nothing():
    for families in (FAMILIES, REGISTER_FAMILIES, DYNAMIC_FAMILIES):
        for seed in range(4 * len(families)):
            program, tiles = random_program(seed, families)
            skipped, patient = (o(program, tiles).run().snapshot() for o in (Oracle, Patient))
            assert all(np.array_equal(skipped[key], patient[key]) for key in skipped), seed


def test_a_seed_is_a_program():
    (one, tiles), (again, same) = random_program(17), random_program(17)
    assert one.at(0, 0) == again.at(0, 0)
    assert all(np.array_equal(tiles[name], same[name]) for name in tiles)
    assert random_program(17, hop_cycles=3)[0].hw.hop_cycles == 3
