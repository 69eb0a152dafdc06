"""Typed, bounded attributes of a ``config.json``, by whitelist; every problem is collected.

Every attribute of a configuration is either handled, known to have no effect on inference, or
required to keep the one value that this implementation computes. Anything else is an error: an
attribute that is silently ignored is a model that is silently wrong.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

from wafer_jax.errors import WaferError
from wafer_jax.models.config import DecoderConfig, Llama3Scaling, RopeConfig, YarnScaling

# Bounds that no real model reaches; they keep a hostile file from asking for endless work.
MAX_SIZE = 1 << 20
MAX_LAYERS = 4096
MAX_VOCAB = 1 << 24
MAX_POSITIONS = 1 << 30
_MAX_SHOWN = 30

HANDLED = frozenset(
    """architectures model_type vocab_size hidden_size intermediate_size num_hidden_layers
    num_attention_heads num_key_value_heads head_dim rms_norm_eps rope_theta rope_scaling
    rope_parameters max_position_embeddings tie_word_embeddings bos_token_id eos_token_id""".split()
)

# Training, output format, sampling defaults and provenance: none changes the logits.
IGNORED = frozenset(
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
MUST_EQUAL: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "rope_interleaved": (False,),
    "partial_rotary_factor": (1,),
    "quantization_config": (),
    "auto_map": (),
    "is_decoder": (False,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "chunk_size_feed_forward": (0,),
    "pruned_heads": ({},),
}


class ConfigReader:
    """Reads typed attributes and collects every problem, so that one error lists them all."""

    def __init__(self, config: Mapping[str, Any]):
        self.config = config
        self.problems: list[str] = []

    def whitelist(
        self, handled: Collection[str], ignored: Collection[str], must_equal: Mapping[str, Any]
    ) -> None:
        """Refuse every attribute that is in none of the three, or has another value."""
        for name, value in self.config.items():
            if name in handled or name in ignored:
                continue
            if name not in must_equal:
                self.problems.append(f"unknown attribute {show(name)}={show(value)}")
                continue
            allowed = must_equal[name]
            # True == 1 and 0 == False in Python: compare the kind as well as the value.
            fits = any(
                value == a and isinstance(value, bool) == isinstance(a, bool) for a in allowed
            )
            if value is not None and not fits:
                needed = " or ".join(map(repr, allowed)) or "absent"
                self.problems.append(f"{name}={show(value)} is unsupported (must be {needed})")

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """An integer in ``low..high``; absent or null means the default, or is a problem."""
        value = self.config.get(name)
        if value is None:
            value = default
        if value is None:
            self.problems.append(f"{name} is missing")
        elif isinstance(value, bool) or not isinstance(value, int):
            self.problems.append(f"{name}={show(value)} must be an integer")
        elif not low <= value <= high:
            self.problems.append(f"{name}={show(value)} is outside {low}..{high}")
        else:
            return value
        return low  # a placeholder that lets the reader go on; finish() raises

    def number(self, name: str, low: float, high: float, default: float | None = None) -> float:
        """A number above ``low``, at most ``high``; absent or null as for ``integer``."""
        value = self.config.get(name)
        if value is None:
            value = default
        if value is None:
            self.problems.append(f"{name} is missing")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            self.problems.append(f"{name}={show(value)} must be a number")
        elif not low < value <= high:  # false for NaN too
            self.problems.append(f"{name}={show(value)} must be above {low:g}, at most {high:g}")
        else:
            return float(value)
        return high

    def boolean(self, name: str) -> bool:
        """True or false; absent or null means false."""
        value = self.config.get(name)
        if value is not None and not isinstance(value, bool):
            self.problems.append(f"{name}={show(value)} must be true or false")
        return value is True

    def token_ids(self, name: str, vocab: int, default: int | None) -> tuple[int, ...]:
        """Ids below ``vocab``; an absent attribute means the default, null means none."""
        if default is not None and default >= vocab:
            default = None
        value = self.config.get(name, default)
        values = value if isinstance(value, list | tuple) else () if value is None else (value,)
        for item in values:
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < vocab:
                self.problems.append(f"{name}={show(value)} must be ids below vocab_size={vocab}")
                return ()
        return tuple(values)

    def full_attention_everywhere(self, num_layers: int) -> None:
        """Refuse ``layer_types`` of anything but full attention, or of another number of layers."""
        value = self.config.get("layer_types")
        if value is None:
            return
        if not isinstance(value, list | tuple) or len(value) != num_layers:
            self.problems.append(f"layer_types={show(value)} must list {num_layers} layers")
        elif other := [kind for kind in value if kind != "full_attention"]:
            self.problems.append(
                f"layer_types has {show(other[0])}; only 'full_attention' is implemented here"
            )

    def layer_period(self, num_layers: int, kinds: Mapping[str, str]) -> tuple[str, ...]:
        """Read ``layer_types``, of which one shortest period is returned.

        Args:
            num_layers: how many there must be.
            kinds: names that are implemented, to kinds of attention; all of them in turns are the
                default.
        """
        value = self.config.get("layer_types")
        if value is None:
            value = [list(kinds)[i % len(kinds)] for i in range(num_layers)]
        if not isinstance(value, list | tuple) or len(value) != num_layers:
            self.problems.append(f"layer_types={show(value)} must list {num_layers} layers")
        elif other := [kind for kind in value if not isinstance(kind, str) or kind not in kinds]:
            names = " or ".join(map(repr, kinds))
            self.problems.append(f"layer_types has {show(other[0])}; implemented is {names}")
        else:
            lengths = (n for n in range(1, num_layers + 1) if num_layers % n == 0)
            length = next(n for n in lengths if value[n:] == value[:-n])
            return tuple(kinds[kind] for kind in value[:length])
        return tuple(kinds.values())

    def finish(self, where: str) -> None:
        """Raise what was collected.

        Raises:
            WaferError: listing every problem, or the first ones of very many.
        """
        if self.problems:
            rest = len(self.problems) - _MAX_SHOWN
            more = [f"and {rest:,} more"] if rest > 0 else []
            raise WaferError(f"{where}: {'; '.join(self.problems[:_MAX_SHOWN] + more)}")


def read_rotary_factor(read: ConfigReader, default: float = 1.0) -> float:
    """Part of a head that RoPE turns: ``partial_rotary_factor``, nested (transformers 5) or not.

    Families that know partial RoPE call this, and hand what it returns to `read_decoder`.
    """
    name = "partial_rotary_factor"
    outer, inner = read.config.get(name), None
    if isinstance(nested := _nested_rope(read)[1], Mapping):
        inner = nested.get(name)
    if None not in (outer, inner) and outer != inner:
        read.problems.append(f"{name}={show(outer)} and the nested {show(inner)} differ")
    source = ConfigReader({name: inner if outer is None else outer})
    factor = source.number(name, 0.0, 1.0, default=default)
    read.problems.extend(source.problems)
    return factor


def _nested_rope(read: ConfigReader) -> tuple[str, Any]:
    """Name and value of the attribute that holds RoPE's settings."""
    names = ("rope_parameters", "rope_scaling")
    given = [(n, read.config[n]) for n in names if read.config.get(n) is not None]
    return given[0] if given else (names[0], {})


def read_rope(read: ConfigReader, head_dim: int, rotary_factor: float = 1.0) -> RopeConfig:
    """Read ``rope_parameters`` (transformers 5), or ``rope_theta`` and ``rope_scaling`` (4).

    Args:
        read: the attributes; problems are added to it.
        head_dim: width of a head.
        rotary_factor: part of it that turns, see `read_rotary_factor`.
    """
    config, problems = read.config, read.problems
    name, nested = _nested_rope(read)
    other = config.get("rope_scaling")
    if name == "rope_parameters" and other is not None and other != nested:
        problems.append("rope_parameters and rope_scaling differ; keep one")
    if not isinstance(nested, Mapping):
        problems.append(f"{name}={show(nested)} must be an object")
        return RopeConfig()
    theta_source = ConfigReader({"rope_theta": nested.get("rope_theta", config.get("rope_theta"))})
    outer = config.get("rope_theta")
    if outer is not None and nested.get("rope_theta", outer) != outer:
        problems.append(f"rope_theta={show(outer)} and {name}.rope_theta differ")
    theta = theta_source.number("rope_theta", 0.0, 1e12, default=10000.0)
    problems.extend(theta_source.problems)

    kind = nested.get("rope_type", nested.get("type", "default"))
    inner = ConfigReader(nested)
    known = {"rope_type", "type", "rope_theta"}
    scaling = None
    if kind == "llama3":
        known |= {"factor", "low_freq_factor", "high_freq_factor"}
        scaling = _read_llama3(inner)
    elif kind == "yarn":
        known |= {"factor", "beta_fast", "beta_slow", "attention_factor", "truncate"}
        scaling = _read_yarn(inner)
        if theta <= 1:
            inner.problems.append("yarn needs a rope_theta above 1")
    elif kind != "default":
        inner.problems.append(
            f"rope_type={show(kind)} is unsupported ('default', 'llama3' or 'yarn')"
        )
        known |= set(nested)
    if scaling is not None:
        known.add("original_max_position_embeddings")
    if nested.get("partial_rotary_factor") in (None, rotary_factor):
        known.add("partial_rotary_factor")
    inner.problems.extend(
        f"unknown attribute {show(k)}={show(v)}" for k, v in nested.items() if k not in known
    )
    problems.extend(f"{name}: {problem}" for problem in inner.problems)
    rotary_dim = int(head_dim * rotary_factor)  # as transformers rounds it
    if rotary_dim == head_dim:
        return RopeConfig(theta, scaling)
    if rotary_dim < 2 or rotary_dim % 2:
        problems.append(f"RoPE turns {rotary_dim} elements of a head, not pairs of them")
    return RopeConfig(theta, scaling, rotary_dim)


def _read_llama3(read: ConfigReader) -> Llama3Scaling:
    scaling = Llama3Scaling(
        factor=read.number("factor", 0.0, 1e6),
        low_freq_factor=read.number("low_freq_factor", 0.0, 1e6),
        high_freq_factor=read.number("high_freq_factor", 0.0, 1e6),
        original_positions=read.integer("original_max_position_embeddings", 1, MAX_POSITIONS),
    )
    if not read.problems and scaling.high_freq_factor <= scaling.low_freq_factor:
        read.problems.append("high_freq_factor must be above low_freq_factor")
    return scaling


def _read_yarn(read: ConfigReader) -> YarnScaling:
    factor = read.number("factor", 0.0, 1e6)
    scaling = YarnScaling(
        factor=factor,
        beta_fast=read.number("beta_fast", 1e-6, 1e6, default=32.0),
        beta_slow=read.number("beta_slow", 1e-6, 1e6, default=1.0),
        original_positions=read.integer("original_max_position_embeddings", 1, MAX_POSITIONS),
        magnitude=read.number(
            "attention_factor", 0.0, 1e6, default=0.1 * math.log(max(factor, 1.0)) + 1
        ),
        whole_places=read.config.get("truncate") is None or read.boolean("truncate"),
    )
    if not read.problems and scaling.beta_fast <= scaling.beta_slow:
        read.problems.append("beta_fast must be above beta_slow")
    return scaling


def read_decoder(
    read: ConfigReader,
    *,
    max_positions: int,
    bos_token_id: int | None,
    eos_token_id: int | None,
    rotary_factor: float = 1.0,
) -> DecoderConfig:
    """Read what the families have in common.

    Args:
        read: the attributes; problems are added to it.
        max_positions: default of ``max_position_embeddings``.
        bos_token_id: default.
        eos_token_id: default.
        rotary_factor: part of a head that RoPE turns, see `read_rotary_factor`.

    Returns:
        A decoder without biases; meaningless if there are problems.
    """
    hidden = read.integer("hidden_size", 1, MAX_SIZE)
    heads = read.integer("num_attention_heads", 1, MAX_SIZE)
    kv_heads = read.integer("num_key_value_heads", 1, MAX_SIZE, default=heads)
    head_dim = read.integer("head_dim", 1, MAX_SIZE, default=hidden // heads)
    vocab = read.integer("vocab_size", 1, MAX_VOCAB)
    if heads % kv_heads:
        read.problems.append(
            f"num_attention_heads={heads} is not a multiple of num_key_value_heads={kv_heads}"
        )
    if read.config.get("head_dim") is None and hidden % heads:
        read.problems.append(
            f"hidden_size={hidden} is not a multiple of num_attention_heads={heads} "
            "and head_dim is not given"
        )
    elif head_dim % 2:
        read.problems.append(f"head_dim={head_dim} is odd, but RoPE rotates halves of a head")
    return DecoderConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=read.integer("intermediate_size", 1, MAX_SIZE),
        num_layers=read.integer("num_hidden_layers", 1, MAX_LAYERS),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=read.number("rms_norm_eps", 0.0, 1.0, default=1e-6),
        rope=read_rope(read, head_dim, rotary_factor),
        max_position_embeddings=read.integer(
            "max_position_embeddings", 1, MAX_POSITIONS, default=max_positions
        ),
        tie_embeddings=read.boolean("tie_word_embeddings"),
        bos_token_id=next(iter(read.token_ids("bos_token_id", vocab, bos_token_id)), None),
        eos_token_ids=read.token_ids("eos_token_id", vocab, eos_token_id),
    )


def show(value: Any) -> str:
    """``repr`` on one short line, safe for hostile values."""
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python prints
        text = "a very long integer"
    return text if len(text) <= 80 else text[:77] + "..."
