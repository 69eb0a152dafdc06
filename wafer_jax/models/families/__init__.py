"""The model families, one file each; a new one is added to ``FAMILIES``."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wafer_jax.errors import WaferError
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.config_reader import HANDLED, IGNORED, MUST_EQUAL, ConfigReader, show
from wafer_jax.models.families.family import Family, Wrapper
from wafer_jax.models.families.gpt_oss import GPT_OSS
from wafer_jax.models.families.llama import LLAMA
from wafer_jax.models.families.minimax_m2 import MINIMAX_M2
from wafer_jax.models.families.qwen2 import QWEN2
from wafer_jax.models.families.qwen3 import QWEN3
from wafer_jax.models.families.qwen3_5 import (
    QWEN3_5,
    QWEN3_5_MOE,
    QWEN3_5_MOE_WRAPPER,
    QWEN3_5_WRAPPER,
)
from wafer_jax.models.families.qwen3_moe import QWEN3_MOE

FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (LLAMA, QWEN2, QWEN3, QWEN3_MOE, QWEN3_5, QWEN3_5_MOE, GPT_OSS, MINIMAX_M2)
}
"""By Hugging Face's ``model_type``."""

WRAPPERS: dict[str, Wrapper] = {
    wrapper.model_type: wrapper for wrapper in (QWEN3_5_WRAPPER, QWEN3_5_MOE_WRAPPER)
}
"""Models around a language model of one of the families, likewise."""


def read_config(config: Mapping[str, Any], *, where: str = "config.json") -> DecoderConfig:
    """Read a configuration as Hugging Face writes it, of transformers 4 or 5.

    Args:
        config: the parsed ``config.json``, or ``PretrainedConfig.to_dict()``.
        where: what to call the source in an error.

    Returns:
        The validated configuration.

    Raises:
        WaferError: unsupported family, or any attribute that is unknown, unsupported, of the
            wrong type or out of range; the line lists all of them.
    """
    if not isinstance(config, Mapping):
        raise WaferError(f"{where}: expected a JSON object, not {show(config)}")
    kind = _kind(config, where)
    if isinstance(kind, Wrapper):
        return read_config(_text_config(config, kind, where), where=f"{where}: text_config")
    family = kind
    read = ConfigReader(config)
    read.whitelist(
        HANDLED | family.handled, IGNORED | family.ignored, {**MUST_EQUAL, **family.must_equal}
    )
    for name in family.required:
        if config.get(name) is None:
            read.problems.append(f"{name} is missing")
    decoder = replace(family.read(read), family=family.model_type)
    read.finish(where)
    return decoder


def _text_config(config: Mapping[str, Any], wrapper: Wrapper, where: str) -> Mapping[str, Any]:
    """The attributes of the language model inside."""
    read = ConfigReader(config)
    handled = {"architectures", "model_type", "text_config", "tie_word_embeddings"}
    read.whitelist(handled, IGNORED | wrapper.ignored, {"quantization_config": ()})
    text = config.get("text_config")
    if not isinstance(text, Mapping) or text.get("model_type") != wrapper.text.model_type:
        read.problems.append(f"text_config must be one of model_type {wrapper.text.model_type!r}")
    read.finish(where)
    assert isinstance(text, Mapping)
    tied = (level.get("tie_word_embeddings") for level in (text, config))
    return {**text, "tie_word_embeddings": next(filter(None, tied), False)}  # either may say so


def _kind(config: Mapping[str, Any], where: str) -> Family | Wrapper:
    known: dict[str, Family | Wrapper] = {**FAMILIES, **WRAPPERS}
    model_type = config.get("model_type")
    kind = known.get(model_type) if isinstance(model_type, str) else None
    if kind is None:
        raise WaferError(
            f"{where}: model_type {show(model_type)} is not supported; "
            f"supported are {', '.join(known)}"
        )
    architectures = config.get("architectures")
    if architectures not in (None, [kind.architecture], (kind.architecture,)):
        raise WaferError(
            f"{where}: architectures {show(architectures)} is not supported; "
            f"only [{kind.architecture!r}] is"
        )
    return kind
