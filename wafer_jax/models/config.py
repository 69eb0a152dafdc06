"""The configuration of a Llama-family model, read from Hugging Face's ``config.json`` by whitelist.

Every attribute of a configuration is either handled, known to have no effect on inference, or
required to keep the one value that this implementation computes. Anything else is an error: an
attribute that is silently ignored is a model that is silently wrong.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from wafer_jax.errors import WaferError

# Bounds that no real model reaches; they keep a hostile file from asking for endless work.
MAX_SIZE = 1 << 20
MAX_LAYERS = 4096
MAX_VOCAB = 1 << 24
MAX_POSITIONS = 1 << 30


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


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding over the whole head, in half-split order.

    Attributes:
        theta: base of the geometric series of wavelengths.
        scaling: Llama 3.1's stretching, or None.
    """

    theta: float = 10000.0
    scaling: Llama3Scaling | None = None

    def inverse_frequencies(self, head_dim: int) -> np.ndarray:
        """Angle per position of every rotated pair.

        Args:
            head_dim: width D of a head, even.

        Returns:
            ``[D / 2] float64``, radians per token; descending.
        """
        inverse = self.theta ** -(np.arange(0, head_dim, 2) / head_dim)
        if self.scaling is None:
            return inverse
        s = self.scaling
        turns = s.original_positions * inverse / (2 * np.pi)  # over the original context
        keep = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)
        keep = np.clip(keep, 0.0, 1.0)
        return keep * inverse + (1 - keep) * inverse / s.factor


@dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    """What defines a Llama-family decoder; hashable, so that it can be static under ``jax.jit``.

    Attributes:
        vocab_size: rows of the embedding.
        hidden_size: width E of the residual stream.
        intermediate_size: width F of the SwiGLU layer.
        num_layers: decoder layers.
        num_heads: query heads H.
        num_kv_heads: key and value heads; divides ``num_heads``.
        head_dim: width D of a head, even; need not be ``hidden_size / num_heads``.
        rms_norm_eps: added to the mean square in RMSNorm.
        rope: rotary position embedding.
        max_position_embeddings: longest context in tokens.
        tie_embeddings: whether the output head is the embedding.
        attention_bias: whether the q, k, v and o projections have a bias.
        bos_token_id: id that starts a text, or None.
        eos_token_ids: ids that end a text.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-6
    rope: RopeConfig = RopeConfig()
    max_position_embeddings: int = 2048
    tie_embeddings: bool = False
    attention_bias: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

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

    @property
    def num_parameters(self) -> int:
        """Parameters, a tied head counted once."""
        return sum(math.prod(shape) for shape in parameter_shapes(self).values())

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], *, where: str = "config.json") -> "LlamaConfig":
        """Read a configuration as Hugging Face writes it, of transformers 4 or 5.

        Args:
            config: the parsed ``config.json``, or ``PretrainedConfig.to_dict()``.
            where: what to call the source in an error.

        Returns:
            The validated configuration.

        Raises:
            WaferError: unsupported architecture, or any attribute that is unknown, unsupported,
                of the wrong type or out of range; the line lists all of them.
        """
        if not isinstance(config, Mapping):
            raise WaferError(f"{where}: expected a JSON object, not {_show(config)}")
        _check_architecture(config, where)
        read = _Reader(config)
        read.whitelist()
        hidden = read.integer("hidden_size", 1, MAX_SIZE)
        heads = read.integer("num_attention_heads", 1, MAX_SIZE)
        kv_heads = read.integer("num_key_value_heads", 1, MAX_SIZE, default=heads)
        head_dim = read.integer("head_dim", 1, MAX_SIZE, default=hidden // heads)
        vocab = read.integer("vocab_size", 1, MAX_VOCAB)
        if heads % kv_heads:
            read.problems.append(
                f"num_attention_heads={heads} is not a multiple of num_key_value_heads={kv_heads}"
            )
        if config.get("head_dim") is None and hidden % heads:
            read.problems.append(
                f"hidden_size={hidden} is not a multiple of num_attention_heads={heads} "
                "and head_dim is not given"
            )
        elif head_dim % 2:
            read.problems.append(f"head_dim={head_dim} is odd, but RoPE rotates halves of a head")
        result = cls(
            vocab_size=vocab,
            hidden_size=hidden,
            intermediate_size=read.integer("intermediate_size", 1, MAX_SIZE),
            num_layers=read.integer("num_hidden_layers", 1, MAX_LAYERS),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            rms_norm_eps=read.number("rms_norm_eps", 0.0, 1.0, default=1e-6),
            rope=_read_rope(read),
            max_position_embeddings=read.integer(
                "max_position_embeddings", 1, MAX_POSITIONS, default=2048
            ),
            tie_embeddings=read.boolean("tie_word_embeddings"),
            attention_bias=read.boolean("attention_bias"),
            bos_token_id=next(iter(read.token_ids("bos_token_id", vocab, default=1)), None),
            eos_token_ids=read.token_ids("eos_token_id", vocab, default=2),
        )
        read.finish(where)
        return result


def parameter_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """List every parameter by its Hugging Face name, with its shape in that layout.

    Args:
        config: the model.

    Returns:
        Name to shape; projections are ``[out, in]``. A tied head has no entry of its own.
    """
    E, F = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, E)}
    for i in range(config.num_layers):
        layer = f"model.layers.{i}."
        shapes[layer + "input_layernorm.weight"] = (E,)
        attention = {
            "q": (config.q_size, E),
            "k": (config.kv_size, E),
            "v": (config.kv_size, E),
            "o": (E, config.q_size),
        }
        for name, shape in attention.items():
            shapes[f"{layer}self_attn.{name}_proj.weight"] = shape
            if config.attention_bias:
                shapes[f"{layer}self_attn.{name}_proj.bias"] = shape[:1]
        shapes[layer + "post_attention_layernorm.weight"] = (E,)
        shapes[layer + "mlp.gate_proj.weight"] = (F, E)
        shapes[layer + "mlp.up_proj.weight"] = (F, E)
        shapes[layer + "mlp.down_proj.weight"] = (E, F)
    shapes["model.norm.weight"] = (E,)
    if not config.tie_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, E)
    return shapes


_HANDLED = frozenset(
    """architectures model_type vocab_size hidden_size intermediate_size num_hidden_layers
    num_attention_heads num_key_value_heads head_dim rms_norm_eps rope_theta rope_scaling
    rope_parameters max_position_embeddings tie_word_embeddings attention_bias bos_token_id
    eos_token_id""".split()
)

# Training, output format, sampling defaults and provenance: none changes the logits.
_IGNORED = frozenset(
    """_attn_implementation _attn_implementation_autoset _name_or_path attention_dropout
    bad_words_ids begin_suppress_tokens cross_attention_hidden_size decoder_start_token_id
    diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id
    id2label initializer_range is_llama_config label2id length_penalty max_length min_length
    no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_attentions
    output_hidden_states output_scores pad_token_id prefix pretraining_tp problem_type
    remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id
    suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder
    tokenizer_class top_k top_p torch_dtype torchscript transformers.js_config
    transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16 use_cache""".split()
)

# Attributes that would change the logits; only these values are implemented. None is allowed too.
_MUST_EQUAL: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "mlp_bias": (False,),
    "rope_interleaved": (False,),
    "partial_rotary_factor": (1,),
    "sliding_window": (),
    "use_sliding_window": (False,),
    "quantization_config": (),
    "auto_map": (),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "chunk_size_feed_forward": (0,),
    "pruned_heads": ({},),
}


def _check_architecture(config: Mapping[str, Any], where: str) -> None:
    model_type = config.get("model_type")
    if model_type != "llama":
        raise WaferError(
            f"{where}: model_type {_show(model_type)} is not supported; only 'llama' is"
        )
    if config.get("architectures") not in (None, ["LlamaForCausalLM"], ("LlamaForCausalLM",)):
        raise WaferError(
            f"{where}: architectures {_show(config['architectures'])} is not supported; "
            "only ['LlamaForCausalLM'] is"
        )


class _Reader:
    """Reads typed attributes and collects every problem, so that one error lists them all."""

    def __init__(self, config: Mapping[str, Any]):
        self.config = config
        self.problems: list[str] = []

    def whitelist(self) -> None:
        for name, value in self.config.items():
            if name in _MUST_EQUAL:
                allowed = _MUST_EQUAL[name]
                # True == 1 and 0 == False in Python: compare the kind as well as the value.
                fits = any(
                    value == a and isinstance(value, bool) == isinstance(a, bool) for a in allowed
                )
                if value is not None and not fits:
                    needed = " or ".join(map(repr, allowed)) or "absent"
                    self.problems.append(f"{name}={_show(value)} is unsupported (must be {needed})")
            elif name not in _HANDLED and name not in _IGNORED:
                self.problems.append(f"unknown attribute {_show(name)}={_show(value)}")

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        value = self.config.get(name)
        if value is None:
            value = default
        if value is None:
            self.problems.append(f"{name} is missing")
        elif isinstance(value, bool) or not isinstance(value, int):
            self.problems.append(f"{name}={_show(value)} must be an integer")
        elif not low <= value <= high:
            self.problems.append(f"{name}={_show(value)} is outside {low}..{high}")
        else:
            return value
        return low  # a placeholder that lets the reader go on; finish() raises

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        value = self.config.get(name)
        if value is None:
            value = default
        if value is None:
            self.problems.append(f"{name} is missing")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            self.problems.append(f"{name}={_show(value)} must be a number")
        elif not low < value <= high:  # false for NaN too
            self.problems.append(f"{name}={_show(value)} must be above {low:g}, at most {high:g}")
        else:
            return float(value)
        return high

    def boolean(self, name: str) -> bool:
        value = self.config.get(name)
        if value is not None and not isinstance(value, bool):
            self.problems.append(f"{name}={_show(value)} must be true or false")
        return value is True

    def token_ids(self, name: str, vocab: int, default: int) -> tuple[int, ...]:
        value = self.config.get(name, default if default < vocab else None)
        values = value if isinstance(value, list | tuple) else () if value is None else (value,)
        for item in values:
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < vocab:
                self.problems.append(f"{name}={_show(value)} must be ids below vocab_size={vocab}")
                return ()
        return tuple(values)

    def finish(self, where: str) -> None:
        if self.problems:
            raise WaferError(f"{where}: {'; '.join(self.problems)}")


def _read_rope(read: _Reader) -> RopeConfig:
    """RoPE from ``rope_parameters`` (transformers 5) or ``rope_theta`` and ``rope_scaling`` (4)."""
    config, problems = read.config, read.problems
    given = [n for n in ("rope_parameters", "rope_scaling") if config.get(n) is not None]
    if len(given) == 2 and config["rope_parameters"] != config["rope_scaling"]:
        problems.append("rope_parameters and rope_scaling differ; keep one")
    name = given[0] if given else "rope_parameters"
    nested = config[name] if given else {}
    if not isinstance(nested, Mapping):
        problems.append(f"{name}={_show(nested)} must be an object")
        return RopeConfig()
    theta_source = _Reader({"rope_theta": nested.get("rope_theta", config.get("rope_theta"))})
    outer = config.get("rope_theta")
    if outer is not None and nested.get("rope_theta", outer) != outer:
        problems.append(f"rope_theta={_show(outer)} and {name}.rope_theta differ")
    theta = theta_source.number("rope_theta", 0.0, 1e12, default=10000.0)
    problems.extend(theta_source.problems)

    kind = nested.get("rope_type", nested.get("type", "default"))
    inner = _Reader(nested)
    known = {"rope_type", "type", "rope_theta"}
    scaling = None
    if kind == "llama3":
        known |= {"factor", "low_freq_factor", "high_freq_factor"}
        known |= {"original_max_position_embeddings"}
        scaling = Llama3Scaling(
            factor=inner.number("factor", 0.0, 1e6),
            low_freq_factor=inner.number("low_freq_factor", 0.0, 1e6),
            high_freq_factor=inner.number("high_freq_factor", 0.0, 1e6),
            original_positions=inner.integer("original_max_position_embeddings", 1, MAX_POSITIONS),
        )
        if not inner.problems and scaling.high_freq_factor <= scaling.low_freq_factor:
            inner.problems.append("high_freq_factor must be above low_freq_factor")
    elif kind != "default":
        inner.problems.append(f"rope_type={_show(kind)} is unsupported ('default' or 'llama3')")
        known |= set(nested)
    if nested.get("partial_rotary_factor") in (None, 1) and kind in ("default", "llama3"):
        known.add("partial_rotary_factor")
    inner.problems.extend(
        f"unknown attribute {_show(k)}={_show(v)}" for k, v in nested.items() if k not in known
    )
    problems.extend(f"{name}: {problem}" for problem in inner.problems)
    return RopeConfig(theta=theta, scaling=scaling)


def _show(value: Any) -> str:
    """``repr`` on one short line, safe for hostile values."""
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python prints
        text = "a very long integer"
    return text if len(text) <= 80 else text[:77] + "..."
