"""What defines a decoder, of whatever family.

A family differs from another one only in the values of these fields; `families` reads them.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from wafer_jax.arguments import shown
from wafer_jax.errors import WaferError
from wafer_jax.models.activations import ClampedSwiGLU, SwiGLU


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's stretching of the low RoPE frequencies.

    Source: ``_compute_llama3_parameters`` in transformers' ``modeling_rope_utils.py``.

    Attributes:
        factor: by how much wavelengths longer than ``original_positions / low_freq_factor``
            are stretched.
        low_freq_factor: where full stretching begins.
        high_freq_factor: where stretching ends; between the two it is interpolated.
        original_positions: context length of the pre-training, in tokens.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_positions: int

    magnitude = 1.0

    def stretch(self, inverse: np.ndarray, theta: float) -> np.ndarray:
        """Angles per position ``[D / 2]``, stretched."""
        turns = self.original_positions * inverse / (2 * np.pi)  # over the original context
        keep = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        keep = np.clip(keep, 0.0, 1.0)
        return keep * inverse + (1 - keep) * inverse / self.factor


@dataclass(frozen=True)
class YarnScaling:
    """YaRN's stretching (arXiv 2309.00071): by place in the series, and larger cosines and sines.

    Source: ``_compute_yarn_parameters`` in transformers' ``modeling_rope_utils.py``.

    Attributes:
        factor: by how much the longest wavelengths are stretched.
        beta_fast: turns over the original context above which nothing is stretched.
        beta_slow: turns below which everything is; between the two it is interpolated.
        original_positions: context length of the pre-training, in tokens.
        magnitude: factor of cosine and sine.
        whole_places: whether the ends of the interpolation are rounded to whole places.
    """

    factor: float
    beta_fast: float
    beta_slow: float
    original_positions: int
    magnitude: float
    whole_places: bool = True

    def stretch(self, inverse: np.ndarray, theta: float) -> np.ndarray:
        """Angles per position ``[D / 2]``, stretched."""
        pairs = len(inverse)
        place = lambda turns: (
            pairs * math.log(self.original_positions / (turns * 2 * math.pi)) / math.log(theta)
        )
        low, high = place(self.beta_fast), place(self.beta_slow)
        if self.whole_places:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * pairs - 1)
        high += 0.001 * (low == high)
        stretched = np.clip((np.arange(pairs) - low) / (high - low), 0.0, 1.0)
        return stretched * inverse / self.factor + (1 - stretched) * inverse


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding, in half-split order.

    The first R elements of a head turn, t together with t + R / 2; the others pass through.

    Attributes:
        theta: base of the geometric series of wavelengths.
        scaling: how wavelengths are stretched for a longer context, or None.
        rotary_dim: R, even, or None for the whole head.
    """

    theta: float = 10000.0
    scaling: Llama3Scaling | YarnScaling | None = None
    rotary_dim: int | None = None

    @property
    def magnitude(self) -> float:
        """Factor of cosine and sine."""
        return 1.0 if self.scaling is None else self.scaling.magnitude

    def turned(self, head_dim: int) -> int:
        """Elements R of a head of width D that turn."""
        return head_dim if self.rotary_dim is None else self.rotary_dim

    def inverse_frequencies(self, head_dim: int) -> np.ndarray:
        """Angle per position of every pair that turns.

        Args:
            head_dim: width D of a head, even.

        Returns:
            ``[R / 2] float64``, radians per token; descending.
        """
        turned = self.turned(head_dim)
        inverse = self.theta ** -(np.arange(0, turned, 2) / turned)
        return inverse if self.scaling is None else self.scaling.stretch(inverse, self.theta)


@dataclass(frozen=True)
class Experts:
    """Experts of which a router chooses a few for every token.

    Attributes:
        count: experts of a layer.
        chosen: how many of them a token uses.
        renormalise: whether the weights of the chosen ones are made to add up to 1.
        scoring: how the router's scores choose, a key of `routing.RULES`.
        router_bias: whether the router has a bias.
        shared_size: width of one more expert that every token uses, see `shared_experts`, or 0.
    """

    count: int
    chosen: int
    renormalise: bool = True
    scoring: str = "softmax"
    router_bias: bool = False
    shared_size: int = 0

    @property
    def corrected(self) -> bool:
        """Whether a learnt vector is added to the scores, for the choice only."""
        return self.scoring == "sigmoid"


@dataclass(frozen=True, kw_only=True)
class DeltaHeads:
    """Heads of gated DeltaNet, which keep a state of ``key_dim x value_dim`` each.

    Attributes:
        keys: key heads, each with the queries that go with it.
        values: value heads; consecutive ones share a key head.
        key_dim: width Dk of a key and of a query.
        value_dim: width Dv of a value.
        kernel: tokens that the causal convolution sees, the new one included.
    """

    keys: int
    values: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def per_key(self) -> int:
        """Value heads that share one key head."""
        return self.values // self.keys

    @property
    def keys_size(self) -> int:
        """Width of all keys together."""
        return self.keys * self.key_dim

    @property
    def values_size(self) -> int:
        """Width of all values together."""
        return self.values * self.value_dim


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """What defines a decoder; hashable, so that it can be static under ``jax.jit``.

    Attributes:
        family: Hugging Face's ``model_type``, a key of `families.FAMILIES`.
        vocab_size: rows of the embedding.
        hidden_size: width E of the residual stream.
        intermediate_size: width F of the feed-forward layer, or of one expert.
        num_layers: decoder layers.
        num_heads: query heads H.
        num_kv_heads: key and value heads; divides ``num_heads``.
        head_dim: width D of a head, even; need not be ``hidden_size / num_heads``.
        rms_norm_eps: added to the mean square in RMSNorm.
        norm_offset: added to the weights of norms: 1 where they are stored around zero.
        rope: rotary position embedding.
        max_position_embeddings: longest context in tokens.
        tie_embeddings: whether the output head is the embedding.
        qkv_bias: whether the q, k and v projections have a bias.
        out_bias: whether the o projection has one.
        qk_norm: RMSNorm of queries and keys before RoPE: "head", of every head by itself; "all", of
            all heads together; or None.
        attention: kinds of the attention layers, keys of `attention.KINDS`: one period, which
            repeats; ``num_layers`` is a multiple of its length.
        window: tokens that the kind "sliding" sees, the new one included, else None.
        sinks: whether every query head has a sink, one more logit of its softmax that no value
            belongs to.
        attention_gate: whether the output of every query head is scaled by the sigmoid of a gate,
            which the q projection makes beside the query.
        delta: heads of the kind "gated_delta", else None.
        feed_forward: kind of the feed-forward layers, a key of `feed_forward.KINDS`.
        ffn_bias: whether its projections have biases.
        activation: what joins its gate and up projections.
        experts: what the kind "experts" needs, else None.
        bos_token_id: id that starts a text, or None.
        eos_token_ids: ids that end a text.
    """

    family: str = "llama"
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    norm_offset: float = 0.0
    rope: RopeConfig = RopeConfig()
    max_position_embeddings: int = 2048
    tie_embeddings: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["head", "all"] | None = None
    attention: tuple[str, ...] = ("full",)
    window: int | None = None
    sinks: bool = False
    attention_gate: bool = False
    delta: DeltaHeads | None = None
    feed_forward: str = "swiglu"
    ffn_bias: bool = False
    activation: SwiGLU | ClampedSwiGLU = field(default_factory=SwiGLU)
    experts: Experts | None = None
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @property
    def periods(self) -> int:
        """How often the period of attention kinds repeats."""
        return self.num_layers // len(self.attention)

    @property
    def q_size(self) -> int:
        """Width of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key (or value) heads together."""
        return self.num_kv_heads * self.head_dim

    @property
    def queries_per_kv(self) -> int:
        """Query heads that share one key/value head."""
        return self.num_heads // self.num_kv_heads


def check_decoder(config: object) -> None:
    """Refuse what is no configuration, such as the name of a model.

    Raises:
      WaferError: It is none.
    """
    if not isinstance(config, DecoderConfig):
        raise WaferError(
            f"config={shown(config)}: give a DecoderConfig, such as "
            "wj.models.model_config('llama3-8b')"
        )
