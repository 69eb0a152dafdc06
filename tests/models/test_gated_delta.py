"""Gated DeltaNet on the mesh against its dense reference, which goes token by token."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from wafer_jax import hardware
from wafer_jax.collectives import allreduce_ktree, gemv
from wafer_jax.models.attention import full
from wafer_jax.models.attention import gated_delta as kind
from wafer_jax.models.attention.gated_delta import costs
from wafer_jax.models.attention.gated_delta.layout import DeltaLayout
from wafer_jax.models.config import DecoderConfig, DeltaHeads
from wafer_jax.models.mesh_layout import PAD, LayerLayout
from wafer_jax.models.model_configs import model_config
from wafer_jax.models.operator_cost import Meter
from wafer_jax.models.quantized.packed import below

HEADS = DeltaHeads(keys=3, values=6, key_dim=8, value_dim=10, kernel=4)
CONFIG = DecoderConfig(
    vocab_size=97,
    hidden_size=28,
    intermediate_size=80,
    num_layers=1,
    num_heads=6,
    num_kv_heads=2,
    head_dim=16,
    attention=("gated_delta",),
    delta=HEADS,
)
TOKENS = 21


def random_parameters() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = kind.parameter_shapes(CONFIG)
    normal = lambda shape: rng.standard_normal(shape, dtype=np.float32)
    return {n: normal(s) * (0.5 if len(s) == 1 else s[-1] ** -0.5) for n, s in shapes.items()}


PARAMETERS = random_parameters()
X = np.random.default_rng(1).standard_normal((TOKENS, 28), dtype=np.float32)


@cache
def expected() -> np.ndarray:
    """Outputs [T, E] of X, dense."""
    module = kind.Dense(CONFIG, rngs=nnx.Rngs(0))
    for name, values in PARAMETERS.items():
        *path, last = name.split(".")
        owner = module
        for part in path:
            owner = getattr(owner, part)
        getattr(owner, last)[...] = jnp.asarray(values)
    run = jax.jit(lambda x: module(x, kind.dense_cache(CONFIG, 1, TOKENS), jnp.int32(0), None)[0])
    return np.asarray(run(jnp.asarray(X)[None])[0])


class Mesh:
    """One layer on a mesh."""

    def __init__(self, mesh: tuple[int, int]):
        self.layout = layout = LayerLayout(CONFIG, mesh)
        tiles = kind.lay_out(lambda *names: below(*(PARAMETERS[n] for n in names)), layout)
        self.tiles = jax.tree.map(lambda a: jnp.asarray(a)[None], tiles)
        self._decode = jax.jit(
            lambda x, cache: kind.decode(self.tiles, x, cache, jnp.int32(0), None, layout, 2)
        )
        self._prefill = jax.jit(self._run_prefill)

    def _run_prefill(self, x: jax.Array, length: jax.Array):
        tiles = kind.relay(jax.tree.map(lambda a: a[0], self.tiles), self.layout)
        out, kept = kind.prefill(tiles, x, length, self.layout, "rounds", 2)
        kept = jax.tree.map(lambda a: a[None], kept)
        return out, kind.cache_from_prefill(kept, length, 1, self.layout)

    def prefill(self, x: np.ndarray, per_row: int):
        """The rest of the rows is filled with noise."""
        height, width = self.layout.mesh
        whole = np.random.default_rng(2).standard_normal(
            (height * per_row, width * self.layout.hidden_x), dtype=np.float32
        )
        whole[: len(x), :28], whole[: len(x), 28:] = x, 0
        tiles = whole.reshape(height, per_row, width, -1).transpose(1, 3, 0, 2)
        out, cache = self._prefill(jnp.asarray(tiles), jnp.int32(len(x)))
        out = np.asarray(out).transpose(2, 0, 3, 1).reshape(height * per_row, -1)
        return out[: len(x), :28], cache

    def decode(self, x: np.ndarray, cache):
        padded = np.zeros(self.layout.mesh[0] * self.layout.hidden_y, np.float32)
        outputs = []
        for token in x:
            padded[:28] = token
            out, cache = self._decode(jnp.asarray(padded.reshape(self.layout.mesh[0], -1)), cache)
            outputs.append(np.asarray(out)[:28])
        return np.stack(outputs), cache


def assert_close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("mesh", [(1, 1), (2, 2), (3, 8), (12, 40)])
def test_decode_token_by_token(mesh):
    """One PE, heads that share columns, columns that share heads, idle rows and columns."""
    layer = Mesh(mesh)
    found, _ = layer.decode(X, kind.create_cache(layer.layout, 1))
    assert_close(found, expected())


@pytest.mark.parametrize(
    ("mesh", "per_row"), [((2, 2), 4), ((3, 8), 5), ((12, 40), 2), ((5, 4), 1)]
)
def test_prefill_in_chunks_and_decode_after_it(mesh, per_row):
    """Rows that are not full, rows that are empty, rows shorter than the convolution."""
    layer = Mesh(mesh)
    for tokens in (1, 5, min(14, mesh[0] * per_row)):
        found, cache = layer.prefill(X[:tokens], per_row)
        assert_close(found, expected()[:tokens])
        one_by_one = layer.decode(X[:tokens], kind.create_cache(layer.layout, 1))[1]
        for after, wanted in zip(*map(jax.tree.leaves, (cache, one_by_one)), strict=True):
            assert_close(after, wanted)
        assert_close(
            layer.decode(X[tokens : tokens + 3], cache)[0], expected()[tokens : tokens + 3]
        )


def test_long_rows_are_several_chunks(monkeypatch):
    monkeypatch.setattr(costs, "LONGEST_CHUNK", 4)
    assert costs.chunks_of(9) == (3, 3)
    assert costs.chunks_of(10) == (3, 4)
    found, _ = Mesh((2, 2)).prefill(X[:19], 10)
    assert_close(found, expected()[:19])


def test_decode_is_mapped_over_sequences():
    layer = Mesh((2, 2))
    caches = [layer.prefill(X[:n], 4)[1] for n in (3, 6)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *caches)
    x = jnp.asarray(X[:2].reshape(2, 2, -1))
    found, _ = jax.vmap(layer._decode)(x, stacked)
    for i, alone in enumerate(caches):
        assert_close(found[i], layer._decode(x[i], alone)[0])


@pytest.mark.parametrize("mesh", [(1, 1), (2, 2), (3, 8), (4, 40)])
def test_every_row_of_a_projection_lies_on_one_column(mesh):
    layout = DeltaLayout(HEADS, mesh)
    for columns, rows in ((layout.key_columns, 24), (layout.value_columns, 60)):
        held = columns[columns != PAD]
        assert sorted(held) == list(range(rows))
    for x, line in enumerate(layout.head_columns):
        values = layout.value_columns[x]
        assert set(values[values != PAD] // 10) <= set(line[line != PAD])


def test_values_turn_from_columns_to_rows_and_back():
    layout = DeltaLayout(HEADS, (4, 8))
    values = np.zeros((2, layout.value_x, 8), np.float32)
    elements = layout.value_elements
    values[:] = np.where(elements == PAD, 0, elements)
    rows = layout.to_rows(jnp.asarray(values))
    np.testing.assert_array_equal(rows[0, :, :, 1].T.reshape(-1)[:10], np.arange(10))
    np.testing.assert_array_equal(layout.to_columns(rows), values)


HW = hardware("wse2", mesh=(12, 24))
BIG = replace(
    CONFIG,
    hidden_size=96,
    delta=DeltaHeads(keys=2, values=4, key_dim=24, value_dim=36, kernel=4),
)
LAYOUT = LayerLayout(BIG, (12, 24))


def test_decode_costs_what_its_collectives_say():
    """Two groups of 12 columns: two elements of a key and three of a value on each PE."""
    found = {o.operator: o for o in kind.decode_costs(Meter(HW, "float32"), LAYOUT, 9)}
    group = HW.replace(mesh=(12, 12))
    assert found["q, k, v, z"].cycles == gemv.cost(HW, 96, 24 * (2 * 2 + 2 * 2 * 3), axis="y")
    assert found["o"].cycles == gemv.cost(HW, 24 * 2 * 3, 96, axis="x")
    read = found["read the state"]
    assert read.cycles - read.compute_cycles == allreduce_ktree.cost(group, 3 * 2 * 3 + 1, 2, "x")
    turn = found["turn the output"]
    assert turn.cycles - turn.compute_cycles == allreduce_ktree.cost(HW, 2 * 3 + 2, 2, "y")
    later = {o.operator: o for o in kind.decode_costs(Meter(HW, "float32"), LAYOUT, 900)}
    assert later == found


def test_slices_of_the_state_follow_one_another():
    """12 slices through 12 rows: 23 steps, of which a row works in 12."""
    walks = {}
    for tokens in (12, 24, 18, 1):
        operators = {
            o.operator: o for o in kind.prefill_costs(Meter(HW, "float32"), LAYOUT, tokens)
        }
        walks[tokens] = operators["walk of the state"]
    full, half = walks[24], walks[18]
    assert full.cycles % 23 == 0
    assert full.compute_cycles % 12 == 0
    assert half.cycles * 23 == full.cycles * 20  # nine rows have tokens
    assert walks[1].cycles * 23 == walks[12].cycles * 12
    assert all(o.idle_cycles >= 0 for o in walks.values())


def test_tokens_before_a_row_come_from_the_rows_above():
    """Three of them: from three rows above at one token per row, from one at three."""
    found = {}
    for per_row in (1, 3):
        costs = kind.prefill_costs(Meter(HW, "float32"), LAYOUT, per_row * 12)
        (found[per_row],) = (o for o in costs if o.operator == "convolution")
    one, three = (o.cycles - o.compute_cycles for o in found.values())
    assert one - three == (3 - 1) * HW.hop_cycles
    assert found[1].moved_bytes == found[3].moved_bytes > 0
    alone = LayerLayout(BIG, (1, 24))
    costs = kind.prefill_costs(Meter(HW.replace(mesh=(1, 24)), "float32"), alone, 3)
    assert not any(o.moved_bytes for o in costs if o.operator == "convolution")


def test_the_state_takes_the_same_memory_after_any_number_of_tokens():
    state, tail = 2 * 2 * 3, 3 * (2 * 2 + 2 * 3)
    for context, size in ((1, 4), (10_000, 2)):
        assert kind.cache_bytes(LAYOUT, context, size) == 4 * (state + tail)
    cache = kind.create_cache(LAYOUT, 7)
    assert cache.capacity is None
    assert cache.state.size == state * 12 * 24
    assert cache.tail.size == tail * 24


def test_bytes_are_those_of_the_tiles():
    shapes = kind.parameter_shapes(BIG)
    zeros = lambda *names: below(*(np.zeros(shapes[name], np.float32) for name in names))
    tiles = kind.lay_out(zeros, LAYOUT)
    matrices = sum(tiles[name].size for name in ("qkvz", "gates", "out"))
    counted = sum(t.rows.size * t.columns.size for t in kind.decode_tiles(LAYOUT))
    assert counted * 12 * 24 == matrices
    vectors = sum(tiles[name].size for name in ("conv", "rate_log", "bias", "norm"))
    assert kind.vector_elements(LAYOUT) * 24 == vectors


def test_cycles_of_qwen3_5_9b_as_the_documentation_has_them():
    """Attention of one layer on 256x256 PEs, what other layers have apart."""
    hw = hardware("wse2", mesh=(256, 256))
    layout, meter = LayerLayout(model_config("qwen3.5-9b"), hw.mesh), Meter(hw, "float16")
    cycles = lambda operators: sum(o.cycles for o in operators)
    prefill = list(kind.prefill_costs(meter, layout, 2048))
    (walk,) = (o for o in prefill if o.operator == "walk of the state")
    assert (cycles(prefill), walk.cycles) == (3_353_492, 505_177)
    assert walk.idle_cycles / walk.cycles == pytest.approx(0.72, abs=0.005)
    assert cycles(kind.decode_costs(meter, layout, 4096)) == 4543
    assert cycles(full.decode_costs(meter, layout, 4096)) == 4420
