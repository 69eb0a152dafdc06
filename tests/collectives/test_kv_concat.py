"""KV cache by concatenation, the baseline: values, cycles, capacity against the shifted cache."""

import jax.numpy as jnp
import numpy as np
import pytest
from lines_harness import normal, oracle_cycles, oracle_tile, same_bits, toy

from wafer_jax import Jitter, WaferError, hardware, replicate, run
from wafer_jax.collectives import kv_concat, kv_shift


@pytest.mark.parametrize("mesh", [(1, 1), (3, 2), (4, 1)])
def test_vectors_fill_the_last_row_alone(mesh):
    hw, slots = toy(mesh, sram_bytes=4096), 3
    cache = np.zeros((slots, 5, *mesh), np.float32)
    entries = [normal(5, *mesh, seed=length) for length in range(slots)]
    for length, entry in enumerate(entries):
        program = kv_concat.program(hw, 5, length, slots)
        fabric = oracle_tile(program, {"cache": cache, "entry": entry}, "cache")
        cache = np.asarray(kv_concat.apply(jnp.asarray(cache), entry[:, -1], length))
        # Rows that play no role keep what they hold, which is nothing.
        assert same_bits(fabric[..., -1, :], cache[..., -1, :])
        assert oracle_cycles(program) == kv_concat.cost(hw, 5, length, slots)
    assert not cache[..., :-1, :].any()
    assert same_bits(cache[..., -1, :], np.stack([entry[:, -1] for entry in entries]))


def test_executor_agrees_with_bulk_level_and_cost_under_every_jitter():
    hw, count = hardware("wse3", mesh=(2, 3)), 20
    tiles = {"cache": normal(2, 4, 2, 3), "entry": normal(4, 2, 3, seed=1)}
    program = kv_concat.program(hw, 4, 1, 2)
    result = run(program, tiles).raise_on_fault()
    expected = np.asarray(kv_concat.apply(jnp.asarray(tiles["cache"]), tiles["entry"][:, -1], 1))
    assert same_bits(result.values[..., -1, :], expected[..., -1, :])
    assert result.cycles == kv_concat.cost(hw, 4, 1, 2)
    walled = {k: np.concatenate([v, 0 * v[..., :1, :]], axis=-2) for k, v in tiles.items()}
    stacked = {k: np.concatenate([v] * count, axis=-2)[..., :-1, :] for k, v in walled.items()}
    values = run(replicate(program, count), stacked, jitter=Jitter(0, 30, 10)).values
    for last in range(1, 3 * count, 3):
        assert same_bits(values[..., last, :], expected[..., -1, :])


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_the_shifted_cache_holds_as_many_times_more_as_there_are_rows(rows):
    """WaferLLM, table 5: 137,548 vectors against 382 on 360 rows, 6,168 against 16 on 375."""
    cache = jnp.zeros((4, 2, rows, 3))
    assert kv_shift.capacity(cache) == rows * kv_concat.capacity(cache)
    hw = toy((rows, 1))
    with pytest.raises(WaferError, match="full: 4 vectors of 4"):
        kv_concat.program(hw, 1, 4, 4)
    with pytest.raises(WaferError, match=f"full: {4 * rows} vectors of {4 * rows}"):
        kv_shift.program(hw, 1, 4 * rows, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda hw: kv_concat.cost(hw, 2, -1, 3), "the vectors held at least 0"),
        (lambda hw: kv_concat.program(hw, 3, 1, 3, "bfloat16"), "end inside a word"),
        (lambda hw: kv_concat.program(hw, 2000, 0, 1), "bytes of SRAM"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(WaferError, match=message):
        call(toy((2, 1)))
