"""Balanced upward shift of a KV cache: its invariants by brute force, its cycles on the fabric."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lines_harness import MACHINES, normal, oracle_cycles, oracle_tile, same_bits, toy

from wafer_jax import Jitter, ProgramBuilder, WaferError, hardware, replicate, run
from wafer_jax.collectives import kv_shift
from wafer_jax.hardware import RAMP, N, S

CACHES = [(1, 1), (1, 4), (2, 1), (2, 3), (3, 4), (5, 2), (8, 3)]
"""Rows and slots."""


def history(rows: int, slots: int):
    """The cache (as the numbers of its vectors, -1 empty) after 0, 1, 2, ... vectors."""
    apply = jax.jit(kv_shift.apply)
    cache = jnp.full((slots, 2, rows, 3), -1.0)
    yield np.asarray(cache)
    for t in range(rows * slots):
        kv_shift.check_room(cache, t)
        cache = apply(cache, jnp.full((2, 3), float(t)), jnp.int32(t))
        yield np.asarray(cache)
    with pytest.raises(WaferError, match=f"full: {rows * slots} vectors"):
        kv_shift.check_room(cache, rows * slots)


def contents(cache: np.ndarray, number: np.ndarray) -> list[list[int]]:
    """Vectors of each row, oldest first; a slot that `held` leaves out has a stale one or none."""
    assert (cache == cache[:, :1, :, :1]).all()
    rows = np.where(number >= 0, cache[:, 0, :, 0], -1).T
    return [sorted(int(v) for v in row if v >= 0) for row in rows]


@pytest.mark.parametrize(("rows", "slots"), CACHES)
def test_invariants(rows, slots):
    before = None
    for length, cache in enumerate(history(rows, slots)):
        number = np.asarray(kv_shift.held(length, slots, rows))
        held = contents(cache, number)
        fills = [len(row) for row in held]
        assert max(fills) - min(fills) <= 1
        assert fills == np.asarray(kv_shift.counts(length, rows)).tolist()
        # From the top row down the vectors are in order of time: nothing lost, nothing doubled.
        assert [v for row in held for v in row] == list(range(length))
        assert (np.where(number >= 0, cache[:, 0, :, 0], -1) == number).all()
        if before is not None:
            check_moves(before, held)
        before = held


def check_moves(before: list[list[int]], after: list[list[int]]) -> None:
    """Vectors stay or go up one row, only the oldest of a row; the new one is in the last row."""
    row_of = {v: y for y, row in enumerate(before) for v in row}
    for y, row in enumerate(after):
        for v in row:
            if v not in row_of:
                assert y == len(after) - 1
            elif row_of[v] != y:
                assert y == row_of[v] - 1
                assert v == before[row_of[v]][0]
    # A row passes one up if it holds more than the fewest, so never while all hold equally many.
    fewest = min(len(row) for row in before)
    passing = {row_of[v] for y, row in enumerate(after) for v in row if row_of.get(v, y) != y}
    assert passing == {y for y, row in enumerate(before) if len(row) > fewest}


def test_slot_axis_and_other_axes():
    layers, slots, rows, width = 2, 3, 4, 5
    cache = jnp.zeros((layers, slots, 2, rows, width))
    entry = jnp.arange(layers * 2 * width, dtype=jnp.float32).reshape(layers, 2, width)
    one = jnp.zeros((slots, 2, rows, width))
    apply = jax.jit(kv_shift.apply, static_argnums=3)
    for t in range(7):
        cache = apply(cache, entry + t, jnp.int32(t), 1)
        one = apply(one, entry[1] + t, jnp.int32(t), 0)
    assert (cache[1] == one).all()
    assert kv_shift.capacity(cache, 1) == 12


@pytest.mark.parametrize("preset", ["toy", "wse2", "wse3"])
@pytest.mark.parametrize("elements", [1, 2, 5, 8, 40])
def test_shift_cost_is_what_one_hop_up_takes(preset, elements):
    hw = hardware(preset).replace(mesh=(6, 2))
    builder = ProgramBuilder(hw)
    leaving, arriving = builder.tile("leaving", (elements,)), builder.tile("arriving", (elements,))
    for y in range(1, 6):
        builder.route(y % 2, y, slice(None), RAMP, N)
        builder.route(y % 2, y - 1, slice(None), S, RAMP)
    for y in range(6):
        role = builder.role(f"row {y}", at=(y, slice(None)))
        if y > 0:
            role.thread(0).send(y % 2, leaving)
        if y < 5:
            role.thread(1).receive((y + 1) % 2, arriving)
    assert oracle_cycles(builder.build()) == kv_shift.shift_cost(hw, elements)
    assert kv_shift.shift_cost(hw, 2 * elements, dtype="float16") == kv_shift.shift_cost(
        hw, elements
    )
    assert kv_shift.shift_cost(hw.replace(mesh=(1, 4)), elements) == 0


@pytest.mark.parametrize(("rows", "slots"), [(1, 3), (2, 2), (4, 2), (5, 1)])
def test_programs_of_all_lengths_leave_the_cache_of_the_bulk_level(rows, slots):
    hw, apply = toy((rows, 2), sram_bytes=4096), jax.jit(kv_shift.apply)
    cache = np.zeros((slots, 3, rows, 2), np.float32)
    for length in range(rows * slots):
        entry = normal(3, rows, 2, seed=length)
        program = kv_shift.program(hw, 3, length, slots)
        fabric = oracle_tile(program, {"cache": cache, "entry": entry}, "cache")
        cache = np.asarray(apply(cache, entry[:, -1], jnp.int32(length)))
        assert same_bits(fabric, cache)


def test_a_full_cache_is_shifted_alike_under_every_jitter():
    """Every row but the first sends from the slot that its own new vector wants."""
    rows, slots, count, length = 4, 2, 20, 7
    tiles = {"cache": normal(slots, 5, rows, 2), "entry": normal(5, rows, 2, seed=1)}
    expected = kv_shift.apply(jnp.asarray(tiles["cache"]), tiles["entry"][:, -1], jnp.int32(length))
    many = replicate(kv_shift.program(toy((rows, 2), sram_bytes=4096), 5, length, slots), count)
    walled = {k: np.concatenate([v, 0 * v[..., :1, :]], axis=-2) for k, v in tiles.items()}
    stacked = {k: np.concatenate([v] * count, axis=-2)[..., :-1, :] for k, v in walled.items()}
    shifted = run(many, stacked, jitter=Jitter(0, 40, 10)).raise_on_fault().values
    for first in range(0, count * (rows + 1), rows + 1):
        assert same_bits(shifted[..., first : first + rows, :], expected)


def test_executor_agrees_with_bulk_level_and_cost_in_16_bit():
    hw = hardware("wse2", mesh=(4, 3))
    cache, entry = normal(3, 6, 4, 3, dtype="float16"), normal(6, 4, 3, dtype="float16", seed=1)
    program = kv_shift.program(hw, 6, 7, 3, "float16")
    result = run(program, {"cache": cache, "entry": entry}).raise_on_fault()
    assert same_bits(result.values, kv_shift.apply(jnp.asarray(cache), entry[:, -1], jnp.int32(7)))
    assert result.cycles == kv_shift.cost(hw, 6, 7, 3, "float16")


@pytest.mark.parametrize("changes", MACHINES)
@pytest.mark.parametrize("mesh", [(1, 2), (2, 1), (3, 2), (6, 1)])
def test_cycles_equal_the_cost_of_every_length(changes, mesh):
    hw = toy(mesh, sram_bytes=4096, **changes)
    for elements in (1, 7, 20):
        for length in range(2 * mesh[0]):
            arguments = (hw, elements, length, 2)
            off = oracle_cycles(kv_shift.program(*arguments)) - kv_shift.cost(*arguments)
            full = length > mesh[0]
            short = elements < 20 or not (full or hw.stream_setup_cycles)
            assert off in ((-1, 0) if full else (0, 1)) if short else off == 0, arguments


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda hw: kv_shift.program(hw, 2, 12, 3), "full: 12 vectors of 12"),
        (lambda hw: kv_shift.cost(hw, 0, 1, 3), "sizes must be at least 1"),
        (lambda hw: kv_shift.program(hw, 3, 1, 3, "float16"), "end inside a word"),
        (lambda hw: kv_shift.program(hw, 2000, 1, 1), "bytes of SRAM"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(WaferError, match=message):
        call(toy((4, 1)))
