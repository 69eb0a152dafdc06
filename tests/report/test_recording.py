"""Recordings against snapshots of every cycle, read in plain NumPy."""

import numpy as np
import pytest
from random_families import FAMILIES
from random_programs import random_program

import wafer_jax as wj
from wafer_jax.errors import WaferError
from wafer_jax.report.activity import COLOR_BITS, Activity

from .stepping import Stepping

FAMILY = 3
"""Four threads, multicast, kernels, signals, stalls, slow links."""
SEEDS = [FAMILY + len(FAMILIES) * k for k in range(8)]


def per_cycle(recording, rows):
    return np.repeat(rows, recording.span, axis=0)


def mask_of(left):
    """[cycles, C, Y, X] 0 or 1 to [cycles, Y, X] masks."""
    return (left << np.arange(left.shape[1])[None, :, None, None]).sum(axis=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_recording_agrees_with_snapshots_of_every_cycle(seed):
    program, _ = random_program(seed)
    jitter = wj.Jitter(seed, 9, 5)
    recording, stepping = (
        wj.record(program, values="none", jitter=jitter),
        Stepping(program, jitter),
    )
    assert recording.cycles == len(stepping.threads)
    assert recording.cycles >= stepping.snapshots[-1]["now"]
    assert np.array_equal(per_cycle(recording, recording.threads), stepping.threads)
    # A row of several cycles is one in which no word moves.
    assert not recording.left[recording.span > 1].any()
    assert np.array_equal(per_cycle(recording, recording.left), mask_of(stepping.left))
    taken = program.tx[:, None] >> np.arange(5)[:, None, None] & 1
    assert np.array_equal(recording.link_words, stepping.left.sum(axis=0)[:, None] * taken)
    used = [(stepping.left * taken[:, d]).any(axis=1) << d for d in range(5)]
    assert np.array_equal(per_cycle(recording, recording.links_used), sum(used))
    at = np.searchsorted([s["now"] for s in stepping.snapshots], recording.start)
    for key, words in (("router", recording.router_words), ("input", recording.input_words)):
        fills = np.array([s[f"{key}_total"] for s in stepping.snapshots])
        assert np.array_equal(words, fills[np.minimum(at, len(fills) - 1)])


def test_the_seeds_do_everything():
    seen = set()
    for seed in SEEDS:
        program, _ = random_program(seed)
        recording = wj.record(program, values="none", jitter=wj.Jitter(seed, 9, 5))
        seen |= {Activity(code >> COLOR_BITS) for code in np.unique(recording.threads).tolist()}
    assert seen == set(Activity)


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_totals_count_what_every_pe_did(seed):
    program, _ = random_program(seed)
    recording = wj.record(program, values="none", jitter=wj.Jitter(seed, 9, 5))
    codes = per_cycle(recording, recording.pes)
    for cause, cycles in zip(recording.causes, recording.totals, strict=True):
        waits = cause.color is not None
        here = codes == cause.code if waits else codes >> COLOR_BITS == cause.activity
        assert np.array_equal(cycles, here.sum(axis=0)), cause
    assert (recording.totals.sum(axis=0) == recording.cycles).all()
    assert recording.stalls["share"].sum() == pytest.approx(1)


def test_the_run_is_that_of_run():
    for seed in SEEDS:
        program, _ = random_program(seed)
        jitter = wj.Jitter(seed, 9, 5)
        recorded = wj.record(program, values="none", jitter=jitter).result
        plain = wj.run(program, values="none", jitter=jitter)
        assert recorded.cycles == plain.cycles
        assert list(map(str, recorded.faults)) == list(map(str, plain.faults))
        for key, value in plain.snapshot.items():
            assert np.array_equal(recorded.snapshot[key], value), key


def test_a_window_of_a_region_is_cut_out_of_the_whole():
    program, _ = random_program(SEEDS[0])
    whole = wj.record(program, values="none")
    a, b = whole.cycles // 4, whole.cycles // 2
    part = wj.record(program, values="none", window=(a, b), region=np.s_[1:2, 1:3])
    assert part.window == (a, b)
    expected = per_cycle(whole, whole.threads)[a:b, :, 1:2, 1:3]
    assert np.array_equal(per_cycle(part, part.threads), expected)
    assert np.array_equal(part.totals, whole.totals)
    with pytest.raises(WaferError, match="not in the recording"):
        part.slices(0, 0)


def test_slices_join_equal_cycles():
    program, _ = random_program(SEEDS[1])
    recording = wj.record(program, values="none")
    codes = per_cycle(recording, recording.pes)[:, 1, 2]
    found = recording.slices(1, 2)
    assert np.array_equal(np.repeat(found.code, found.cycles), codes)
    assert (np.diff(found.code) != 0).all()
    assert np.array_equal(found.start[1:], np.cumsum(found.cycles)[:-1])


def test_the_size_is_bounded():
    program, _ = random_program(SEEDS[2])
    whole = wj.record(program, values="none")
    few = wj.record(program, values="none", max_bytes=4000)
    assert few.cycles == whole.cycles
    assert 0 < few.window[1] < whole.cycles
    assert len(few.start) * 6 * (2 * 4 + 5 + 4 + 4) <= 4000
    with pytest.raises(WaferError, match=r"smaller region.*shorter window.*max_bytes"):
        wj.record(program, values="none", window=(0, 10_000), max_bytes=4000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"region": np.s_[0:9, 0:2]}, "beyond the 2x3 mesh"),
        ({"region": (1, 2)}, "rows and columns"),
        ({"region": np.s_[1:1, 0:2]}, "no PE"),
        ({"window": (5, 5)}, "window"),
        ({"window": (0.5, 4)}, "edge of the window is 0.5: give a whole number"),
        ({"window": (False, 4)}, "give a whole number"),
        ({"window": 5}, "window=5: give two cycles"),
        ({"window": (0, 2**40)}, "too large"),
        ({"region": 5}, "give rows and columns"),
        ({"region": np.s_[0:1.5, 0:1]}, "edge of the region is 1.5: give a whole number"),
        ({"region": np.s_[::0, 0:1]}, "a step of 0"),
        ({"max_cycles": 1.5}, "max_cycles is 1.5: give a whole number"),
        ({"values": "some"}, "full"),
    ],
)
def test_mistakes_are_named(options, message):
    program, _ = random_program(SEEDS[0])
    with pytest.raises(WaferError, match=message):
        wj.record(program, **{"values": "none", **options})


def test_a_kernel_that_outlasts_everything_computes_to_its_end():
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(1, 2)), "late")
    x = b.tile("x", (1,))
    kernel = wj.Kernel(name="double", fn=lambda x: 2 * x)
    b.role("one", at=(0, 0)).thread().compute(kernel, [x], [x], 30)
    b.role("other", at=(0, 1)).thread().compute(kernel, [x], [x], 50)
    recording = wj.record(b.build(), values="none")
    assert recording.cycles == recording.result.cycles == 50
    assert [list(s.cycles) for s in (recording.slices(0, 0), recording.slices(0, 1))] == [
        [30, 20],
        [50],
    ]
    assert recording.slices(0, 0).code[0] == Activity.COMPUTING << COLOR_BITS


def test_idle_cycles_are_cut_at_the_window_and_at_max_cycles():
    b = wj.ProgramBuilder(wj.hardware("toy", mesh=(1, 1)), "idle")
    x = b.tile("x", (1,))
    kernel = wj.Kernel(name="double", fn=lambda x: 2 * x)
    b.role("one", at=(0, 0)).thread().compute(kernel, [x], [x], 50).compute(kernel, [x], [x], 9)
    part = wj.record(b.build(), values="none", window=(10, 20))
    assert part.window == (10, 20)
    assert part.cycles == 59
    stopped = wj.record(b.build(), values="none", max_cycles=30)
    assert stopped.cycles == stopped.window[1] == 30
    assert stopped.result.stopped
