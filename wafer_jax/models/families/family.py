"""What a model family is: a ``model_type``, its attributes, and how they define a decoder."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.config_reader import ConfigReader
from wafer_jax.models.quantized.stored import Parameter

Found = Iterable[tuple[str, Parameter]]
"""Tensors of a checkpoint by name."""
Arrays = Mapping[str, np.ndarray]
"""The same, read."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One model family, as Hugging Face's ``config.json`` describes it.

    Attributes:
        model_type: its name there.
        architecture: its causal language model, the only one of its architectures that is read.
        read: from attributes to the decoder; adds what is wrong to ``ConfigReader.problems``.
        handled: attributes that ``read`` reads beyond those of all families.
        required: attributes whose default is not one that a reader of the file would guess.
        ignored: attributes that change nothing here, although they may in another family.
        internal: from a checkpoint's tensors to the model's parameters, where names differ or one
            tensor holds several of them.
        published: the other way round, for arrays.
        must_equal: attributes that would change the logits, with the values that are implemented.
        head_as_stored: whether a head that a checkpoint has is taken even if
            ``tie_word_embeddings`` says that it is the embedding.
    """

    model_type: str
    architecture: str
    read: Callable[[ConfigReader], DecoderConfig]
    handled: frozenset[str] = frozenset()
    required: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    must_equal: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    internal: Callable[[Found, DecoderConfig], Found] = lambda found, config: found
    published: Callable[[Arrays], Arrays] = lambda weights: weights
    head_as_stored: bool = False


@dataclass(frozen=True)
class Wrapper:
    """A model of which the language model is a part, described by ``text_config``.

    Attributes:
        model_type: its name in ``config.json``.
        architecture: the only one of its architectures that is read.
        text: family of the language model.
        ignored: attributes of the other parts.
    """

    model_type: str
    architecture: str
    text: Family
    ignored: frozenset[str]
