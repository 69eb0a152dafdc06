"""What several sequences cost together, and what they take of the SRAM."""

import pytest

from models.tiny_families import FAMILIES
from wafer_jax import hardware
from wafer_jax.collectives import allreduce_ktree
from wafer_jax.collectives.kernels import gemv_cycles
from wafer_jax.errors import WaferError
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_costs import decode_costs
from wafer_jax.models.mesh_memory import layer_bytes, vocab_bytes
from wafer_jax.models.placement import place

SMOLLM2 = DecoderConfig(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_layers=30, num_heads=9,
    num_kv_heads=3, head_dim=64, tie_embeddings=True,
)  # fmt: skip
HW = hardware("wse2", mesh=(24, 24))
PLACED = place(SMOLLM2, HW, context=240)


def operators(costs):
    return {o.operator: o for o in (*costs.layer, *costs.model)}


def test_one_sequence_costs_what_a_token_costs():
    one = decode_costs(PLACED, 100)
    assert decode_costs(PLACED, [100]) == one
    assert (one.batch, one.tokens) == (1, 100)


@pytest.mark.parametrize("batch", [2, 5])
def test_work_and_words_count_for_every_sequence_and_latencies_once(batch):
    one, all_ = decode_costs(PLACED, 100), decode_costs(PLACED, [100] * batch)
    assert all_.batch == batch
    for name, o in operators(one).items():
        together = operators(all_)[name]
        assert together.compute_cycles == batch * o.compute_cycles, name
        assert o.cycles <= together.cycles <= batch * o.cycles, name
        assert together.moved_bytes == batch * o.moved_bytes, name
        assert together.idle_cycles <= batch * o.idle_cycles
    columns = PLACED.layer.qkv_x
    kernel = batch * gemv_cycles(HW, 24, columns)
    total = kernel + allreduce_ktree.cost(HW, batch * columns, 2, "y")
    assert operators(all_)["q, k, v"].cycles == total
    assert all_.tokens_per_s > one.tokens_per_s
    assert all_.tokens_per_s == pytest.approx(batch * HW.clock_hz / all_.cycles)


def test_packed_weights_are_unpacked_once():
    placed = place(SMOLLM2, HW, context=240, dtype="q4_0")
    plain = place(SMOLLM2, HW, context=240, dtype="float16")
    of = lambda placement, batch: decode_costs(placement, [100] * batch)
    unpacking = lambda batch: (
        operators(of(placed, batch))["down"].compute_cycles
        - operators(of(plain, batch))["down"].compute_cycles
    )
    assert placed.storage.compute == plain.storage.compute
    assert unpacking(1) == unpacking(4) > 0


def test_packed_experts_are_unpacked_once_each_at_most():
    """Seven experts, two per sequence: two, four, six, and no more than all seven."""
    config, machine = read_config(FAMILIES["qwen3 moe"]), hardware("wse2", mesh=(4, 4))
    packed, plain = (place(config, machine, dtype=d) for d in ("q4_0", "float16"))
    of = lambda placed, batch: operators(decode_costs(placed, [1] * batch))["down"].compute_cycles
    unpacking = [of(packed, batch) - of(plain, batch) for batch in (1, 2, 3, 4, 9)]
    one = unpacking[0] / 2
    assert one > 0
    assert unpacking == [2 * one, 4 * one, 6 * one, 7 * one, 7 * one]


def test_contexts_that_differ_cost_their_own_scores():
    """240 and 48 tokens of 24 rows are 10 and 2 slots, as two of 6."""
    apart, alike = decode_costs(PLACED, [240, 48, 48, 240]), decode_costs(PLACED, [144] * 4)
    assert apart.tokens == 240
    assert operators(apart).keys() == operators(alike).keys()
    for name, o in operators(apart).items():
        rounding = 12  # every head's kernel of every sequence takes whole cycles
        assert o.cycles == pytest.approx(operators(alike)[name].cycles, abs=rounding), name
        assert o.idle_cycles >= 0
    shorter = decode_costs(PLACED, [48] * 4)
    assert operators(shorter)["scores"].cycles < operators(apart)["scores"].cycles
    assert operators(shorter)["o"] == operators(apart)["o"]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_cheaper_together(name):
    placement = place(read_config(FAMILIES[name]), hardware("wse2", mesh=(4, 4)), context=32)
    one, four = (decode_costs(placement, [20] * batch).cycles for batch in (1, 4))
    assert one < four < 4 * one


def test_every_sequence_has_a_cache_and_activations():
    layout, vocab = PLACED.layer, PLACED.head
    one, three = (layer_bytes(layout, "float32", 100, 48, batch=batch) for batch in (1, 3))
    assert three.weights_bytes == one.weights_bytes
    assert three.kv_bytes == 3 * one.kv_bytes
    few, many = (layer_bytes(layout, "float32", 100, 1, batch=batch) for batch in (100, 300))
    assert many.buffers_bytes == 3 * few.buffers_bytes
    head, heads = vocab_bytes(vocab, "float32"), vocab_bytes(vocab, "float32", 3)
    assert heads.buffers_bytes == 3 * head.buffers_bytes
    assert heads.weights_bytes == head.weights_bytes


def test_capacity_is_of_every_sequence():
    one, eight = place(SMOLLM2, HW), place(SMOLLM2, HW, batch=8)
    assert eight.batch == 8
    assert 0 < eight.kv_capacity < one.kv_capacity / 8 + 24
    full = place(SMOLLM2, HW, context=eight.kv_capacity, batch=8)
    assert min(full.frame["free_bytes"]) >= 0
    limit = f"in each of 8 sequences are over the KV capacity .*: {eight.kv_capacity} tokens fit"
    with pytest.raises(WaferError, match=limit):
        place(SMOLLM2, HW, context=eight.kv_capacity + 1, batch=8)
    with pytest.raises(WaferError, match=r"in each of 10000 sequences .*: 0 tokens fit"):
        place(SMOLLM2, HW, batch=10_000)
