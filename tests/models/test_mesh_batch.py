"""Sequences decoded together: every family against transformers, every slot for itself."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from models.golden_families import IDS, PROMPT, golden, tiny
from models.tiny_families import FAMILIES
from wafer_jax import hardware
from wafer_jax.errors import WaferError
from wafer_jax.models.mesh_model import MeshModel

HW = hardware("wse2", mesh=(2, 5)).replace(sram_bytes=1 << 20)
CONTEXT = IDS.shape[1]
EMPTY, SHORT, LONG, WAITING = range(4)
"""Slots: one that starts without a prompt, two with prompts, one that is left out."""
FIRST_OF_FAMILIES = {FAMILIES[name]["model_type"]: name for name in reversed(FAMILIES)}.values()
SEQUENCE = {EMPTY: 0, SHORT: 0, LONG: 1, WAITING: 1}


@pytest.fixture(scope="module")
def model():
    return MeshModel(tiny("llama 3"), HW)


def assert_close(found, wanted):
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def bits(batch, slot):
    return [np.array(leaf[slot]) for leaf in jax.tree.leaves(batch.caches)]


def assert_same_bits(before, after):
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def filled(model, order=(SHORT, LONG, WAITING)):
    """A batch with prompts of one token more in one slot, and the logits after each."""
    batch, logits = model.batch(4, context=CONTEXT), {}
    for slot in order:
        prompt = IDS[SEQUENCE[slot]][: PROMPT + (slot == LONG)]
        logits[slot] = batch.fill(slot, prompt)
    return batch, logits


def step(batch, active):
    """Decode the next token of the active slots and hold their logits against transformers'."""
    held, wanted = batch.lengths, golden_of(batch)
    places = [(SEQUENCE[slot], held[slot]) for slot in range(4)]
    tokens = [IDS[sequence][place] for sequence, place in places]
    logits = batch.decode(tokens, [slot in active for slot in range(4)])
    for slot, (sequence, place) in enumerate(places):
        if slot in active:
            assert_close(logits[slot], wanted[sequence][place])
        else:
            assert np.isnan(logits[slot]).all()
    moved = [slot in active for slot in range(4)]
    np.testing.assert_array_equal(batch.lengths, held + moved)


def golden_of(batch):
    return golden()[batch.model.name]


@pytest.mark.parametrize("name", FIRST_OF_FAMILIES)
def test_sequences_of_several_lengths_give_the_logits_of_transformers(name):
    batch, first = filled(MeshModel(tiny(name), HW))
    assert batch.lengths.tolist() == [0, PROMPT, PROMPT + 1, PROMPT]
    for slot, logits in first.items():
        assert_close(logits, golden_of(batch)[SEQUENCE[slot]][batch.lengths[slot] - 1])
    waiting, empty = bits(batch, WAITING), bits(batch, EMPTY)
    for _ in range(2):
        step(batch, {SHORT, LONG})
    assert_same_bits(empty, bits(batch, EMPTY))
    for _ in range(4):
        step(batch, {EMPTY, SHORT, LONG})
    step(batch, {EMPTY})
    assert_same_bits(waiting, bits(batch, WAITING))
    step(batch, {LONG, WAITING})

    # What was in a slot, and in which order others were filled, leaves no trace.
    other, again = filled(batch.model, (WAITING, SHORT, LONG))
    fresh = {slot: bits(other, slot) for slot in again}
    for slot in (LONG, WAITING, SHORT):
        prompt = IDS[SEQUENCE[slot]][: PROMPT + (slot == LONG)]
        np.testing.assert_array_equal(batch.fill(slot, prompt), first[slot])
        np.testing.assert_array_equal(again[slot], first[slot])
    for slot, leaves in fresh.items():
        assert_same_bits(leaves, bits(batch, slot))


def test_eight_sequences_of_one_state_each():
    """So many on PEs so many crashed XLA when a sum was written in another way."""
    batch = MeshModel(tiny("qwen3.5"), HW.replace(mesh=(8, 8))).batch(8, context=CONTEXT)
    for place in range(3):
        logits = batch.decode(np.tile(IDS[:, place], 4))
        for slot in range(8):
            assert_close(logits[slot], golden_of(batch)[slot % 2][place])


def test_together_as_one_by_one(model):
    batch, _ = filled(model)
    alone = {slot: model.prefill(IDS[SEQUENCE[slot]][:PROMPT], context=CONTEXT) for slot in (1, 3)}
    for slot in alone:
        batch.fill(slot, IDS[SEQUENCE[slot]][:PROMPT])
    for place in range(PROMPT, CONTEXT - 1):
        tokens = [IDS[SEQUENCE[slot]][place] for slot in range(4)]
        logits = batch.decode(tokens)
        for slot in alone:
            alone[slot] = model.decode(int(tokens[slot]), alone[slot].cache)
            assert_close(logits[slot], alone[slot].logits)
            assert logits[slot].argmax() == alone[slot].logits.argmax()
    with pytest.raises(WaferError, match=r"slot 2 is full \(23 tokens\)"):
        batch.decode(tokens)
    batch.decode(tokens, [True, True, False, True])


def test_generation_for_several_prompts(model):
    prompts = [IDS[0][:PROMPT].tolist(), IDS[1][: PROMPT + 1].tolist(), IDS[1][:PROMPT].tolist()]
    alone = [model.generate(prompt, max_new_tokens=6, stop_ids=()) for prompt in prompts]
    seen = []
    together = model.generate_batch(
        prompts, max_new_tokens=6, stop_ids=(), progress=lambda *what: seen.append(what)
    )
    assert together.ids == tuple(generation.ids for generation in alone)
    assert together.texts is None
    assert seen == [("prefill", n, 3) for n in range(4)] + [("decode", n, 6) for n in range(1, 7)]
    assert together.prefill_cycles == sum(generation.prefill.cycles for generation in alone)
    assert together.cycles < sum(generation.cycles for generation in alone)
    assert together.contexts == tuple((7 + n, 8 + n, 7 + n) for n in range(1, 6))
    assert "18 tokens of 3 sequences" in repr(together)

    stop = alone[1].ids[2]
    stopped = model.generate_batch(prompts, max_new_tokens=6, stop_ids=[stop])
    cut = [g.ids[: g.ids.index(stop) + 1] if stop in g.ids else g.ids for g in alone]
    assert stopped.ids == tuple(cut)
    assert stopped.decode_cycles < together.decode_cycles
    one = model.generate_batch(prompts[:1], max_new_tokens=1)
    assert (one.contexts, one.decode_cycles) == ((), 0)


def test_a_batch_has_room_for_what_the_sram_holds():
    model = MeshModel(tiny("llama 3"), HW.replace(sram_bytes=36_000))
    capacity = model.place(batch=8).kv_capacity
    assert 0 < capacity < model.place().kv_capacity / 7
    tight = replace(model.config, max_position_embeddings=1 << 20)
    model.config = tight
    model.batch(8, context=capacity)
    with pytest.raises(WaferError, match=f"in each of 8 sequences are over .*: {capacity:,} tok"):
        model.batch(8, context=capacity + 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.batch(0, context=8), "ask for at least 1"),
        (lambda m: m.batch(2, context=65), "choose 1 to 64"),
        (lambda m: m.batch(2, context=8).fill(2, [1]), "slots 0 to 1"),
        (lambda m: m.batch(2, context=2).fill(0, [1, 2, 3]), "prompt of 3 tokens for slots of 2"),
        (lambda m: m.batch(2, context=8).fill(0, [97]), "outside the vocabulary of 97"),
        (lambda m: m.batch(2, context=8).decode([1]), "takes as many tokens and flags"),
        (lambda m: m.batch(2, context=8).decode([1, 97]), "outside the vocabulary of 97"),
        (lambda m: m.generate_batch("text"), "a list of one or more prompts"),
        (lambda m: m.generate_batch([]), "a list of one or more prompts"),
        (lambda m: m.generate_batch([[1], [2]], max_new_tokens=0), "ask for at least 1"),
        (lambda m: m.generate_batch([[1], [2]], max_new_tokens=64), "choose 1 to 64"),
    ],
)
def test_bad_input_is_one_clear_line(model, call, message):
    with pytest.raises(WaferError, match=message) as error:
        call(model)
    assert "\n" not in str(error.value)
