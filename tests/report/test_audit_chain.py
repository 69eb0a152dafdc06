"""The longest chain, against the cycle counter of the oracle.

A run's cycles grow by the hops of its critical chain when a hop takes one cycle more, and by twice
its stages when the ramp does: so the cycle counter, which knows nothing of chains, measures both.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import wafer_jax as wj
from wafer_jax.collectives import (
    allgather,
    allgather_relayed,
    allreduce_ktree,
    allreduce_pipeline,
    allreduce_ring,
    broadcast,
    gather,
    gemm,
    gemm_allgather,
    gemm_cannon,
    gemm_summa,
    gemv,
    reduce_2d,
    reduce_auto_gen,
    reduce_binary_tree,
    reduce_chain,
    reduce_snake,
    reduce_star,
    reduce_two_phase,
    scatter,
)
from wafer_jax.events import Compute
from wafer_jax.hardware import RAMP, E, W
from wafer_jax.report import audit_chain
from wafer_jax.report.audit_chain import distances, execute, followable

sys.path.append(str(Path(__file__).parent.parent / "collectives"))
from lines_harness import oracle_cycles, toy

PROGRAMS = {
    "chain": (lambda hw: reduce_chain.program(hw, 1), (1, 9)),
    "chain to the middle": (lambda hw: reduce_chain.program(hw, 1, root=3), (1, 9)),
    "two-phase": (lambda hw: reduce_two_phase.program(hw, 1, group=3), (1, 11)),
    "star": (lambda hw: reduce_star.program(hw, 1), (1, 7)),
    "binary tree": (lambda hw: reduce_binary_tree.program(hw, 1), (1, 13)),
    "generated tree": (lambda hw: reduce_auto_gen.program(hw, 1), (1, 13)),
    "gather": (lambda hw: gather.program(hw, 1, root=2), (1, 8)),
    "scatter": (lambda hw: scatter.program(hw, 1, root=2), (1, 8)),
    "broadcast": (lambda hw: broadcast.program(hw, 1, root=2), (2, 7)),
    "pipeline": (lambda hw: allreduce_pipeline.program(hw, 1), (1, 8)),
    "ring": (lambda hw: allreduce_ring.program(hw, 6), (1, 6)),
    "rows, then columns": (lambda hw: reduce_2d.program(hw, 1), (4, 5)),
    "all-gather": (lambda hw: allgather.program(hw, 1), (1, 5)),
    "all-gather, relayed": (lambda hw: allgather_relayed.program(hw, 1), (1, 5)),
    "snake": (lambda hw: reduce_snake.program(hw, 1), (3, 4)),
    "K-tree 1": (lambda hw: allreduce_ktree.program(hw, 1, k=1), (1, 16)),
    "K-tree 2": (lambda hw: allreduce_ktree.program(hw, 1, k=2), (1, 16)),
    "K-tree 3 along y": (lambda hw: allreduce_ktree.program(hw, 1, k=3, axis="y"), (27, 1)),
    "GEMV": (lambda hw: gemv.program(hw, 6, 6), (6, 6)),
    "GEMM": (lambda hw: at_once(gemm.program(hw, 6, 6, 6, align="host")), (6, 6)),
    "Cannon": (lambda hw: at_once(gemm_cannon.program(hw, 5, 5, 5, align="host")), (5, 5)),
    "SUMMA": (lambda hw: gemm_summa.program(hw, 4, 4, 4), (4, 4)),
    "all-gather product": (lambda hw: gemm_allgather.program(hw, 4, 4, 4), (4, 4)),
    "GEMM, aligned": (lambda hw: at_once(gemm.program(hw, 4, 4, 4)), (4, 4)),
}


def at_once(program: wj.Program) -> wj.Program:
    """MeshGEMM without its pauses, which are kernels as long as two hops."""
    roles = [
        replace(role, threads=tuple(tuple(map(hurried, events)) for events in role.threads))
        for role in program.roles
    ]
    return replace(program, roles=tuple(roles))


def hurried(event):
    pause = isinstance(event, Compute) and event.kernel.name == "pause"
    return replace(event, cycles=1) if pause else event


def cycles(build, mesh, hop: int, ramp: int) -> int:
    return oracle_cycles(build(toy(mesh, hop_cycles=hop, ramp_cycles=ramp, threads=8)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_hops_and_stages_are_the_cycles_of_slower_links_and_ramps(name):
    build, mesh = PROGRAMS[name]
    hw = toy(mesh, hop_cycles=12, ramp_cycles=12, threads=8)
    chain = execute(build(hw)).chain
    base = cycles(build, mesh, 12, 12)
    assert cycles(build, mesh, 13, 12) - base == chain.hops
    assert cycles(build, mesh, 12, 13) - base == 2 * chain.stages
    assert chain.cycles == 12 * chain.hops + 25 * chain.stages < base


@pytest.mark.parametrize("name", ["K-tree 2", "GEMM, aligned", "two-phase"])
@pytest.mark.parametrize(("hop", "ramp"), [(1, 1), (3, 1), (1, 6)])
def test_no_run_is_shorter_than_its_chain(name, hop, ramp):
    build, mesh = PROGRAMS[name]
    chain = execute(build(toy(mesh, hop_cycles=hop, ramp_cycles=ramp, threads=8))).chain
    assert chain.cycles < cycles(build, mesh, hop, ramp)


@pytest.mark.parametrize("words", [1, 5, 64])
def test_words_do_not_lengthen_a_chain(words):
    hw = toy((1, 16))
    assert execute(allreduce_ktree.program(hw, words)).chain[1:] == (16, 5)


def two_pes():
    builder = wj.ProgramBuilder(toy((1, 3)), "by hand")
    return builder, builder.tile("x", (4,))


def test_words_of_one_event_may_come_before_and_behind_another():
    """A passes on to B, which sends all back: its second half waits for the first's return."""
    builder, x = two_pes()
    builder.path(0, (0, 0), (0, 2))
    builder.path(1, (0, 2), (0, 0))
    half = [x.slice(0, 2), x.slice(2, 2)]
    thread = builder.role("a", at=(0, 0)).thread()
    thread.send(0, half[0]).receive(1, half[0]).send(0, half[1]).receive(1, half[1])
    builder.role("b", at=(0, 2)).thread().forward(0, 1, words=4)
    assert execute(builder.build()).chain[1:] == (8, 4)


def test_loops_signals_and_registers_are_followed():
    builder, x = two_pes()
    builder.path(0, (0, 0), (0, 1))
    builder.path(1, (0, 1), (0, 0))
    a = builder.role("a", at=(0, 0))
    go, count = a.thread(0), wj.Register(3)
    with go.loop(2), go.loop(3):
        go.wait(0).send(0, x)
    back = a.thread(1)
    back.signal(0)
    with back.loop(5):
        back.receive(1, x).signal(0)
    back.receive(1, x)
    b = builder.role("b", at=(0, 1)).thread()
    b.set(count, 4)
    with b.loop(6), b.when(count, ">=", 4):
        b.forward(0, 1, words=count)
    assert execute(builder.build()).chain[1:] == (12, 12)


def test_streams_are_cut_differently_at_both_ends():
    builder, x = two_pes()
    builder.path(0, (0, 0), (0, 1))
    builder.path(1, (0, 1), (0, 0))
    a = builder.role("a", at=(0, 0)).thread()
    with a.loop(3):
        a.send(0, x)
    a.receive(1, x)
    b = builder.role("b", at=(0, 1)).thread()
    with b.loop(5):
        b.receive(0, x.slice(0, 2))
    b.send(1, x).receive(0, x.slice(0, 2))
    assert execute(builder.build()).chain[1:] == (2, 2)


def test_registers_count():
    """Words go to and fro until a register has counted to three."""
    builder, x = two_pes()
    builder.path(0, (0, 0), (0, 1))
    builder.path(1, (0, 1), (0, 0))
    for name, at, out, back in (("a", 0, 0, 1), ("b", 1, 1, 0)):
        thread, turn = builder.role(name, at=(0, at)).thread(), wj.Register(0)
        with thread.loop(5), thread.when(turn, "<", 3):
            thread.add(turn, 1)
            for step in (thread.send, thread.receive)[:: 1 if name == "a" else -1]:
                step(out if step == thread.send else back, x)
    assert execute(builder.build()).chain[1:] == (6, 6)


def test_words_take_the_routes_of_their_senders_segment():
    builder, x = two_pes()
    builder.route(0, 0, 0, RAMP, E)
    builder.route(0, 0, 1, W, RAMP)
    far = builder.segment("far")
    far.route(0, 0, 0, RAMP, E)
    far.route(0, 0, 1, W, E)
    far.route(0, 0, 2, W, RAMP)
    builder.role("a", at=(0, 0)).thread().send(0, x).reconfigure(far).send(0, x)
    builder.role("b", at=(0, 1)).thread().receive(0, x).reconfigure(far)
    builder.role("c", at=(0, 2)).thread().reconfigure(far).receive(0, x)
    program = builder.build()
    assert execute(program).chain[1:] == (2, 1)
    assert distances(program, 0)[1].tolist() == [[[0, 1, 0]]]
    assert distances(program, 1)[1].tolist() == [[[0, 0, 2]]]


def test_a_program_that_cannot_end_is_named():
    builder, x = two_pes()
    builder.path(0, (0, 0), (0, 1))
    builder.role("b", at=(0, 1)).thread().receive(0, x)
    with pytest.raises(wj.WaferError, match=r"by hand: cannot end: PE \(y=0, x=1\) .* a Receive"):
        execute(builder.build())


def relay(*, ring: bool = False):
    """PE 1 sends to PE 0, then lets the words of PE 2 pass."""
    builder, x = two_pes()
    builder.route(0, 0, 0, E, RAMP)
    builder.switch(0, 0, 1, (RAMP, W), (E, W), ring=ring)
    builder.route(0, 0, 2, RAMP, W)
    return builder, x, builder.role("sink", at=(0, 0)).thread()


def relay_behind_a_word(hw):
    """The same, but PE 1 waits for a word of PE 0 first."""
    builder = wj.ProgramBuilder(hw, "relay")
    x = builder.tile("x", (1,))
    builder.route(0, 0, 0, E, RAMP)
    builder.switch(0, 0, 1, (RAMP, W), (E, W))
    builder.route(0, 0, 2, RAMP, W)
    builder.path(1, (0, 0), (0, 1))
    builder.role("sink", at=(0, 0)).thread().send(1, x).receive(0, x).receive(0, x)
    builder.role("one", at=(0, 1)).thread().receive(1, x).send(0, x).control(0, "advance")
    builder.role("two", at=(0, 2)).thread().send(0, x)
    return builder.build()


def test_words_wait_for_a_switch():
    """One hop to PE 1, whose wavelet opens its switch; then two of PE 2's words."""
    run = execute(relay_behind_a_word(toy((1, 3))))
    assert run.chain[1:] == (3, 2)
    base = cycles(relay_behind_a_word, (1, 3), 12, 1)
    assert cycles(relay_behind_a_word, (1, 3), 13, 1) - base == 3
    assert run.switches.longest_trip == 2
    assert run.switches.delivered == {(0, 0): {1, 2}}
    assert run.switches.passed == {(0, 0): {1, 2}, (1, 0): {1, 2}, (2, 0): {2}}


def test_a_sender_waits_until_its_router_listens():
    """PE 2's wavelet takes the ring back to position 0, where PE 1 may send again."""
    builder, x, sink = relay(ring=True)
    sink.receive(0, x).receive(0, x).receive(0, x)
    one = builder.role("one", at=(0, 1)).thread()
    one.send(0, x).control(0, "advance").send(0, x)
    builder.role("two", at=(0, 2)).thread().send(0, x).control(0, "advance")
    assert execute(builder.build()).chain[1:] == (2, 1)
    builder, x, sink = relay()
    sink.receive(0, x).receive(0, x)
    builder.role("one", at=(0, 1)).thread().send(0, x).control(0, "advance").send(0, x)
    with pytest.raises(wj.WaferError, match=r"PE \(y=0, x=0\) waits for ever"):
        execute(builder.build())


@pytest.mark.parametrize(("command", "ends"), [("advance", True), ("tear down", False)])
def test_commands_and_segments(command, ends):
    """A torn down switch passes nothing on until its PE goes to a segment."""
    builder, x, sink = relay()
    sink.receive(0, x).receive(0, x)
    one = builder.role("one", at=(0, 1)).thread()
    one.send(0, x).control(0, command)
    builder.role("two", at=(0, 2)).thread().send(0, x)
    if ends:
        assert execute(builder.build()).chain[1:] == (2, 1)
        return
    with pytest.raises(wj.WaferError, match="cannot end"):
        execute(builder.build())
    again = builder.segment("again")
    again.route(0, 0, 0, E, RAMP)
    again.route(0, 0, 1, E, W)
    again.route(0, 0, 2, RAMP, W)
    one.reconfigure(again)
    assert execute(builder.build()).chain[1:] == (2, 1)


def test_kernels_that_write_registers_are_not_followed():
    builder, x = two_pes()
    kernel = wj.Kernel(name="count", fn=lambda x: x[0].astype("int32"))
    builder.role("a", at=(0, 0)).thread().compute(kernel, [x], [wj.Register(0)], 3)
    assert not followable(builder.build())


def test_endless_work_is_refused(monkeypatch):
    monkeypatch.setattr(audit_chain, "MAX_EVENTS", 1000)
    builder, _ = two_pes()
    thread = builder.role("a", at=(0, 0)).thread()
    with thread.loop(2000):
        thread.signal(0)
    with pytest.raises(wj.WaferError, match="by hand: more than 1,000 events"):
        execute(builder.build())
