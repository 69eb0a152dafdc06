"""One wafer on several devices: the same state as on one, in every cycle and at the end."""

import re
import subprocess
import sys
from pathlib import Path
from socket import socket

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_families import DYNAMIC_FAMILIES, FAMILIES, REGISTER_FAMILIES
from test_against_oracle import MAX_CYCLES, runs

import wafer_jax as wj
from wafer_jax import execute
from wafer_jax.blocks import Blocks, from_blocks, to_blocks
from wafer_jax.collectives import gemm
from wafer_jax.devices import place
from wafer_jax.execute import has_ended, run_from
from wafer_jax.hardware import E, N, S, W
from wafer_jax.mesh_state import initial_state, lowered
from wafer_jax.routes import links
from wafer_jax.step import advance

SEEDS = 6
"""Seeds whose ends are compared; those of a family share the compiled steps."""


def _cut(families, family, devices, name, *marks):
    return pytest.param(families, family, devices, id=name, marks=marks)


CUTS = [
    _cut(FAMILIES, 9, (2, 2), "rows and columns not divisible"),
    _cut(FAMILIES, 9, (4, 1), "rows not divisible", pytest.mark.slow),
    _cut(FAMILIES, 7, (1, 4), "columns not divisible", pytest.mark.slow),
    _cut(REGISTER_FAMILIES, 2, (4, 1), "blocks of one row, kernels", pytest.mark.slow),
    _cut(REGISTER_FAMILIES, 4, (1, 4), "a block without PEs, registers", pytest.mark.slow),
    _cut(DYNAMIC_FAMILIES, 4, (3, 1), "segments and switches", pytest.mark.slow),
]
"""Programs and how they are cut; all but that of columns with jitter."""


class Both:
    """A program on one device and on several."""

    def __init__(self, program, tiles, jitter, devices, **options):
        self.one = initial_state(
            program,
            tiles,
            values=tiles is not None,
            jitter=jitter,
            carry_all=tiles is not None,
            **options,
        )
        self.spec, self.code = lowered(program, self.one)
        self.place = place(self.spec, self.code, jax.tree.map(jnp.copy, self.one), devices)
        self.many = self.place.state

    def advance(self, steps):
        until = jnp.int32(MAX_CYCLES)
        self.one = advance(self.spec, self.code, self.one, until, jnp.int32(steps))
        place = self.place
        scalars = place.scalar(MAX_CYCLES), place.scalar(steps)
        self.many = place.advance(*place.static, place.code, self.many, *scalars)

    def agree(self):
        same(self.one, self.place.gather(self.many))


def same(one, many):
    expected, actual = (jax.tree_util.tree_leaves_with_path(s) for s in (one, many))
    for (path, want), (_, have) in zip(expected, actual, strict=True):
        where = f"{jax.tree_util.keystr(path)} in cycle {int(one.now)}"
        assert (want.shape, want.dtype) == (have.shape, have.dtype), where
        np.testing.assert_array_equal(np.asarray(have), np.asarray(want), where)


@pytest.mark.parametrize(("families", "family", "devices"), CUTS)
def test_every_cycle(families, family, devices):
    program, tiles, _, jitter = next(runs(families, family, 0, 1))
    compare_every_cycle(Both(program, tiles, jitter, devices))


def test_every_cycle_of_packets():
    program, _, _, jitter = next(runs(FAMILIES, 5, 0, 1))
    compare_every_cycle(Both(program, None, jitter, (3, 1), packet_words=3))


def test_every_cycle_with_a_watchdog():
    program, tiles, _, jitter = next(runs(DYNAMIC_FAMILIES, 2, 0, 1))
    both = Both(program, tiles, jitter, (2, 2), watchdog_cycles=40)
    compare_every_cycle(both)
    assert both.one.starved


def compare_every_cycle(both):
    both.agree()
    while not has_ended(both.one):
        both.advance(1)
        both.agree()
        assert both.one.now < MAX_CYCLES


@pytest.mark.parametrize(("families", "family", "devices"), CUTS)
def test_ends(families, family, devices):
    for program, tiles, _, jitter in runs(families, family, 1, SEEDS):
        both = Both(program, tiles, jitter, devices)
        both.advance(MAX_CYCLES)
        both.agree()


def collectives(program, devices, **options):
    """How often each kind of communication stands in the compiled step."""
    state = initial_state(program, **options)
    at = place(*lowered(program, state), state, devices)
    made = at.advance.lower(*at.static, at.code, at.state, at.scalar(1), at.scalar(1))
    text = made.compile().as_text()
    found = re.findall(r"(collective-permute|all-[a-z-]+|collective-[a-z-]+)(?:-start)?\(", text)
    return {name: found.count(name) for name in found}


@pytest.mark.parametrize(
    ("axis", "devices", "permutes"),
    [
        ("y", (4, 1), 4),  # to the north and the south, before and after the routers decide
        ("y", (1, 4), 0),  # nothing crosses from one device to another
        ("x", (2, 2), 4),
    ],
)
def test_what_is_communicated_in_a_cycle(axis, devices, permutes):
    program = wj.allreduce.ktree(wj.hardware("toy", mesh=(8, 8)), words=4, k=2, axis=axis)
    expected = {"all-reduce": 1} | ({"collective-permute": permutes} if permutes else {})
    assert collectives(program, devices, values=False) == expected


def test_values_marks_and_the_watchdog_add_no_communication():
    program, *_ = next(runs(DYNAMIC_FAMILIES, 2, 0, 1))
    assert {d for directions in links(program) for d in directions} >= {N, E, S, W}
    found = collectives(program, (2, 2), carry_all=True, watchdog_cycles=40)
    assert found == {"all-reduce": 1, "collective-permute": 8}


@pytest.mark.parametrize("devices", [(2, 3), (7, 1), (1, 5), (1, 1)])
def test_blocks_and_back(devices):
    blocks = Blocks(devices=devices, wafer=(7, 5))
    whole = np.arange(2 * 7 * 6).reshape(2, 7, 6)
    whole[..., 5] = -1
    parts = to_blocks(blocks, whole.reshape(2, -1))
    assert parts.shape == (devices[0] * devices[1], 2, blocks.lanes)
    assert (parts >= 0).sum() == 2 * 7 * 5
    np.testing.assert_array_equal(from_blocks(blocks, parts).reshape(whole.shape), whole)
    np.testing.assert_array_equal(parts[0, 0, : blocks.mesh[1]], whole[0, 0, : blocks.mesh[1]])


@pytest.fixture(scope="module")
def column():
    return wj.allreduce.ktree(wj.hardware("toy", mesh=(3, 2)), words=4, k=2, axis="y")


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (4, "4 x 1 devices for 3 x 2 PEs"),
        ((1, 3), "1 x 3 devices for 3 x 2 PEs"),
        (0, "0 x 1 devices asked for, there are 4"),
        (5, "5 x 1 devices asked for, there are 4"),
        ([], "no devices"),
        (jax.sharding.Mesh(np.array(jax.devices()[:2]), ("rows",)), "axes"),
    ],
)
def test_devices_that_do_not_fit(column, devices, message):
    with pytest.raises(wj.WaferError, match=message) as caught:
        wj.run(column, values="none", devices=devices)
    assert "\n" not in str(caught.value)


def test_one_chosen_device(column):
    chosen = jax.devices()[2]
    result = wj.run(column, values="none", devices=[chosen])
    assert result.state.pc[0].devices() == {chosen}
    same(wj.run(column, values="none").state, result.state)


def test_the_whole_wafer_lies_in_host_memory(column):
    with jax.default_device(jax.devices()[3]):
        state = wj.run(column, values="none", devices=2).state
        start = execute.start(column, values="none", devices=2)
    host = {jax.devices("cpu")[0]}
    assert start.pc[0].devices() == state.pc[0].devices() == host


def test_a_run_is_watched_and_continued(column):
    seen = []
    stopped = wj.run(column, values="none", devices=2, max_cycles=5)
    assert stopped.stopped
    ended = run_from(column, stopped.state, devices=3, watch=lambda state: seen.append(state))
    same(wj.run(column, values="none").state, ended.state)
    same(seen[-1], ended.state)


def test_values_of_a_run(column):
    tiles = np.random.default_rng(0).normal(size=(4, 3, 2)).astype(np.float32)
    one, many = wj.run(column, tiles), wj.run(column, tiles, devices=3)
    np.testing.assert_array_equal(many.values, one.values)
    assert many.cycles == one.cycles
    with pytest.raises(wj.WaferError, match="start it for several devices"):
        run_from(column, one.state, devices=2)


@pytest.mark.slow
def test_values_of_a_run_with_kernels():
    a, b = (np.random.default_rng(i).normal(size=s) for i, s in enumerate([(5, 13), (13, 7)]))
    hw = wj.hardware("toy", mesh=(5, 5))
    program = gemm.program(hw, 5, 13, 7)
    tiles = gemm.load(*gemm.tile_operands(jnp.float32(a), jnp.float32(b), hw.mesh))
    one, many = wj.run(program, tiles), wj.run(program, tiles, devices=(2, 2))
    assert one.cycles == many.cycles
    np.testing.assert_array_equal(many.values, one.values)
    np.testing.assert_array_equal(many.link_words, one.link_words)


@pytest.mark.slow
def test_two_processes(tmp_path):
    with socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    worker = Path(__file__).with_name("one_of_two_processes.py")
    started = [
        subprocess.Popen([sys.executable, worker, address, str(i), tmp_path / f"{i}.npz"])
        for i in range(2)
    ]
    assert [process.wait(timeout=300) for process in started] == [0, 0]
    program, tiles, _, jitter = next(runs(FAMILIES, 9, 0, 1))
    expected = jax.tree.leaves(wj.run(program, tiles, jitter=jitter, devices=2).state)
    for i in range(2):
        with np.load(tmp_path / f"{i}.npz") as archive:
            leaves = [archive[f"arr_{k}"] for k in range(len(archive.files))]
        for want, have in zip(expected, leaves, strict=True):
            np.testing.assert_array_equal(have, np.asarray(want))
