"""Sequences of any lengths decoded together on one model's regions (bulk level).

Every sequence has a slot with caches of its own; the weights are there once. Axes: B slots, V
vocabulary.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.models import mesh_steps
from wafer_jax.models.batch_generation import BatchGeneration
from wafer_jax.models.mesh_cache import MeshCache

if TYPE_CHECKING:
    from wafer_jax.models.mesh_model import MeshModel


class Batch:
    """Slots for sequences, each empty or with the tokens of one sequence.

    Attributes:
      model: On its regions.
      count: Slots B.
      context: Tokens that a slot can hold.
    """

    def __init__(self, model: "MeshModel", count: int, context: int):
        """Make empty slots; see `MeshModel.batch`."""
        limit = model.config.max_position_embeddings
        if count < 1:
            raise WaferError(f"a batch of {count} slots: ask for at least 1")
        if not 1 <= context <= limit:
            raise WaferError(
                f"slots of {context} tokens: choose 1 to {limit}, which is the model's context"
            )
        model.place(context=context, batch=count)
        self.model = model
        self.count = count
        self.context = context
        self._slots_per_row = model.slots_per_row(context, count)
        empty = MeshCache.create(model.layout, self._slots_per_row)
        self._caches = jax.tree.map(lambda leaf: jnp.stack([leaf] * count), empty)

    @property
    def lengths(self) -> np.ndarray:
        """[B] int32: tokens that each slot holds."""
        return np.asarray(self._caches.length)

    @property
    def caches(self) -> MeshCache:
        """What all slots remember, every leaf with a leading axis B; gone after the next call."""
        return self._caches

    def fill(self, slot: int, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Run a prompt from an empty cache into a slot; what was there is gone.

        Args:
          slot: Number of the slot.
          ids: [T] token ids.

        Returns:
          [V] float32: logits after the last token.

        Raises:
          WaferError: No such slot, no ids, ids outside the vocabulary, more than a slot holds, or a
            prompt too long for the PEs' buffers.
        """
        if not 0 <= slot < self.count:
            raise WaferError(f"slot {slot}: this batch has slots 0 to {self.count - 1}")
        checked = self.model.check_ids(ids)
        if len(checked) > self.context:
            raise WaferError(
                f"a prompt of {len(checked)} tokens for slots of {self.context}: shorten it, or "
                f"make a batch with a larger context"
            )
        self.model.place(context=self.context, prompt=len(checked), batch=self.count)
        logits, cache, _ = self.model.run_prompt(checked, self._slots_per_row)
        args = (self._caches, cache, jnp.int32(slot))
        self._caches = mesh_steps.run(mesh_steps.fill, self.model.plan, *args)
        return np.asarray(logits)

    def decode(
        self, tokens: Sequence[int] | np.ndarray, active: Sequence[bool] | np.ndarray | None = None
    ) -> np.ndarray:
        """Add one token to every active slot.

        Args:
          tokens: [B] ids; those of slots that are not active do not matter.
          active: [B] bool, all by default. A slot that is not active keeps what it holds, to the
            bit; keeping it takes time, so let it run along where it no longer matters.

        Returns:
          [B, V] float32: logits after each token, NaN of slots that are not active.

        Raises:
          WaferError: Other numbers of tokens than slots, ids outside the vocabulary, or an active
            slot that is full.
        """
        chosen = np.ones(self.count, bool) if active is None else np.asarray(active, bool)
        if np.shape(tokens) != (self.count,) or chosen.shape != (self.count,):
            raise WaferError(
                f"a batch of {self.count} slots takes as many tokens and flags, not "
                f"{list(np.shape(tokens))} and {list(chosen.shape)}"
            )
        if (full := chosen & (self.lengths >= self.context)).any():
            raise WaferError(
                f"slot {full.argmax()} is full ({self.context} tokens): fill it anew, leave it "
                f"out, or make a batch with a larger context"
            )
        if not chosen.any():
            return np.full((self.count, self.model.config.vocab_size), np.nan, np.float32)
        ids = np.zeros(self.count, np.int32)
        ids[chosen] = self.model.check_ids(np.asarray(tokens)[chosen])
        args = (self.model.weights, self._caches, jnp.asarray(ids))
        if chosen.all():
            step = mesh_steps.decode_batch
        else:
            step, args = mesh_steps.decode_some, (*args, jnp.asarray(chosen))
        logits, self._caches = mesh_steps.run(step, self.model.plan, *args)
        return np.where(chosen[:, None], logits, np.float32(np.nan))


def generate_batch(
    model: "MeshModel",
    prompts: Sequence[str | Sequence[int]],
    max_new_tokens: int,
    stop_ids: Sequence[int] | None,
    progress: Callable[[str, int, int], None] | None,
) -> BatchGeneration:
    """See `MeshModel.generate_batch`. A sequence that has ended runs along until all have."""
    if isinstance(prompts, str) or not prompts:
        raise WaferError("give a list of one or more prompts")
    if max_new_tokens < 1:
        raise WaferError(f"{max_new_tokens} new tokens: ask for at least 1")
    report = progress or (lambda what, done, total: None)
    stops = set(model.config.eos_token_ids if stop_ids is None else stop_ids)
    ids = [model.encode(prompt) for prompt in prompts]
    longest = max(map(len, ids))
    began = time.perf_counter()
    batch = model.batch(len(ids), context=longest + max_new_tokens)
    logits = []
    for slot, prompt in enumerate(ids):
        report("prefill", slot, len(ids))
        logits.append(batch.fill(slot, prompt))
    report("prefill", len(ids), len(ids))
    first = time.perf_counter()
    new: list[list[int]] = [[] for _ in ids]
    running = list(range(len(ids)))
    for count in range(1, max_new_tokens + 1):
        tokens = np.argmax(logits, axis=-1)
        for slot in running:
            new[slot].append(int(tokens[slot]))
        running = [slot for slot in running if new[slot][-1] not in stops]
        report("decode", count, max_new_tokens)
        if not running or count == max_new_tokens:
            break
        logits = batch.decode(tokens)
    tokenizer = model.tokenizer
    return BatchGeneration(
        name=model.name,
        prompt_ids=tuple(map(tuple, ids)),
        ids=tuple(map(tuple, new)),
        texts=None if tokenizer is None else tuple(map(tokenizer.decode, new)),
        placement=model.place(context=batch.context, prompt=longest, batch=len(ids)),
        k=model.k,
        prefill_s=first - began,
        decode_s=time.perf_counter() - first,
    )
