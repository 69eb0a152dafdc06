"""Programs and costs that refuse arguments of a wrong kind in one line."""

import inspect
from collections.abc import Callable
from functools import wraps
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin

from wafer_jax.arguments import shown, whole
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec

P = ParamSpec("P")
R = TypeVar("R")

_SIZES = ("words", "rows", "cols")
"""Whole numbers that are at least 1; what else is bounded says so itself, with its reason."""
_LARGEST = 1 << 31


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which first checks its arguments against their annotations.

    Whole numbers and lists become Python's ints and tuples, so that results do, too.

    Raises:
      WaferError: From the function: an argument of another kind, or a size out of range.
    """
    signature = inspect.signature(function)
    kinds = {name: p.annotation for name, p in signature.parameters.items()}

    @wraps(function)
    def with_checks(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs)
        for name, value in given.arguments.items():
            given.arguments[name] = _check(value, kinds[name], name)
        return function(*given.args, **given.kwargs)

    return with_checks


def _check(value: Any, kind: Any, name: str) -> Any:
    if isinstance(kind, UnionType):
        (kind,) = (k for k in get_args(kind) if k is not type(None))
        if value is None:
            return None
    if kind is int:
        number = whole(value, name)
        if name in _SIZES and not 1 <= number <= _LARGEST:
            raise WaferError(f"{name} is {shown(number)}: a size is from 1 to {_LARGEST}")
        return number
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise WaferError(f"{name} is {shown(value)}: give a list of whole numbers")
        return tuple(whole(v, f"an entry of {name}") for v in value)
    kind, wanted = _KINDS[str if get_origin(kind) is Literal else kind]
    if not isinstance(value, kind):
        raise WaferError(f"{name} is {shown(value)}: give {wanted}")
    return value


_KINDS: dict[type, tuple[type, str]] = {
    HardwareSpec: (HardwareSpec, "a machine, as wj.hardware() returns"),
    str: (str, "a text"),
    bool: (bool, "True or False"),
}
