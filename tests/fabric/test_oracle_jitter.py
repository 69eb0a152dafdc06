"""Jitter in the oracle, against the hash's published values and timelines computed by hand."""

from dataclasses import dataclass

import numpy as np
import pytest
from oracle import Oracle
from oracle_jitter import _mix
from test_oracle import chain_reduce, pipe, timeline, toy

from wafer_jax.builder import ProgramBuilder

STALL = 0x514E28B7 % 100
"""A stall when the sum that is mixed is 1 and the limit 99: MurmurHash3's finaliser of 1."""
PE, THREAD, ORDINAL = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35


@dataclass(frozen=True)
class Jitter:
    key: int
    start_cycles: int = 0
    event_cycles: int = 0


def signals(mesh, times, threads=1):
    b = ProgramBuilder(toy(mesh))
    role = b.role("all", at=(slice(None), slice(None)))
    for t in range(threads):
        with role.thread(t).loop(times):
            role.thread(t).signal(0)
    return b.build()


def ready_at(program, jitter):
    return Oracle(program, jitter=jitter).snapshot()["ready_at"]


def test_the_hash_is_the_finaliser_of_murmurhash3():
    assert [_mix(h) for h in (0, 1, 2)] == [0, 0x514E28B7, 0x30F4C306]
    assert STALL == 27


@pytest.mark.parametrize("y", [0, 1])
@pytest.mark.parametrize("thread", [0, 1])
def test_pes_and_threads_stall_on_their_own(y, thread):
    key = 1 - (3 * y + 2) * PE - thread * THREAD
    ready = ready_at(signals((2, 3), 1, threads=2), Jitter(key % 2**32, event_cycles=99))
    assert ready[thread, y, 2] == STALL
    assert len(set(ready.ravel().tolist())) > 6


def test_the_key_counts_modulo_2_to_the_32():
    program = signals((2, 3), 1)
    one, other = (ready_at(program, Jitter(k, 50, 50)) for k in (12345, 12345 - 2**32))
    assert np.array_equal(one, other)


def test_all_threads_of_a_pe_start_equally_late():
    jitter = Jitter((1 - 255 * THREAD - PE) % 2**32, start_cycles=99)
    ready = ready_at(signals((1, 2), 1, threads=3), jitter)
    assert ready[:, 0, 1].tolist() == [STALL] * 3
    assert len(set(ready[:, 0, 0].tolist())) == 1


def test_both_stalls_add_up():
    program = signals((3, 3), 1)
    start, event, both = (ready_at(program, Jitter(7, s, e)) for s, e in ((9, 0), (0, 9), (9, 9)))
    assert np.array_equal(start + event, both)
    assert start.any()
    assert event.any()


def test_every_event_that_is_loaded_counts_and_halt_does_not_stall():
    """The third one loaded (signal, loop, signal) stalls; with a limit of 0 the others do not."""
    stalls = [_mix((1 + (i - 2) * ORDINAL) % 2**32) % 100 for i in range(4)]
    assert stalls[2] == STALL
    oracle = Oracle(signals((1, 1), 2), jitter=Jitter((1 - 2 * ORDINAL) % 2**32, 0, 99)).run()
    assert oracle.cycles == 4 + sum(stalls)


def test_a_thread_without_events_has_finished_all_the_same():
    b = ProgramBuilder(toy((1, 2)))
    b.role("two", at=(0, 0)).thread(1).signal(0)
    start = Oracle(b.build(), jitter=Jitter(3, 40, 40)).snapshot()
    assert start["ready_at"][:, 0].T.tolist()[1] == [0, 0]
    assert start["ready_at"][0, 0, 0] == 0
    assert start["ready_at"][1, 0, 0] > 0


def test_a_stalled_stream_still_moves_a_word_per_cycle():
    oracle, sent = Oracle(pipe(3), jitter=Jitter(1, event_cycles=99)), []
    while len(sent) < 4:
        if oracle.now >= STALL:
            sent.append(int(oracle.snapshot()["sent"][0, 0, 0]))
        oracle.step()
    assert sent == [0, 1, 2, 3]


def test_no_limit_is_no_jitter():
    for jitter in (None, Jitter(99)):
        oracle = Oracle(pipe(1), jitter=jitter)
        assert timeline(oracle, "received", (0, 0, 1), 6) == [0, 0, 0, 0, 0, 1]


def test_a_correct_program_gives_the_same_values_at_any_speed():
    program = chain_reduce(4, 3, toy((1, 4)))
    x = np.arange(12, dtype=np.float32).reshape(3, 1, 4)
    runs = [Oracle(program, {"x": x}, jitter=Jitter(k, 20, 20)).run() for k in range(20)]
    assert len({run.cycles for run in runs}) > 5
    assert all(np.array_equal(run.tile("x")[:, 0, 0], x.sum(axis=(1, 2))) for run in runs)
