"""A model on an emulated wafer: prefill, decode and generation at the bulk level.

Every matrix product, normalisation and attention is made tile by tile in WaferLLM's layouts, see
`mesh_prefill` and `mesh_decode`; cycles come from the cost level, see `mesh_costs`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.collectives.tiles import tile_size
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec
from wafer_jax.models import mesh_steps
from wafer_jax.models.batch_generation import BatchGeneration
from wafer_jax.models.checkpoints import Checkpoint
from wafer_jax.models.generation import Generation
from wafer_jax.models.mesh_batch import Batch, generate_batch
from wafer_jax.models.mesh_cache import MeshCache
from wafer_jax.models.mesh_layout import LayerLayout, round_up
from wafer_jax.models.mesh_products import Accumulate
from wafer_jax.models.mesh_relay import Values
from wafer_jax.models.mesh_steps import Plan
from wafer_jax.models.mesh_weights import lay_out
from wafer_jax.models.placement import Placement, place
from wafer_jax.models.precision import check_dtype, stored_weights

Progress = Callable[[str, int, int], None]
"""Called with (what, done, total) while something takes long."""

_CONTEXT_STEP = 64
"""Caches are made for a multiple of so many tokens, so that few sizes get compiled."""


@dataclass(frozen=True)
class Output:
    """What one prefill or one step of decode gives.

    Attributes:
      logits: [V] float32, after the last token.
      cache: What is remembered of all tokens so far.
      hidden_states: [L + 1, T, E] float32: the embedding, then the residual stream after each
        layer, of the T tokens of this call.
    """

    logits: np.ndarray
    cache: MeshCache
    hidden_states: np.ndarray


def check_accumulate(accumulate: str) -> Accumulate:
    """Pass a type of sums on, unless it is another.

    Raises:
      WaferError: Neither "float32" nor "float16".
    """
    if accumulate not in ("float32", "float16"):
        raise WaferError(f'accumulate {accumulate!r}: choose "float32" or "float16"')
    return accumulate


class MeshModel:
    """A checkpoint laid out on the regions of one layer, the embedding and the head.

    Attributes:
      name: The model's name.
      config: What defines it.
      tokenizer: Text to ids and back, or None.
      hw: Machine; ``hw.mesh`` is the region of one layer.
      values: How MeshGEMM makes its values in prefill.
      k: Phases of the K-tree allreduces.
      dtype: Format of the weights, a name of `storage.STORAGES`.
      accumulate: What decode's products are summed in.
      layers_per_region: Consecutive layers that share a region.
      weights: The tiles.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        hw: HardwareSpec,
        *,
        values: Values = "rounds",
        k: int = 2,
        dtype: str = "float32",
        accumulate: str = "float32",
        layers_per_region: int = 1,
        expert_grid: tuple[int, int] = (1, 1),
        kv: str = "shift",
    ):
        """Place a model and cut its weights into tiles.

        Args:
          checkpoint: The model.
          hw: Machine; ``hw.mesh`` is the region of one layer.
          values: "rounds" multiplies tile by tile in the fabric's order; "dense" makes prefill's
            products densely, with another order of additions. Decode is always tile by tile.
          k: Phases of the K-tree allreduces.
          dtype: What weights are stored in: float32, float16, bfloat16, or packed (q8_0, q4_1,
            q4_0, fp8, mxfp4). They turn into float32 tile by tile when they are multiplied;
            activations and the KV cache have float32 values at this level.
          accumulate: What decode's products are summed in, within and across PEs. "float16" rounds
            their operands, and the sum after every addition, as the device does.
          layers_per_region: Consecutive layers that share a region.
          expert_grid: Rows and columns of regions for experts within a layer's, see `place`.
          kv: How keys and values lie over the rows: "shift" or "concat", see `place`.

        Raises:
          WaferError: A region's tiles exceed its PEs' SRAM; unknown ``values``, ``dtype``,
            ``accumulate`` or ``kv``; a format that weights cannot be packed into.
        """
        if values not in ("rounds", "dense"):
            raise WaferError(f'values={values!r}: choose "rounds" or "dense"')
        self.name = checkpoint.name
        self.config = checkpoint.config
        self.tokenizer = checkpoint.tokenizer
        self.hw = hw
        check_dtype(dtype)
        self.values: Values = values
        self.k = k
        self.dtype = dtype
        self.accumulate = check_accumulate(accumulate)
        self.layers_per_region = layers_per_region
        self.expert_grid = expert_grid
        self.kv = kv
        placement = self.place()
        layouts = placement.layer, placement.embedding, placement.head
        self._plan = Plan(*layouts, values, k, self.accumulate)
        self.weights = lay_out(stored_weights(checkpoint, dtype), *layouts)

    @property
    def layout(self) -> LayerLayout:
        """How a decoder layer lies on its region."""
        return self._plan.layer

    @property
    def plan(self) -> Plan:
        """What the compiled functions are specialised on."""
        return self._plan

    def place(self, context: int = 1, prompt: int = 1, batch: int = 1) -> Placement:
        """Place the model for so many sequences of a context and a prompt of so many tokens.

        Raises:
          WaferError: It does not fit.
        """
        return place(
            self.config,
            self.hw,
            context=context,
            prompt=prompt,
            dtype=self.dtype,
            layers_per_region=self.layers_per_region,
            expert_grid=self.expert_grid,
            batch=batch,
            kv=self.kv,
        )

    def accumulating(self, accumulate: Accumulate) -> "MeshModel":
        """The same weights with sums in another type."""
        other = copy(self)
        other.accumulate = accumulate
        other._plan = replace(self._plan, accumulate=accumulate)
        return other

    def prefill(self, ids: Sequence[int] | np.ndarray, *, context: int | None = None) -> Output:
        """Run a prompt from an empty cache.

        Args:
          ids: [T] token ids.
          context: Tokens that the cache must hold, at least T; the prompt plus 64 by default, or
            what fits.

        Returns:
          Logits after the last token, the cache, and the hidden states of all T tokens.

        Raises:
          WaferError: No ids, ids outside the vocabulary, or a context over the model's or over
            the KV capacity of a layer's region.
        """
        checked = self.check_ids(ids)
        context = self._check_context(len(checked), context)
        logits, cache, hidden = self.run_prompt(checked, self.slots_per_row(context))
        return Output(np.asarray(logits), cache, np.asarray(hidden)[:, : len(checked)])

    def run_prompt(self, ids: np.ndarray, slots: int) -> tuple[jax.Array, MeshCache, jax.Array]:
        """What `mesh_steps.prefill` gives for checked ids and a cache of so many slots per row."""
        height = self.hw.mesh[0]
        per_row = tile_size(len(ids), height)
        per_row = per_row if per_row <= 4 else round_up(per_row, 4)  # few sizes get compiled
        padded = np.zeros(per_row * height, np.int32)
        padded[: len(ids)] = ids
        plan = replace(self._plan, slots=slots, accumulate="float32")  # that is decode's alone
        args = (self.weights, jnp.asarray(padded), jnp.int32(len(ids)))
        return mesh_steps.run(mesh_steps.prefill, plan, *args)

    def decode(self, token: int, cache: MeshCache) -> Output:
        """Add one token.

        Args:
          token: Its id.
          cache: From ``prefill`` or ``decode``; its memory is reused, so it is gone afterwards.

        Returns:
          Logits after the token, the cache, and the token's hidden states.

        Raises:
          WaferError: The cache is full, or an id outside the vocabulary.
        """
        checked = self.check_ids([token])
        if cache.capacity is not None and int(cache.length) >= cache.capacity:
            raise WaferError(
                f"the KV cache is full ({cache.capacity} tokens): prefill with a larger context"
            )
        args = (self.weights, cache, jnp.asarray(checked[0]))
        logits, cache, hidden = mesh_steps.run(mesh_steps.decode, self._plan, *args)
        return Output(np.asarray(logits), cache, np.asarray(hidden))

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_new_tokens: int = 32,
        stop_ids: Sequence[int] | None = None,
        keep_logits: bool = False,
        progress: Progress | None = None,
    ) -> Generation:
        """Generate greedily.

        Args:
          prompt: Text, or token ids.
          max_new_tokens: At most this many are generated.
          stop_ids: Ids that end the text; the configuration's by default, none if empty.
          keep_logits: Whether to keep the logits of every new token.
          progress: See ``stream``.

        Returns:
          Text, ids, cycles per operator and tokens/s.

        Raises:
          WaferError: As for ``stream``; text for a model without a tokenizer.
        """
        ids = self.encode(prompt)
        new: list[int] = []
        kept: list[np.ndarray] = []
        began = first = time.perf_counter()
        stream = self.stream(
            ids, max_new_tokens=max_new_tokens, stop_ids=stop_ids, progress=progress
        )
        for token, logits in stream:
            if not new:
                first = time.perf_counter()
            new.append(token)
            if keep_logits:
                kept.append(logits)
        return Generation(
            name=self.name,
            prompt_ids=tuple(ids),
            ids=tuple(new),
            text=None if self.tokenizer is None else self.tokenizer.decode(new),
            logits=np.stack(kept) if kept else None,
            placement=self.place(context=len(ids) + max_new_tokens, prompt=len(ids)),
            k=self.k,
            prefill_s=first - began,
            decode_s=time.perf_counter() - first,
        )

    def encode(self, prompt: str | Sequence[int]) -> list[int]:
        """Text to ids; ids pass through.

        Raises:
          WaferError: No tokenizer, or nothing to encode.
        """
        if not isinstance(prompt, str):
            return [int(i) for i in self.check_ids(prompt)]
        if self.tokenizer is None:
            raise WaferError(f"{self.name} has no tokenizer that is understood: give token ids")
        if not (ids := self.tokenizer.encode(prompt)):
            raise WaferError("the prompt is empty: give at least one word")
        return ids

    def stream(
        self,
        ids: Sequence[int],
        *,
        max_new_tokens: int,
        stop_ids: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Generate greedily, token by token.

        Args:
          ids: The prompt.
          max_new_tokens: At most this many are generated.
          stop_ids: Ids that end the text; the configuration's by default, none if empty.
          progress: Called as ("prefill", 0 or 1, 1) and ("decode", tokens, max_new_tokens).

        Yields:
          Each new id with the logits [V] that chose it; an id that ends the text is the last.

        Raises:
          WaferError: As for ``prefill``; no tokens asked for.
        """
        if max_new_tokens < 1:
            raise WaferError(f"{max_new_tokens} new tokens: ask for at least 1")
        report = progress or (lambda what, done, total: None)
        stops = set(self.config.eos_token_ids if stop_ids is None else stop_ids)
        report("prefill", 0, 1)
        output = self.prefill(ids, context=len(ids) + max_new_tokens)
        report("prefill", 1, 1)
        for count in range(1, max_new_tokens + 1):
            token = int(np.argmax(output.logits))
            report("decode", count, max_new_tokens)
            yield token, output.logits
            if token in stops or count == max_new_tokens:
                return
            output = self.decode(token, output.cache)

    def batch(self, count: int, *, context: int) -> Batch:
        """Make empty slots for several sequences, to be filled and decoded together.

        Args:
          count: Slots B.
          context: Tokens that every slot must hold.

        Raises:
          WaferError: No slots; a context over the model's or over the KV capacity of a layer's
            region.
        """
        return Batch(self, count, context)

    def generate_batch(
        self,
        prompts: Sequence[str | Sequence[int]],
        *,
        max_new_tokens: int = 32,
        stop_ids: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> BatchGeneration:
        """Generate greedily for several prompts of any lengths at once.

        Args:
          prompts: Texts, or token ids.
          max_new_tokens: At most this many are generated for each.
          stop_ids: Ids that end a text; the configuration's by default, none if empty.
          progress: Called as ("prefill", prompts, all) and ("decode", tokens, max_new_tokens).

        Returns:
          Texts, ids, cycles and tokens/s.

        Raises:
          WaferError: As for ``encode``, ``batch`` and ``Batch.fill``; no tokens asked for.
        """
        return generate_batch(self, prompts, max_new_tokens, stop_ids, progress)

    def slots_per_row(self, context: int, batch: int = 1) -> int:
        """Tokens per row of a cache for a context, in steps, but no more than fit."""
        placed = self.place(batch=batch)
        tokens = min(round_up(context, _CONTEXT_STEP), placed.kv_capacity)
        return tile_size(tokens, placed.kv_rows)

    def _check_context(self, tokens: int, context: int | None) -> int:
        limit = self.config.max_position_embeddings
        if context is None:
            most = max(tokens, min(limit, self.place().kv_capacity))
            context = min(tokens + _CONTEXT_STEP, most)
        if not tokens <= context <= limit:
            raise WaferError(
                f"a context of {context} tokens cannot serve a prompt of {tokens} (the model's "
                f"context is {limit}): change the context or shorten the prompt"
            )
        self.place(context=context, prompt=tokens)
        return context

    def check_ids(self, ids: Sequence[int] | np.ndarray) -> np.ndarray:
        """Ids as [T] int32; out of range they would be clamped silently on the device.

        Raises:
          WaferError: No ids, no integers, or outside the vocabulary.
        """
        array = np.asarray(ids)
        if array.ndim != 1 or not array.size or not np.issubdtype(array.dtype, np.integer):
            raise WaferError(
                f"token ids must be one or more integers [T], not {array.dtype} of shape "
                f"{list(array.shape)}"
            )
        if array.min() < 0 or array.max() >= self.config.vocab_size:
            raise WaferError(
                f"token ids {array.min()}..{array.max()} reach outside the vocabulary of "
                f"{self.config.vocab_size}; is this the model's own tokenizer?"
            )
        return array.astype(np.int32)
