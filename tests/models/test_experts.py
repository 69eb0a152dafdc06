"""Experts on the mesh against NumPy, what is computed of them, and what they cost."""

import jax.numpy as jnp
import numpy as np
import pytest

from models.tiny_families import FAMILIES
from models.tiny_llama import random_weights
from wafer_jax import hardware
from wafer_jax.models.families import read_config
from wafer_jax.models.feed_forward import experts
from wafer_jax.models.mesh_costs import decode_costs, prefill_costs
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_memory import layer_bytes
from wafer_jax.models.mesh_weights import lay_out
from wafer_jax.models.operator_cost import Meter
from wafer_jax.models.placement import place

CONFIG = read_config(FAMILIES["qwen3 moe"])


def chosen_of(x: np.ndarray, weights: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the two experts that layer 1 chooses, and their weights."""
    scores = weights["model.layers.1.mlp.gate.weight"] @ x
    numbers = np.argsort(-scores)[:2]
    share = np.exp(scores[numbers])
    return numbers, share / share.sum()


def expert_of(x: np.ndarray, weights: dict[str, np.ndarray], number: int) -> np.ndarray:
    names = (f"model.layers.1.mlp.experts.{number}.{n}_proj.weight" for n in ("gate", "up", "down"))
    gate, up, down = (weights[name] for name in names)
    return down @ (gate @ x / (1 + np.exp(-gate @ x)) * (up @ x))


@pytest.mark.parametrize("mesh", [(1, 1), (2, 3), (5, 8)])
def test_decode_computes_the_chosen_experts_and_no_other(mesh):
    weights = {name: w.astype(np.float64) for name, w in random_weights(CONFIG, seed=1).items()}
    layout = LayerLayout(CONFIG, mesh)
    placement = place(CONFIG, hardware("wse2", mesh=mesh).replace(sram_bytes=1 << 24))
    (layers,) = lay_out(weights, layout, placement.embedding, placement.head).layers
    tiles = dict(layers.feed_forward)
    x = np.random.default_rng(3).standard_normal(48)
    numbers, share = chosen_of(x, weights)
    expected = sum(s * expert_of(x, weights, int(n)) for n, s in zip(numbers, share, strict=True))
    others = np.setdiff1d(np.arange(7), numbers)
    for name in ("gate_up", "down"):
        tiles[name] = tiles[name].at[1, others].set(np.nan)
    padded = np.zeros(mesh[0] * layout.hidden_y, np.float32)
    padded[:48] = x
    by_row = jnp.asarray(padded.reshape(mesh[0], -1))
    found = experts.decode(tiles, by_row, jnp.int32(1), layout, 2)[:48]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_cycles_grow_with_the_chosen_ones_in_decode_and_with_all_in_prefill():
    hw = hardware("wse2", mesh=(4, 6)).replace(sram_bytes=1 << 20)
    placement = place(CONFIG, hw, context=32, prompt=16)
    decode = {o.operator: o for o in decode_costs(placement, 32).layer}
    meter = Meter(hw, "float32")
    gate_up = meter.multiply((12, 2 * 4))
    assert decode["gate, up"].compute_cycles == 2 * gate_up
    assert decode["down"].compute_cycles == 2 * meter.multiply((4, 12))
    assert decode["spread the scores"].moved_bytes == 4 * 6 * 7 * 4
    one = meter.matmul("", (4, 6), (16, 48, 8 * 6))
    prefill = {o.operator: o for o in prefill_costs(placement, 16).layer}
    assert prefill["gate, up"].cycles == 7 * one.cycles


def test_every_pe_holds_a_tile_of_every_expert():
    memory = layer_bytes(LayerLayout(CONFIG, (2, 6)), "float32", 2, 1)
    without = layer_bytes(LayerLayout(read_config(FAMILIES["qwen3"]), (2, 6)), "float32", 2, 1)
    swiglu = 3 * 48 // 2 * -(-80 // 6)
    expert, router = 3 * 48 // 2 * 24 // 6, 48 // 2 * 2
    assert memory.weights_bytes - without.weights_bytes == 4 * (7 * expert + router - swiglu)
