"""Re-layout between prefill and decode: every element where the other layout expects it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wafer_jax import WaferError, hardware
from wafer_jax.collectives import kv_shift, relayout
from wafer_jax.collectives.tiles import tile_matrix

MESHES = [(1, 1), (2, 2), (2, 3), (4, 3), (1, 5)]


@pytest.mark.parametrize("mesh", MESHES)
def test_a_matrix_turns_and_turns_back(mesh):
    dense = jnp.arange(5 * 7, dtype=jnp.float32).reshape(5, 7)
    along = {axis: tile_matrix(dense, mesh, axis) for axis in ("x", "y")}
    turned = jax.jit(lambda t: relayout.apply(t, (5, 7)))(along["y"])
    assert (turned == along["x"]).all()
    assert (relayout.apply(turned, (5, 7), source="x", target="y") == along["y"]).all()


def test_other_regions_and_leading_axes():
    dense = jnp.arange(5 * 7, dtype=jnp.float32).reshape(5, 7)
    layers = jnp.stack([tile_matrix(dense, (2, 3)), tile_matrix(2 * dense, (2, 3))])
    moved = relayout.apply(layers, (5, 7), target="y", mesh=(3, 2))
    assert (moved[1] == tile_matrix(2 * dense, (3, 2))).all()


@pytest.mark.parametrize(("rows", "places", "slots"), [(3, 4, 4), (4, 3, 5), (1, 5, 5), (5, 2, 2)])
def test_a_prompts_cache_is_balanced_as_the_shift_keeps_it(rows, places, slots):
    token = np.arange(rows * places, dtype=np.float32).reshape(rows, places).T
    tiles = jnp.asarray(np.broadcast_to(token[:, None, :, None], (places, 2, rows, 3)))
    balance = jax.jit(relayout.balance, static_argnums=(2, 3))
    append = jax.jit(kv_shift.apply)
    cache = jnp.zeros((slots, 2, rows, 3))
    for length in range(rows * min(places, slots) + 1):
        number = np.asarray(kv_shift.held(length, slots, rows))
        expected = np.where((number >= 0)[:, None, :, None], cache, 0)
        assert (balance(tiles, length, slots, 0) == expected).all()
        cache = append(cache, jnp.full((2, 3), float(length)), jnp.int32(length))
    layers = balance(tiles[None], length, slots, 1)
    assert (layers[0] == expected).all()


def test_costs():
    hw = hardware("wse2", mesh=(24, 24))
    turn = relayout.cost(hw, 576, 576)
    assert turn == relayout.stream_cycles(hw, 23 * 24 * 24, 46)
    assert turn == relayout.cost(hw, 576, 576, source="x", target="y")
    assert relayout.cost(hw, 576, 576, dtype="bfloat16") < turn
    assert relayout.cost(hw, 576, 576, target="y") == 0
    assert relayout.cost(hardware("wse2", mesh=(1, 1)), 576, 576) == 0


def test_balance_cost_counts_the_tokens_that_cross_the_busiest_border():
    hw = hardware("wse2", mesh=(4, 2))
    assert relayout.balance_cost(hw, 3, 12, 16) == 0
    # 9 tokens in rows of 3, 3, 3, 0 become 2, 2, 2, 3: tokens 6 to 8 go to row 3 and so on.
    assert relayout.balance_cost(hw, 3, 9, 16) == relayout.stream_cycles(hw, 3 * 16, 1)
    # 3 tokens in row 0 become 0, 1, 1, 1.
    assert relayout.balance_cost(hw, 3, 3, 16) == relayout.stream_cycles(hw, 3 * 16, 3)


def test_what_the_user_got_wrong():
    with pytest.raises(WaferError, match="axis of the mesh"):
        relayout.balance(jnp.zeros((3, 2, 2)), 1, 3, slot_axis=1)
    with pytest.raises(WaferError, match='choose "x"'):
        relayout.apply(jnp.zeros((1, 1, 2, 2)), (2, 2), target="z")  # pyright: ignore[reportArgumentType]
