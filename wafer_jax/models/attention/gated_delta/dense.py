"""Gated DeltaNet as the dense reference has it, token by token.

Axes: P layers of a stack, B sequences, T new tokens, w tokens of the convolution's tail, C channels
of q, k and v; heads Hk and Hv, widths Dk and Dv. Source: ``Qwen3_5GatedDeltaNet`` in transformers'
``modeling_qwen3_5.py``.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from wafer_jax.models.attention.gated_delta import rule
from wafer_jax.models.config import DecoderConfig, DeltaHeads
from wafer_jax.models.dense_layers import Linear, RMSNorm, normal


def heads_of(config: DecoderConfig) -> DeltaHeads:
    """The heads of a model that has this kind."""
    assert config.delta is not None
    return config.delta


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class DeltaCache:
    """What is kept of the tokens so far, for any number of them.

    Attributes:
      state: [P, B, Hv, Dk, Dv] float32, or on the mesh [P, m, r, dk, dvy, Y, X].
      tail: [P, B, w, C] float32, or [P, w, ch, X]: the last tokens' q, k and v, not yet convolved.
    """

    state: jax.Array
    tail: jax.Array

    capacity = None

    def of(self, layer: jax.Array) -> tuple[jax.Array, jax.Array]:
        """One layer's state and tail."""
        take = lambda a: lax.dynamic_index_in_dim(a, layer, keepdims=False)
        return take(self.state), take(self.tail)

    def put(self, state: jax.Array, tail: jax.Array, layer: jax.Array) -> "DeltaCache":
        """Write one layer's."""
        write = lambda all_, new: lax.dynamic_update_index_in_dim(all_, new, layer, 0)
        return replace(self, state=write(self.state, state), tail=write(self.tail, tail))


def parameter_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter by its name below ``linear_attn.``."""
    E, heads = config.hidden_size, heads_of(config)
    channels = 2 * heads.keys_size + heads.values_size
    return {
        "in_proj_qkv.weight": (channels, E),
        "in_proj_z.weight": (heads.values_size, E),
        "in_proj_b.weight": (heads.values, E),
        "in_proj_a.weight": (heads.values, E),
        "conv1d.weight": (channels, 1, heads.kernel),
        "A_log": (heads.values,),
        "dt_bias": (heads.values,),
        "norm.weight": (heads.value_dim,),
        "out_proj.weight": (E, heads.values_size),
    }


class Convolution(nnx.Module):
    """Depthwise, causal, without bias: ``weight [C, 1, w + 1]``."""

    def __init__(self, channels: int, kernel: int, *, rngs: nnx.Rngs):
        self.weight = nnx.Param(normal(rngs, (channels, 1, kernel)))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Convolve ``[B, w + T, C]``, the first w tokens being the tail, to ``[B, T, C]``."""
        kernel = self.weight.shape[-1]
        tokens = x.shape[1] - kernel + 1
        taps = (self.weight[...][None, None, :, 0, i] * x[:, i : i + tokens] for i in range(kernel))
        return sum(taps, jnp.zeros((), x.dtype))


class Dense(nnx.Module):
    """The dense reference, token by token; its attributes carry Hugging Face's names."""

    def __init__(self, config: DecoderConfig, *, rngs: nnx.Rngs):
        E, self.heads = config.hidden_size, heads_of(config)
        shapes = parameter_shapes(config)
        linear = lambda name: Linear(E, shapes[f"{name}.weight"][0], rngs=rngs)
        self.in_proj_qkv, self.in_proj_z = linear("in_proj_qkv"), linear("in_proj_z")
        self.in_proj_b, self.in_proj_a = linear("in_proj_b"), linear("in_proj_a")
        channels, _, kernel = shapes["conv1d.weight"]
        self.conv1d = Convolution(channels, kernel, rngs=rngs)
        self.A_log = nnx.Param(normal(rngs, shapes["A_log"]))
        self.dt_bias = nnx.Param(normal(rngs, shapes["dt_bias"]))
        self.norm = RMSNorm(self.heads.value_dim, config.rms_norm_eps)
        self.out_proj = Linear(self.heads.values_size, E, rngs=rngs)

    def __call__(
        self, x: jax.Array, cache: DeltaCache, layer: jax.Array, step: None
    ) -> tuple[jax.Array, DeltaCache]:
        """Read and update the state with every token.

        Args:
            x: ``[B, T, E]``, normalised.
            cache: of the stack of layers.
            layer: ``[] int32``, number in the stack.
            step: nothing, since the state knows all of the position that is needed.

        Returns:
            ``[B, T, E]``, and the cache with the new tokens.
        """
        batch, tokens, _ = x.shape
        heads = self.heads
        state, tail = cache.of(layer)
        projected = jnp.concatenate([tail, self.in_proj_qkv(x)], axis=1)
        mixed = jax.nn.silu(self.conv1d(projected))
        ends = (heads.keys_size, 2 * heads.keys_size)
        q, k, v = (
            t.reshape(batch, tokens, n, -1)
            for t, n in zip(
                jnp.split(mixed, ends, axis=-1), (heads.keys, heads.keys, heads.values), strict=True
            )
        )
        length = lambda x: jnp.sum(x * x, axis=-1, keepdims=True)
        q, k = (rule.normalised(x, length(x)) for x in (q, k))
        q, k = (jnp.repeat(x, heads.per_key, axis=2) for x in (q * heads.key_dim**-0.5, k))
        vector = lambda p: p[...][None, None]
        decay = rule.log_decay(self.in_proj_a(x), vector(self.A_log), vector(self.dt_bias))
        beta = jax.nn.sigmoid(self.in_proj_b(x))
        first = (t.swapaxes(0, 1) for t in (q, k, v, decay, beta))  # tokens first
        state, out = rule.recurrent(state, *first)
        z = self.in_proj_z(x).reshape(batch, tokens, heads.values, -1)
        out = self.norm(out.swapaxes(0, 1)) * jax.nn.silu(z)
        tail = projected[:, tokens:]
        return self.out_proj(out.reshape(batch, tokens, -1)), cache.put(state, tail, layer)


def dense_cache(config: DecoderConfig, batch: int, capacity: int) -> DeltaCache:
    """An empty cache; it has room for any number of tokens."""
    heads = heads_of(config)
    channels = 2 * heads.keys_size + heads.values_size
    state = (config.periods, batch, heads.values, heads.key_dim, heads.value_dim)
    tail = (config.periods, batch, heads.kernel - 1, channels)
    return DeltaCache(state=jnp.zeros(state, jnp.float32), tail=jnp.zeros(tail, jnp.float32))


def dense_step(config: DecoderConfig, length: jax.Array, tokens: int) -> None:
    """Nothing of the position is needed."""
