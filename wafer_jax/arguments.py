"""Whole numbers that users give: Python's and numpy's alike, but no truth values."""

import operator
from typing import Any, SupportsIndex, TypeGuard

import numpy as np

from wafer_jax.errors import WaferError


def is_whole(value: Any) -> TypeGuard[SupportsIndex]:
    """Whether a value is a whole number; a truth value is none."""
    if isinstance(value, bool | np.bool_):
        return False
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def whole(value: Any, what: str) -> int:
    """A whole number as Python's int.

    Raises:
      WaferError: It is none.
    """
    if not is_whole(value):
        raise WaferError(f"{what} is {shown(value)}: give a whole number")
    return operator.index(value)


def shown(value: Any) -> str:
    """A value of any kind for a message of one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
