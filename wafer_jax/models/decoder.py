"""The decoder of every family as dense ``flax.nnx`` modules: the reference for the mesh.

Axis letters: B sequences, T new tokens, S cache positions, L layers, E hidden width, H query heads,
K key/value heads, G = H / K, D head width, R of it that RoPE turns, V vocabulary.

Layers are stacked along a leading axis and scanned, which compiles in the time of one layer.

Source of the arithmetic: the families' modelling files in transformers; RMSNorm, softmax and all
sums are in float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from wafer_jax.errors import WaferError
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.dense_layers import Linear, RMSNorm, normal
from wafer_jax.models.feed_forward import kind_of


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class KVCache:
    """Keys and values of the tokens seen so far.

    Attributes:
        keys: ``[L, B, K, S, D] float32``, after RoPE; positions from ``length`` on are unused.
        values: ``[L, B, K, S, D] float32``.
        length: ``[] int32``, tokens held, the same for every sequence.
    """

    keys: jax.Array
    values: jax.Array
    length: jax.Array

    @classmethod
    def create(cls, config: DecoderConfig, *, batch: int, capacity: int) -> "KVCache":
        """Make an empty cache.

        Args:
            config: the model.
            batch: sequences B.
            capacity: positions S.

        Returns:
            The cache, zeros.
        """
        shape = (config.num_layers, batch, config.num_kv_heads, capacity, config.head_dim)
        return cls(
            keys=jnp.zeros(shape, jnp.float32),
            values=jnp.zeros(shape, jnp.float32),
            length=jnp.zeros((), jnp.int32),
        )

    @property
    def capacity(self) -> int:
        """Positions S."""
        return self.keys.shape[3]


class Attention(nnx.Module):
    """Causal attention with K key/value heads shared by groups of G query heads."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        c, bias = config, config.qkv_bias
        self.q_proj = Linear(c.hidden_size, c.q_size, use_bias=bias, rngs=rngs)
        self.k_proj = Linear(c.hidden_size, c.kv_size, use_bias=bias, rngs=rngs)
        self.v_proj = Linear(c.hidden_size, c.kv_size, use_bias=bias, rngs=rngs)
        self.o_proj = Linear(c.q_size, c.hidden_size, use_bias=c.out_bias, rngs=rngs)
        self.q_norm = RMSNorm(c.head_dim, c.rms_norm_eps) if c.qk_norm else None
        self.k_norm = RMSNorm(c.head_dim, c.rms_norm_eps) if c.qk_norm else None
        self.head_dim = c.head_dim

    def __call__(
        self, x: jax.Array, cache: KVCache, layer: jax.Array, rope: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, KVCache]:
        """Attend to the cache and to the new tokens themselves.

        Args:
            x: ``[B, T, E]``, normalised.
            cache: holds ``length`` earlier tokens.
            layer: ``[] int32``, which layer of the cache is this one's.
            rope: cosine and sine of the new positions, ``[T, R]`` each.

        Returns:
            ``[B, T, E]``, and the cache with the new tokens written (``length`` unchanged).
        """
        batch, tokens, _ = x.shape
        q, k, v = (
            proj(x).reshape(batch, tokens, -1, self.head_dim).swapaxes(1, 2)  # [B, heads, T, D]
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, *rope), rotate(k, *rope)
        cache = _write(cache, k, v, layer)
        keys, values = cache.keys[layer], cache.values[layer]  # [B, K, S, D]
        kv_heads, positions = keys.shape[1:3]

        # Query head h uses key/value head h // G: consecutive heads form a group.
        q = q.reshape(batch, kv_heads, -1, self.head_dim)  # [B, K, G * T, D]
        scores = (q @ keys.swapaxes(-1, -2)) * self.head_dim**-0.5
        scores = scores.reshape(batch, kv_heads, -1, tokens, positions)
        position = cache.length + jnp.arange(tokens, dtype=jnp.int32)
        seen = jnp.arange(positions, dtype=jnp.int32)[None, :] <= position[:, None]  # [T, S]
        scores = jnp.where(seen[None, None, None], scores, -jnp.inf)
        weights = jax.nn.softmax(scores, axis=-1).reshape(batch, kv_heads, -1, positions)
        mixed = (weights @ values).reshape(batch, -1, tokens, self.head_dim)  # [B, H, T, D]
        return self.o_proj(mixed.swapaxes(1, 2).reshape(batch, tokens, -1)), cache


class DecoderLayer(nnx.Module):
    """One pre-norm residual block; its attributes carry Hugging Face's names."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, rngs=rngs)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = kind_of(config).Dense(config, rngs=rngs)

    def __call__(
        self, x: jax.Array, cache: KVCache, layer: jax.Array, rope: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, KVCache]:
        """Transform ``[B, T, E]``; arguments as for ``Attention``."""
        attended, cache = self.self_attn(self.input_layernorm(x), cache, layer, rope)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), cache


class Decoder(nnx.Module):
    """The whole decoder.

    Attributes:
        config: what defines it.
        embed_tokens: ``[V, E]``.
        layers: one ``DecoderLayer`` whose parameters have a leading axis L.
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
        make = lambda keys: DecoderLayer(config, rngs=keys)
        self.layers = nnx.vmap(make)(rngs.split(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
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
            keys = [str(k.key) for k in path if isinstance(k, jax.tree_util.DictKey)]
            leaves.append(_gather(keys, leaf.shape, weights, unused))
        if unused:
            raise WaferError(f"weights that no parameter takes: {sorted(unused)[:4]}")
        return nnx.merge(graph, jax.tree.unflatten(jax.tree.structure(abstract), leaves))

    def __call__(
        self, ids: jax.Array, cache: KVCache, *, hidden_states: bool = False
    ) -> tuple[jax.Array, KVCache, jax.Array | None]:
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
        tokens = ids.shape[1]
        rope = _rope_table(self.config, cache.length + jnp.arange(tokens, dtype=jnp.int32))
        graph, parameters = nnx.split(self.layers)

        def body(carry: tuple[jax.Array, KVCache], step: tuple[Any, jax.Array]):
            x, cache = carry
            layer_parameters, index = step
            x, cache = nnx.merge(graph, layer_parameters)(x, cache, index, rope)
            return (x, cache), x if hidden_states else None

        start = self.embed_tokens[...][ids]
        order = jnp.arange(self.config.num_layers, dtype=jnp.int32)
        # Five layers per round: a fifth faster than one per round in decode, at equal compile time
        # within half a second; all at once takes 3 s to compile and gains nothing.
        (x, cache), after = jax.lax.scan(body, (start, cache), (parameters, order), unroll=5)
        between = None if after is None else jnp.concatenate([start[None], after])
        cache = KVCache(keys=cache.keys, values=cache.values, length=cache.length + tokens)
        return self.norm(x), cache, between

    def logits(self, x: jax.Array) -> jax.Array:
        """Score every token of the vocabulary.

        Args:
            x: ``[N, E]``, after the final norm.

        Returns:
            ``[N, V] float32``.
        """
        head = self.embed_tokens if self.lm_head is None else self.lm_head
        return x @ head[...].T


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Apply rotary position embedding: element t turns with ``t + R / 2``, from R on none does.

    Args:
        x: ``[B, heads, T, D]``.
        cos: ``[T, R]``.
        sin: ``[T, R]``.

    Returns:
        ``[B, heads, T, D]``.
    """
    x, passing = jnp.split(x, [cos.shape[-1]], axis=-1)
    first, second = jnp.split(x, 2, axis=-1)
    turned = jnp.concatenate([-second, first], axis=-1)
    x = x * cos[None, None] + turned * sin[None, None]
    return jnp.concatenate([x, passing], axis=-1)


def _rope_table(config: DecoderConfig, position: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine ``[T, R]`` of positions ``[T] int32``, both halves alike."""
    inverse = jnp.asarray(config.rope.inverse_frequencies(config.head_dim), jnp.float32)
    angle = position.astype(jnp.float32)[:, None] * inverse[None, :]
    angle = jnp.concatenate([angle, angle], axis=-1)
    return jnp.cos(angle) * config.rope.magnitude, jnp.sin(angle) * config.rope.magnitude


def _write(cache: KVCache, k: jax.Array, v: jax.Array, layer: jax.Array) -> KVCache:
    """Put ``[B, K, T, D]`` at ``[layer, :, :, length:length + T]``; in place under jit."""
    zero = jnp.zeros((), jnp.int32)
    at = (layer, zero, zero, cache.length, zero)
    return KVCache(
        keys=jax.lax.dynamic_update_slice(cache.keys, k[None], at),
        values=jax.lax.dynamic_update_slice(cache.values, v[None], at),
        length=cache.length,
    )


def _gather(
    keys: list[str], shape: tuple[int, ...], weights: Mapping[str, np.ndarray], unused: set[str]
) -> jax.Array:
    """Collect one parameter by its path; layers and experts are stacked in that order."""
    tail = ".".join(keys)
    names = [_TOP_LEVEL.get(tail, f"model.{tail}")]
    inner = shape
    for stacked in (key for key in keys if key in ("layers", "experts")):
        one = f".{stacked}."
        names = [n.replace(one, f"{one}{i}.") for n in names for i in range(inner[0])]
        inner = inner[1:]
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
