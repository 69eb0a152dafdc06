"""Periods of attention kinds: the same layers in one place or in two, and kinds that differ.

What differs is a copy of full attention with another name or other costs.
"""

from dataclasses import replace
from types import ModuleType, SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.tiny_families import FAMILIES
from models.tiny_llama import random_weights
from wafer_jax import hardware
from wafer_jax.models import mesh_decode
from wafer_jax.models.attention import KINDS, full
from wafer_jax.models.checkpoints import Checkpoint
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_cache import MeshCache
from wafer_jax.models.mesh_costs import decode_costs, prefill_costs
from wafer_jax.models.mesh_model import MeshModel
from wafer_jax.models.parameters import parameter_shapes
from wafer_jax.models.placement import place

ONE = replace(read_config(FAMILIES["qwen3"]), num_layers=4)
WEIGHTS = random_weights(ONE)
IDS = np.random.default_rng(2).integers(0, 97, 9)
PROMPT = 5
HW = hardware("wse2", mesh=(2, 3)).replace(sram_bytes=1 << 24)
RENAMED = "linear_attn"


def copy_of_full(**changes) -> ModuleType:
    kind = ModuleType("copy")
    vars(kind).update({**vars(full), **changes})
    return kind


@pytest.fixture(params=["full", "renamed"])
def two(request, monkeypatch) -> Checkpoint:
    """The same layers as a period of two, the second of the same kind or under another name."""
    monkeypatch.setitem(KINDS, "renamed", copy_of_full(NAME=RENAMED))
    weights = dict(WEIGHTS)
    if request.param == "renamed":
        for name in WEIGHTS:
            if ".1.self_attn." in name or ".3.self_attn." in name:
                weights[name.replace("self_attn", RENAMED)] = weights.pop(name)
    return Checkpoint(replace(ONE, attention=("full", request.param)), weights, None, "two", "here")


def run_dense(model: DenseModel):
    logits, hidden = model.forward(IDS, hidden_states=True)
    yield from (logits, hidden)
    logits, cache = model.prefill(IDS[:PROMPT])
    yield logits
    for token in IDS[PROMPT:]:
        logits, cache = model.decode(int(token), cache)
        yield logits


def run_mesh(model: MeshModel):
    output = model.prefill(IDS[:PROMPT], context=len(IDS))
    yield from (output.logits, output.hidden_states)
    for token in IDS[PROMPT:]:
        output = model.decode(int(token), output.cache)
        yield from (output.logits, output.hidden_states)


def test_parameters_are_named_by_the_kind_of_their_layer(two):
    assert parameter_shapes(two.config) == {n: w.shape for n, w in two.weights.items()}


def test_a_period_of_two_gives_the_same_bits_on_the_mesh(two):
    mesh = MeshModel(Checkpoint(ONE, WEIGHTS, None, "one", "here"), HW)
    for a, b in zip(run_mesh(MeshModel(two, HW)), run_mesh(mesh), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_period_of_two_gives_the_same_in_the_dense_reference(two):
    """Not to the bit: there XLA chooses the order of additions."""
    dense = DenseModel.from_weights(ONE, WEIGHTS)
    for a, b in zip(run_dense(DenseModel.from_checkpoint(two)), run_dense(dense), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * np.abs(b).max())


def test_layers_of_one_kind_cost_the_same_in_any_period():
    options = {"context": 40, "prompt": 20}
    one, two = (place(replace(ONE, attention=("full",) * n), HW, **options) for n in (1, 2))
    assert one.frame.equals(two.frame)
    for costs in (decode_costs, prefill_costs):
        a, b = costs(one, 20), costs(two, 20)
        assert a.frame.equals(b.frame)
        assert (a.layer, a.period, b.period) == (b.layer[: len(b.layer) // 2], 1, 2)
        assert (a.layer_cycles, a.cycles) == (b.layer_cycles, b.cycles)
        assert a.layers_tokens_per_s == b.layers_tokens_per_s


def test_kinds_that_differ_are_counted_by_place(monkeypatch):
    def with_wait(meter, layout, context):
        yield meter.compute("wait", 1001)
        yield from full.decode_costs(meter, layout, context)

    stateless = lambda layout, context, size: 8
    monkeypatch.setitem(KINDS, "other", copy_of_full(decode_costs=with_wait, cache_bytes=stateless))
    one = place(ONE, HW, context=40)
    two = place(replace(ONE, attention=("full", "other")), HW, context=40)
    kv = two.frame.set_index("region")["kv_bytes"]
    assert (kv["layer 1"], kv["layer 3"]) == (8, 8)
    assert kv["layer 0"] == kv["layer 2"] == one.frame["kv_bytes"][1] > 8
    assert two.kv_capacity == one.kv_capacity
    assert two.summary["count"].tolist() == [1, 2, 2]  # a row per kind

    a, b = decode_costs(one, 20), decode_costs(two, 20)
    assert b.cycles == a.cycles + 2 * 1001
    assert b.layer_cycles == round(a.layer_cycles + 1001 / 2)
    times = b.frame.set_index("operator")["times"]
    assert (times["wait"], times["o"], times["head"]) == (2, 4, 1)
    assert (b.frame["cycles"] * b.frame["times"]).sum() == b.cycles


def test_the_smallest_cache_limits_a_model():
    layers = [SimpleNamespace(capacity=limit) for limit in (7, None, 5)]
    assert MeshCache(layers=tuple(layers), length=jnp.int32(0)).capacity == 5
    assert MeshCache(layers=(layers[1],), length=jnp.int32(0)).capacity is None


def test_sequences_of_several_lengths_can_be_mapped_over():
    model = MeshModel(Checkpoint(ONE, WEIGHTS, None, "one", "here"), HW)
    prefilled = [model.prefill(IDS[:length], context=len(IDS)).cache for length in (2, 7)]
    empty = MeshCache.create(model.layout, prefilled[0].layers[0].slots)
    caches = [empty, *prefilled]
    x = jnp.asarray(np.random.default_rng(0).standard_normal((3, 2, 24)), jnp.float32)
    step = lambda x, cache: mesh_decode.decode_layers(model.weights.layers, x, cache, model.layout)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *caches)
    together = jax.jit(jax.vmap(step))(x, stacked)
    alone = [jax.jit(step)(*sequence) for sequence in zip(x, caches, strict=True)]
    expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *alone)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), together, expected)
    assert together[1].length.tolist() == [1, 3, 8]
