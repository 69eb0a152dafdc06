"""The rules for every source of weights: each parameter set once, each tensor accounted for."""

import re
from collections.abc import Iterable

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.parameters import parameter_shapes

# Buffers that old exports carry; they are recomputed from the configuration.
_RECOMPUTED = re.compile(r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


def is_ignored(name: str) -> bool:
    """Say whether a tensor of a checkpoint is known to hold no parameter.

    Args:
        name: its Hugging Face name.

    Returns:
        True for RoPE's inverse frequencies, which the configuration defines.
    """
    return _RECOMPUTED.fullmatch(name) is not None


def check_tensors(
    found: Iterable[tuple[str, tuple[int, ...]]], config: DecoderConfig, *, where: str
) -> None:
    """Check names and shapes against the configuration, before any value is read.

    Args:
        found: name and shape of every tensor of the checkpoint, ignored ones left out.
        config: the model.
        where: the file or folder, for the error.

    Raises:
        WaferError: a parameter is missing or given twice, a tensor belongs to none, or a shape
            is wrong.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in found:
        if name in shapes:
            raise WaferError(f"{where}: tensor {name!r} is given twice")
        shapes[name] = shape
    expected = parameter_shapes(config)
    if missing := [name for name in expected if name not in shapes]:
        hint = ""
        if missing == ["lm_head.weight"]:
            hint = " (if the head is the embedding, set tie_word_embeddings to true)"
        raise WaferError(f"{where}: {_count('tensor', missing)} missing: {_list(missing)}{hint}")
    if extra := [name for name in shapes if name not in expected]:
        raise WaferError(
            f"{where}: {_count('tensor', extra)} that this configuration has no place for: "
            f"{_list(extra)}"
        )
    for name, shape in expected.items():
        if tuple(shapes[name]) != shape:
            raise WaferError(
                f"{where}: tensor {name} has shape {list(shapes[name])}, "
                f"the configuration asks for {list(shape)}"
            )


def check_finite(name: str, values: np.ndarray, *, where: str) -> None:
    """Refuse NaN and infinity in the weights.

    Args:
        name: the tensor.
        values: its values, any shape, a float dtype.
        where: the file, for the error.

    Raises:
        WaferError: naming the first offending element.
    """
    finite = np.isfinite(values)
    if not finite.all():
        bad = np.argwhere(~finite)
        raise WaferError(
            f"{where}: tensor {name} has {len(bad)} NaN or infinite value(s), the first at "
            f"{bad[0].tolist()}; the file is damaged or the training diverged"
        )


def _count(noun: str, names: list[str]) -> str:
    return f"{len(names)} {noun}{'s' if len(names) > 1 else ''}"


def _list(names: list[str]) -> str:
    shown = [name if len(name) <= 80 else name[:77] + "..." for name in names[:4]]
    return ", ".join(map(repr, shown)) + (", ..." if len(names) > 4 else "")
