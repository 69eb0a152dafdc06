"""The dense reference, compiled: whole-sequence logits, prefill, decode, greedy generation."""

from collections.abc import Iterator, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from wafer_jax.errors import WaferError
from wafer_jax.models.checkpoints import Checkpoint
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.decoder import Cache, Decoder

_CAPACITY_STEP = 64  # cache sizes are rounded up to this, so that few distinct ones get compiled


class DenseModel:
    """A ``Decoder`` with its functions compiled and its parameters flattened once.

    nnx walks the whole module on every call; here the module is taken apart once, and calls pass
    plain arrays. Weights are arguments, so they are never baked into the compiled code.

    Token ids are ``[B, T]``; a flat list of T ids means one sequence.
    """

    def __init__(self, model: Decoder):
        """Take a model apart.

        Args:
            model: with its final parameters; later changes to it have no effect here.
        """
        self.config: DecoderConfig = model.config
        graph, state = nnx.split(model)
        self._leaves, structure = jax.tree.flatten(state)

        def run(leaves: list[jax.Array], ids: jax.Array, cache: Cache, *, hidden: bool = False):
            return _rebuild(leaves)(ids, cache, hidden_states=hidden)

        def _rebuild(leaves: list[jax.Array]) -> Decoder:
            return nnx.merge(graph, jax.tree.unflatten(structure, leaves))

        def whole(leaves: list[jax.Array], ids: jax.Array, hidden: bool):
            cache = Cache.create(self.config, batch=ids.shape[0], capacity=ids.shape[1])
            x, _, between = run(leaves, ids, cache, hidden=hidden)
            flat = x.reshape(-1, x.shape[-1])
            return _rebuild(leaves).logits(flat).reshape(*ids.shape, -1), between

        def extend(leaves: list[jax.Array], ids: jax.Array, cache: Cache):
            x, cache, _ = run(leaves, ids, cache)
            return _rebuild(leaves).logits(x[:, -1]), cache

        self._whole = jax.jit(whole, static_argnums=2)
        self._extend = jax.jit(extend, donate_argnums=2)

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> "DenseModel":
        """Build the reference for a checkpoint.

        Args:
            checkpoint: from ``checkpoints.load``.

        Returns:
            The model.
        """
        return cls.from_weights(checkpoint.config, checkpoint.weights)

    @classmethod
    def from_weights(cls, config: DecoderConfig, weights: Mapping[str, np.ndarray]) -> "DenseModel":
        """Build the reference around weights under their Hugging Face names.

        Args:
            config: the model.
            weights: every parameter, in Hugging Face's layout.

        Returns:
            The model.

        Raises:
            WaferError: a parameter is missing, left over, or of the wrong shape.
        """
        return cls(Decoder.from_weights(config, weights))

    def forward(
        self, ids: Sequence[int] | np.ndarray, *, hidden_states: bool = False
    ) -> tuple[jax.Array, jax.Array | None]:
        """Compute the logits at every position, without a cache.

        Args:
            ids: ``[B, T]`` token ids.
            hidden_states: whether to return the residual stream too.

        Returns:
            Logits ``[B, T, V] float32``; and ``[L + 1, B, T, E] float32``, the embedding and then
            the residual stream after each layer (before the final norm), or None.

        Raises:
            WaferError: no ids, ids outside the vocabulary, or more than the model's context.
        """
        return self._whole(self._leaves, self._check(ids), hidden_states)

    def prefill(
        self, ids: Sequence[int] | np.ndarray, *, capacity: int | None = None
    ) -> tuple[jax.Array, Cache]:
        """Run a prompt and keep its keys and values.

        Args:
            ids: ``[B, T]`` token ids.
            capacity: tokens that the cache can hold, at least T; the prompt plus 64 by default.

        Returns:
            Logits after the last token, ``[B, V] float32``, and the cache.

        Raises:
            WaferError: as for ``forward``, or the prompt exceeds the capacity.
        """
        checked = self._check(ids)
        batch, tokens = checked.shape
        if capacity is None:
            capacity = min(tokens + _CAPACITY_STEP, self.config.max_position_embeddings)
        if not tokens <= capacity <= self.config.max_position_embeddings:
            raise WaferError(
                f"a cache of {capacity} tokens cannot serve a prompt of {tokens} (the model's "
                f"context is {self.config.max_position_embeddings}); change the capacity or "
                "shorten the prompt"
            )
        cache = Cache.create(self.config, batch=batch, capacity=capacity)
        return self._extend(self._leaves, checked, cache)

    def decode(
        self, ids: int | Sequence[int] | np.ndarray, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        """Add one token to every sequence.

        Args:
            ids: ``[B]`` token ids, or one id for a single sequence.
            cache: from ``prefill`` or ``decode``; its memory is reused, so it is gone afterwards.

        Returns:
            Logits after the new token, ``[B, V] float32``, and the longer cache.

        Raises:
            WaferError: the cache is full, or as for ``forward``.
        """
        checked = self._check(np.reshape(np.asarray(ids), (-1, 1)))
        if checked.shape[0] != cache.batch:
            raise WaferError(f"{checked.shape[0]} tokens for a cache of {cache.batch} sequences")
        if int(cache.length) >= cache.capacity:
            raise WaferError(
                f"the KV cache is full ({cache.capacity} tokens); prefill with a larger capacity"
            )
        return self._extend(self._leaves, checked, cache)

    def stream(
        self,
        ids: Sequence[int],
        *,
        max_new_tokens: int,
        stop_ids: Sequence[int] | None = None,
    ) -> Iterator[int]:
        """Generate greedily, token by token.

        Args:
            ids: the prompt, one sequence.
            max_new_tokens: at most this many are generated.
            stop_ids: ids that end the text; the configuration's by default, none if empty.

        Yields:
            Each new id; an id that ends the text is the last one.

        Raises:
            WaferError: as for ``prefill``; prompt and new tokens exceed the model's context.
        """
        stops = set(self.config.eos_token_ids if stop_ids is None else stop_ids)
        context = self.config.max_position_embeddings
        needed = len(ids) + max_new_tokens
        if max_new_tokens < 1 or needed > context:
            raise WaferError(
                f"{len(ids)} prompt tokens and {max_new_tokens} new ones do not fit the model's "
                f"context of {context}; ask for 1 to {max(1, context - len(ids))} new tokens"
            )
        capacity = min(-(-needed // _CAPACITY_STEP) * _CAPACITY_STEP, context)
        logits, cache = self.prefill(ids, capacity=capacity)
        for count in range(1, max_new_tokens + 1):
            token = int(np.argmax(np.asarray(logits)[0]))
            yield token
            if token in stops or count == max_new_tokens:
                return
            logits, cache = self.decode(token, cache)

    def generate(
        self,
        ids: Sequence[int],
        *,
        max_new_tokens: int,
        stop_ids: Sequence[int] | None = None,
    ) -> list[int]:
        """Generate greedily; ``stream`` as a list.

        Args:
            ids: the prompt, one sequence.
            max_new_tokens: at most this many are generated.
            stop_ids: ids that end the text; the configuration's by default, none if empty.

        Returns:
            The new ids, without the prompt.

        Raises:
            WaferError: as for ``stream``.
        """
        return list(self.stream(ids, max_new_tokens=max_new_tokens, stop_ids=stop_ids))

    def _check(self, ids: Sequence[int] | np.ndarray) -> jax.Array:
        """Ids as ``[B, T] int32``; out of range they would be clamped silently on the device."""
        array = np.atleast_2d(np.asarray(ids))
        if array.ndim != 2 or not array.size or not np.issubdtype(array.dtype, np.integer):
            raise WaferError(
                f"token ids must be one or more integers [B, T], not {array.dtype} of shape "
                f"{list(array.shape)}"
            )
        if array.min() < 0 or array.max() >= self.config.vocab_size:
            raise WaferError(
                f"token ids {array.min()}..{array.max()} reach outside the vocabulary of "
                f"{self.config.vocab_size}; is this the model's own tokenizer?"
            )
        if array.shape[1] > self.config.max_position_embeddings:
            raise WaferError(
                f"{array.shape[1]} tokens exceed the model's context of "
                f"{self.config.max_position_embeddings}; shorten the prompt"
            )
        return jnp.asarray(array, jnp.int32)
