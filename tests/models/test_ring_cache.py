"""The KV cache of a window: what it holds after any number of tokens, and what it costs."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from models.tiny_families import FAMILIES
from wafer_jax import hardware
from wafer_jax.models.attention import full, sliding
from wafer_jax.models.caches import ring
from wafer_jax.models.caches.ring import RingCache
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.operator_cost import Meter

CONFIG = read_config(FAMILIES["gpt-oss, full first"])  # one layer of each kind, a window of 11


def layout_of(rows: int, window: int = 11) -> LayerLayout:
    return LayerLayout(replace(CONFIG, window=window), (rows, 2))


def vectors(layout: LayerLayout, token: int) -> tuple[jnp.ndarray, jnp.ndarray]:
    """Key and value [m, d, X] of a token, told apart by their numbers."""
    sizes = (layout.heads, 2 * layout.pairs, layout.mesh[1])
    key = np.arange(np.prod(sizes)).reshape(sizes) + 1000 * token
    return jnp.asarray(key, jnp.float32), jnp.asarray(-key, jnp.float32)


def put(cache: RingCache, layout: LayerLayout, token: int) -> RingCache:
    room = cache.make_room(jnp.int32(token))
    return room.put(*vectors(layout, token), jnp.int32(0), jnp.int32(token))


def tokens_in(cache: RingCache, layout: LayerLayout, length: int) -> list[int]:
    """Tokens of the places that are held, in order, their vectors checked."""
    held = np.asarray(cache.held(jnp.int32(length)))
    found = []
    for slot, row in np.argwhere(held):
        token = int(cache.keys[0, slot, 0, 0, row, 0]) // 1000
        key, value = vectors(layout, token)
        np.testing.assert_array_equal(cache.keys[0, slot, :, :, row], key)
        np.testing.assert_array_equal(cache.values[0, slot, :, :, row], value)
        found.append(token)
    return sorted(found)


@pytest.mark.parametrize(("rows", "window"), [(1, 3), (2, 5), (3, 11), (4, 4), (5, 1)])
def test_a_ring_holds_the_window_and_nothing_else(rows, window):
    layout = layout_of(rows, window)
    cache = RingCache.create(layout, slots=100)
    assert cache.slots == -(-window // rows)
    assert cache.capacity is None
    assert tokens_in(cache, layout, 0) == []
    for token in range(2 * window + 3):
        cache = put(cache, layout, token)
        length = token + 1
        assert tokens_in(cache, layout, length) == list(range(max(0, length - window), length))
        per_row = np.asarray(cache.held(jnp.int32(length))).sum(axis=0)
        assert per_row.max() - per_row.min() <= 1


@pytest.mark.parametrize("length", [1, 6, 11, 12, 19])
def test_a_prompt_lies_as_if_its_tokens_had_come_one_by_one(length):
    layout, per_row = layout_of(3), 7
    cache = RingCache.create(layout, slots=9)
    kept = np.full((2, *cache.keys.shape[:1], per_row, *cache.keys.shape[2:]), np.nan, np.float32)
    for token in range(length):
        cache = put(cache, layout, token)
        kept[:, 0, token % per_row, :, :, token // per_row] = vectors(layout, token)
    found = sliding.cache_from_prefill(tuple(map(jnp.asarray, kept)), length, 9, layout)
    held = np.asarray(cache.held(jnp.int32(length)))[None, :, None, None, :, None]
    np.testing.assert_array_equal(found.held(jnp.int32(length)), held[0, :, 0, 0, :, 0])
    for a, b in ((found.keys, cache.keys), (found.values, cache.values)):
        assert np.isfinite(a).all()
        np.testing.assert_array_equal(np.where(held, a, 0), np.where(held, b, 0))


def test_a_context_below_the_window_bounds_the_ring():
    cache = RingCache.create(layout_of(3), slots=2)
    assert (cache.slots, cache.capacity) == (2, 6)


def test_a_window_bounds_bytes_and_cycles():
    layout = layout_of(2)
    hw = hardware("wse2", mesh=layout.mesh)
    meter = Meter(hw, "float32")
    for kind, grows in ((full, True), (sliding, False)):
        more = kind.cache_bytes(layout, 1000, 4) > kind.cache_bytes(layout, 12, 4)
        elements = kind.decode_elements(layout, 1000) > kind.decode_elements(layout, 12)
        short, long = (sum(o.cycles for o in kind.decode_costs(meter, layout, n)) for n in (12, 99))
        assert (more, elements, long > short) == (grows, grows, grows)
    assert sliding.cache_bytes(layout, 1000, 4) == 4 * 2 * layout.kv_x * 6
    assert sliding.cache_bytes(layout, 4, 4) == full.cache_bytes(layout, 4, 4)


def test_nothing_moves_but_a_prompts_last_tokens():
    layout = layout_of(2, window=4)
    meter = Meter(hardware("wse2", mesh=layout.mesh), "float32")
    put_costs = ring.put_costs(meter, layout)
    assert (put_costs.moved_bytes, put_costs.idle_cycles) == (0, 0)
    # Tokens 4 to 7 lie in row 1 and go to rows 0, 1, 0, 1: two cross the border northwards.
    balance = ring.balance_costs(meter, layout, 8)
    words = 2 * 2 * layout.kv_x
    assert balance.cycles == ring.relayout.stream_cycles(meter.hw, words, 1)
    assert balance.moved_bytes == 4 * 2 * layout.kv_x * 4 * 2
    assert ring.balance_costs(meter, layout_of(1, window=4), 8).cycles == 0
