"""Whole numbers that a user gives."""

import operator
from typing import Any

from wafer_jax.errors import WaferError


def whole(value: Any, what: str) -> int:
    """The value as an int.

    Args:
      value: An int, or a whole number of NumPy.
      what: Its name, for the message.

    Raises:
      WaferError: Anything else; a bool, too, and 2.0.
    """
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise WaferError(f"{what} is {value!r}: give a whole number")
