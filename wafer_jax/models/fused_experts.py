"""Tensors of a checkpoint that hold all experts of a layer at once, and one parameter of each."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.models.quantized.packed import PackedSource
from wafer_jax.models.quantized.stored import Parameter

Fused = Mapping[str, Mapping[str, slice]]
"""Name of a fused tensor below ``experts.``, to the parameters of one expert that lie in it and the
elements of its output axis that are theirs."""


def split_experts(
    found: Iterable[tuple[str, Parameter]], fused: Fused, count: int, output_axis: int
) -> Iterator[tuple[str, Parameter]]:
    """Split the fused tensors among others.

    Args:
        found: name and parameter of every tensor; a packed one has the outputs of all experts as
            its rows.
        fused: which of them to split.
        count: experts of a layer, the first axis of a fused tensor.
        output_axis: axis of a fused tensor along which the outputs of one expert lie.

    Yields:
        Name and parameter; those of an expert are ``experts.N.NAME``, a matrix ``[out, in]``.

    Raises:
        WaferError: a fused tensor of another number of experts.
    """
    # Those of one tensor follow one another, so it is read once and not kept.
    latest = functools.lru_cache(maxsize=1)(lambda read: read())
    for name, parameter in found:
        prefix, experts, tail = name.rpartition("experts.")
        if tail not in fused:
            yield name, parameter
            continue
        if len(parameter.shape) < 2 or parameter.shape[0] != count:
            raise WaferError(
                f"{parameter.path}: tensor {name} has shape {list(parameter.shape)}, "
                f"the configuration asks for {count} experts"
            )
        for number in range(count):
            for inner, rows in fused[tail].items():
                one = _expert(parameter, latest, number, rows, output_axis % len(parameter.shape))
                yield f"{prefix}{experts}{number}.{inner}", one


def fuse_experts(
    weights: Mapping[str, np.ndarray], fused: Fused, output_axis: int
) -> dict[str, np.ndarray]:
    """Undo `split_experts`.

    Args:
        weights: name to array, as `parameter_shapes` lists them.
        fused: what each fused tensor is made of.
        output_axis: as for `split_experts`.

    Returns:
        Name to array, fused tensors instead of experts.
    """
    inner = {name: (tail, rows) for tail, parts in fused.items() for name, rows in parts.items()}
    tensors: dict[str, np.ndarray] = {}
    pieces: dict[str, list[tuple[int, slice, np.ndarray]]] = {}
    for name, values in weights.items():
        prefix, experts, rest = name.rpartition("experts.")
        number, _, tail = rest.partition(".")
        if experts and tail in inner:
            target, rows = inner[tail]
            pieces.setdefault(f"{prefix}experts.{target}", []).append((int(number), rows, values))
        else:
            tensors[name] = values
    for name, parts in pieces.items():
        count = 1 + max(number for number, _, _ in parts)
        outputs = sum(len(values) for number, _, values in parts if number == 0)
        whole = np.empty((count, outputs, *parts[0][2].shape[1:]), np.float32)
        for number, rows, values in parts:
            whole[number, rows] = values
        tensors[name] = np.ascontiguousarray(np.moveaxis(whole, 1, output_axis))
    return tensors


def _expert(
    fused: Parameter,
    latest: Callable[[Callable[[], Any]], Any],
    number: int,
    rows: slice,
    output_axis: int,
) -> Parameter:
    """Some outputs of one expert; ``latest`` calls what reads the fused tensor."""
    shape = list(fused.shape[1:])
    outputs = shape.pop(output_axis - 1)

    def read() -> np.ndarray:
        by_output = np.moveaxis(latest(fused.read)[number], output_axis - 1, 0)
        return np.ascontiguousarray(by_output[rows])

    def packed(source: PackedSource) -> PackedSource:
        cut = lambda array: array.reshape(fused.shape[0], outputs, -1)[number, rows]
        return PackedSource(source.format, lambda: latest(source.read).map_rows(cut))

    return Parameter(
        path=fused.path,
        shape=(len(range(outputs)[rows]), *shape),
        read=read,
        packed=packed(fused.packed) if fused.packed else None,
    )
