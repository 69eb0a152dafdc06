"""Growing caches under every policy: the same logits, other places, other limits and costs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.golden_families import IDS, PROMPT, golden, tiny
from models.tiny_families import FAMILIES
from wafer_jax import hardware
from wafer_jax.collectives import kv_concat
from wafer_jax.errors import WaferError
from wafer_jax.models.caches import POLICIES, policy_of
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.families import read_config
from wafer_jax.models.mesh_costs import decode_costs, prefill_costs
from wafer_jax.models.mesh_layout import LayerLayout
from wafer_jax.models.mesh_model import MeshModel
from wafer_jax.models.placement import place

HW = hardware("wse2", mesh=(2, 5)).replace(sram_bytes=1 << 20)
SMOLLM2 = DecoderConfig(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_layers=30, num_heads=9,
    num_kv_heads=3, head_dim=64, tie_embeddings=True,
)  # fmt: skip


def placed(kv, rows=24, **options):
    return place(SMOLLM2, hardware("wse2", mesh=(rows, 24)), kv=kv, **options)


def operators(costs):
    return {o.operator: o for o in (*costs.layer, *costs.model)}


@pytest.mark.parametrize("name", ["llama 3", "gpt-oss"])
def test_concatenation_gives_the_logits_of_transformers(name):
    """As the shifted cache does in the tests of families; in the batch, too."""
    model, wanted = MeshModel(tiny(name), HW, kv="concat"), golden()[name]
    bound = 1e-5 * np.abs(wanted).max()
    batch = model.batch(2, context=IDS.shape[1])
    for slot, ids in enumerate(IDS):
        logits = batch.fill(slot, ids[: PROMPT + slot])
        assert np.abs(logits - wanted[slot, PROMPT + slot - 1]).max() <= bound
    for place_ in range(PROMPT, IDS.shape[1] - 1):
        logits = batch.decode([IDS[0, place_], IDS[1, place_ + 1]])
        assert np.abs(logits - [wanted[0, place_], wanted[1, place_ + 1]]).max() <= bound
    cache = jax.tree.map(lambda leaf: leaf[0], batch.caches.layers[-1])  # full attention
    assert cache.capacity == kv_concat.capacity(cache.keys[0]) >= IDS.shape[1]


@pytest.mark.parametrize("kv", POLICIES)
@pytest.mark.parametrize("prompt", [1, 5, 6])
def test_tokens_keep_their_vectors(kv, prompt):
    """Prefilled, then appended up to the last place: every token once, with its own vectors."""
    rows, columns, slots = 3, 5, 4
    layout = LayerLayout(read_config(FAMILIES["llama 3"]), (rows, columns), kv=kv)
    policy, shape = policy_of(layout), (2, 2, layout.heads, 2 * layout.pairs, rows, columns)
    number = np.arange(2)[:, None] + 2 * np.arange(rows)  # [l, Y], token t in row t // l
    tiles = jnp.broadcast_to(number[None, :, None, None, :, None], shape).astype(jnp.float32)
    cache = policy.from_prefill(tiles, -tiles, jnp.int32(prompt), slots)
    assert jax.tree.map(jnp.shape, cache) == jax.tree.map(jnp.shape, policy.create(layout, slots))
    assert cache.capacity == slots * policy.rows(layout)
    for length in range(prompt, cache.capacity + 1):
        held = np.asarray(cache.held(jnp.int32(length)))
        for values, sign in ((cache.keys, 1), (cache.values, -1)):
            every = np.moveaxis(np.asarray(values), -2, 2)[:, held]  # [P, tokens, m, d, X]
            assert (every == every[..., :1, :1, :1]).all()
            found = sign * every[:, :, 0, 0, 0]
            assert np.sort(found).tolist() == [list(range(length))] * 2
        if length < cache.capacity:
            cache = cache.make_room(jnp.int32(length))
            vector = jnp.full(shape[2:4] + shape[-1:], float(length))
            for layer in (0, 1):
                cache = cache.put(vector, -vector, jnp.int32(layer), jnp.int32(length))


@pytest.mark.parametrize("rows", [24, 36])
def test_the_shifted_cache_holds_as_many_times_more_as_there_are_rows(rows):
    shift, concat = placed("shift", rows), placed("concat", rows)
    assert (shift.kv_rows, concat.kv_rows) == (rows, 1)
    assert shift.kv_capacity == rows * concat.kv_capacity > 0
    full = placed("concat", rows, context=concat.kv_capacity)
    assert min(full.frame["free_bytes"]) >= 0
    with pytest.raises(WaferError, match=f"KV capacity .*: {concat.kv_capacity} tokens fit"):
        placed("concat", rows, context=concat.kv_capacity + 1)


def test_concatenation_moves_nothing_and_waits_for_the_fullest_row():
    shift, concat = (operators(decode_costs(placed(kv, context=96), 96)) for kv in POLICIES)
    assert "KV shift" not in concat
    assert shift["KV shift"].moved_bytes > concat["KV concat"].moved_bytes == 0
    # 96 tokens in one row take as long as 96 in each of 24.
    spread = operators(decode_costs(placed("shift", context=2304), 2304))
    for name in ("scores", "softmax", "attention output"):
        assert concat[name] == spread[name]
        assert concat[name].cycles > shift[name].cycles
    assert concat["q, k, v"] == shift["q, k, v"]
    before, after = (prefill_costs(placed(kv, context=96, prompt=48), 48) for kv in POLICIES)
    assert before.layer == after.layer
    assert before.model[-1].cycles < after.model[-1].cycles  # all come down to the last row


def test_the_cycles_of_a_generation_grow_with_every_token():
    model = MeshModel(tiny("llama 3"), HW, kv="concat")
    one, two = (model.generate([5, 6, 7], max_new_tokens=n, stop_ids=()) for n in (2, 3))
    assert two.cycles - one.cycles == two.decode.cycles > one.decode.cycles


def test_an_unknown_policy_is_one_clear_line():
    with pytest.raises(WaferError, match="kv='paged': choose one of shift, concat"):
        place(SMOLLM2, HW, kv="paged")
