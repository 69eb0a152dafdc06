"""The decoder of every family as dense ``flax.nnx`` modules: the reference for the mesh.

Axis letters: B sequences, T new tokens, L layers, P periods of attention kinds, E hidden width, V
vocabulary.

The layers of one place in the period are stacked along a leading axis, and the periods scanned,
which compiles in the time of one period.

Source of the arithmetic: the families' modelling files in transformers; RMSNorm, softmax and all
sums are in float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from wafer_jax.errors import WaferError
from wafer_jax.models.attention import kinds_of
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.dense_layers import RMSNorm, normal
from wafer_jax.models.feed_forward import kind_of


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Cache:
    """What is remembered of the tokens seen so far.

    Attributes:
        layers: by place in the period of attention kinds, the kind's own cache.
        length: ``[] int32``, tokens held, the same for every sequence.
        batch: sequences B.
        capacity: tokens that it is made for.
    """

    layers: tuple[Any, ...]
    length: jax.Array
    batch: int = field(metadata={"static": True})
    capacity: int = field(metadata={"static": True})

    @classmethod
    def create(cls, config: DecoderConfig, *, batch: int, capacity: int) -> "Cache":
        """Make an empty cache.

        Args:
            config: the model.
            batch: sequences B.
            capacity: tokens.

        Returns:
            The cache.
        """
        layers = tuple(kind.dense_cache(config, batch, capacity) for kind in kinds_of(config))
        length = jnp.zeros((), jnp.int32)
        return cls(layers=layers, length=length, batch=batch, capacity=capacity)


class DecoderLayer(nnx.Module):
    """One pre-norm residual block; its attributes carry Hugging Face's names."""

    def __init__(self, config: DecoderConfig, attention: ModuleType, *, rngs: nnx.Rngs):
        norm = lambda: RMSNorm(config.hidden_size, config.rms_norm_eps, config.norm_offset)
        self.input_layernorm = norm()
        self.name = attention.NAME
        setattr(self, self.name, attention.Dense(config, rngs=rngs))
        self.post_attention_layernorm = norm()
        self.mlp = kind_of(config).Dense(config, rngs=rngs)

    def __call__(
        self, x: jax.Array, cache: Any, layer: jax.Array, step: Any
    ) -> tuple[jax.Array, Any]:
        """Transform ``[B, T, E]``; arguments as for the kind's ``Dense``."""
        attention = getattr(self, self.name)
        attended, cache = attention(self.input_layernorm(x), cache, layer, step)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), cache


class Decoder(nnx.Module):
    """The whole decoder.

    Attributes:
        config: what defines it.
        embed_tokens: ``[V, E]``.
        layers: by place in the period, a ``DecoderLayer`` whose parameters have a leading axis P.
        norm: the final RMSNorm.
        lm_head: ``[V, E]``, or None when the head is the embedding.
    """

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        """Initialise at random; see ``from_weights`` for trained weights.

        Args:
            config: the model.
            rngs: random streams; ``params`` is used.
        """
        self.config = config
        self.embed_tokens = nnx.Param(normal(rngs, (config.vocab_size, config.hidden_size)))
        make = lambda kind: nnx.vmap(lambda keys: DecoderLayer(config, kind, rngs=keys))
        stacks = [make(kind)(rngs.split(config.periods)) for kind in kinds_of(config)]
        self.layers = nnx.List(stacks)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, config.norm_offset)
        tied = config.tie_embeddings
        self.lm_head = None if tied else nnx.Param(normal(rngs, self.embed_tokens.shape))

    @classmethod
    def from_weights(cls, config: DecoderConfig, weights: Mapping[str, np.ndarray]) -> "Decoder":
        """Build the model around trained weights.

        Args:
            config: the model.
            weights: Hugging Face name to array, as in ``Checkpoint.weights``.

        Returns:
            The model, its parameters on the default device in float32.

        Raises:
            WaferError: a parameter is missing, left over, or of the wrong shape.
        """
        graph, abstract = nnx.split(nnx.eval_shape(lambda: cls(config, rngs=nnx.Rngs(0))))
        unused = set(weights)
        leaves = []
        for path, leaf in jax.tree_util.tree_leaves_with_path(abstract):
            keys = [k.key for k in path if isinstance(k, jax.tree_util.DictKey)]
            leaves.append(_gather(keys, leaf.shape, config, weights, unused))
        if unused:
            raise WaferError(f"weights that no parameter takes: {sorted(unused)[:4]}")
        return nnx.merge(graph, jax.tree.unflatten(jax.tree.structure(abstract), leaves))

    def __call__(
        self, ids: jax.Array, cache: Cache, *, hidden_states: bool = False
    ) -> tuple[jax.Array, Cache, jax.Array | None]:
        """Run new tokens through every layer, up to the final norm.

        Args:
            ids: ``[B, T] int32``, following the tokens that the cache holds.
            cache: with room for T more tokens; may be empty.
            hidden_states: whether to return the residual stream between layers.

        Returns:
            The normalised output ``[B, T, E]`` for ``logits``; the longer cache; and, if asked for,
            ``[L + 1, B, T, E]``: the embedding, then the stream after each layer. (transformers'
            last entry is after the final norm, this one is before it.)
        """
        config, tokens = self.config, ids.shape[1]
        steps = [kind.dense_step(config, cache.length, tokens) for kind in kinds_of(config)]
        graph, parameters = nnx.split(self.layers)

        def body(carry: tuple[jax.Array, tuple], period: tuple[Any, jax.Array]):
            (x, caches), (parameters, number) = carry, period
            layers, longer, after = nnx.merge(graph, parameters), [], []
            for layer, of_place, step in zip(layers, caches, steps, strict=True):
                x, of_place = layer(x, of_place, number, step)
                longer.append(of_place)
                after.append(x)
            return (x, tuple(longer)), jnp.stack(after) if hidden_states else None

        start = self.embed_tokens[...][ids]
        order = jnp.arange(config.periods, dtype=jnp.int32)
        # Five layers per round: a fifth faster than one per round in decode, at equal compile time
        # within half a second; all at once takes 3 s to compile and gains nothing.
        unroll = max(1, 5 // len(steps))
        carry, after = jax.lax.scan(body, (start, cache.layers), (parameters, order), unroll=unroll)
        x, layers = carry
        between = None
        if after is not None:
            between = jnp.concatenate([start[None], after.reshape(-1, *start.shape)])
        return self.norm(x), replace(cache, layers=layers, length=cache.length + tokens), between

    def logits(self, x: jax.Array) -> jax.Array:
        """Score every token of the vocabulary.

        Args:
            x: ``[N, E]``, after the final norm.

        Returns:
            ``[N, V] float32``.
        """
        head = self.embed_tokens if self.lm_head is None else self.lm_head
        return x @ head[...].T


def _gather(
    keys: list[str | int],
    shape: tuple[int, ...],
    config: DecoderConfig,
    weights: Mapping[str, np.ndarray],
    unused: set[str],
) -> jax.Array:
    """Collect one parameter by its path; layers and experts are stacked in that order."""
    inner = shape
    if keys[0] == "layers":
        place, tail = int(keys[1]), ".".join(map(str, keys[2:]))
        layers = range(place, config.num_layers, len(config.attention))
        names, inner = [f"model.layers.{i}.{tail}" for i in layers], inner[1:]
    else:
        tail = ".".join(map(str, keys))
        names = [_TOP_LEVEL.get(tail, f"model.{tail}")]
    if "experts" in keys:
        numbers, inner = range(inner[0]), inner[1:]
        names = [n.replace(".experts.", f".experts.{j}.") for n in names for j in numbers]
    for name in names:
        if name not in unused:
            raise WaferError(f"no weights for the parameter {name}")
        if weights[name].shape != inner:
            raise WaferError(f"{name} has shape {weights[name].shape}, the model needs {inner}")
    unused.difference_update(names)
    if len(names) == 1 and inner == shape:
        return jnp.asarray(weights[names[0]], jnp.float32)
    return jnp.asarray(np.stack([weights[name] for name in names]).reshape(shape), jnp.float32)


_TOP_LEVEL = {"lm_head": "lm_head.weight", "embed_tokens": "model.embed_tokens.weight"}
