"""What an audit sweeps: how to build a program of a size, and on which mesh."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any, Literal

from wafer_jax.arguments import is_whole, shown
from wafer_jax.errors import WaferError
from wafer_jax.hardware import DTYPE_BYTES, HardwareSpec
from wafer_jax.program import Program
from wafer_jax.runtime.algorithms import ALGORITHMS, check_parameters

Mesh = Literal["line", "square"]

SQUARE_SIZES, LINE_SIZES = (4, 8, 16, 32), (4, 8, 16, 32, 64, 128, 256)
MAX_SIZES, MAX_PES = 32, 1 << 14
_DENSE = ("m", "k", "n", "rows", "cols")
_PER_PE = {"height": 8, "width": 8, "elements": 16, "slots": 4, "length": 1}
"""Parameters that say what one PE holds."""
_BY_SIZE: dict[str, Callable[[int], int]] = {"group": isqrt}
"""Parameters that must follow N: the two-phase reduce is at its best with groups of sqrt N."""


@dataclass(frozen=True)
class Subject:
    """What is swept.

    Attributes:
      name: For people.
      mesh: "square" or "line".
      sizes: N.
      build: A program for a machine, and N.
      build_aligned: The same with the alignment on chip, if there is one apart.
      axis: Of a line.
      parameters: What the algorithm is built with.
      operand_bytes: Of a dense operand, if the problem has one.
    """

    name: str
    mesh: Mesh
    sizes: tuple[int, ...]
    build: Callable[[HardwareSpec, int], Program]
    build_aligned: Callable[[HardwareSpec, int], Program] | None
    axis: str
    parameters: Mapping[str, Any]
    operand_bytes: int | None

    def shape(self, size: int) -> tuple[int, int]:
        """(Y, X)."""
        if self.mesh == "square":
            return size, size
        return (1, size) if self.axis == "x" else (size, 1)


def algorithm(
    name: str, sizes: Sequence[int] | None, mesh: Mesh | None, given: Mapping[str, Any]
) -> Subject:
    """An algorithm by its name in ``ALGORITHMS``.

    Raises:
      WaferError: Unknown name, parameters that it does not take, sizes that are too large.
    """
    if name not in ALGORITHMS:
        raise WaferError(f"unknown algorithm {name!r}; known are {', '.join(ALGORITHMS)}")
    known = ALGORITHMS[name].parameters("fabric")
    mesh = check_mesh(mesh) if mesh is not None else _natural_mesh(known)
    sizes = check_sizes(sizes, mesh)
    required = [p for p, what in known.items() if what.default is what.empty]
    defaults = {"words": max(sizes)} | dict.fromkeys(_DENSE, 8 * max(sizes)) | _PER_PE
    fixed = {p: defaults[p] for p in required if p in defaults} | dict(given)
    by_size = {p: _BY_SIZE[p] for p in required if p in _BY_SIZE and p not in given}
    sample = fixed | {p: of(sizes[-1]) for p, of in by_size.items()}
    check_parameters(name, "fabric", {p: [value] for p, value in sample.items()})
    if (dtype := sample.get("dtype", "float32")) not in DTYPE_BYTES:
        raise WaferError(f"{name}: dtype {shown(dtype)} is none of {', '.join(DTYPE_BYTES)}")

    def builder(**more: Any) -> Callable[[HardwareSpec, int], Program]:
        return lambda hw, size: ALGORITHMS[name].program(
            hw, **fixed, **{p: of(size) for p, of in by_size.items()}, **more
        )

    apart = "align" in known and "align" not in given
    chosen = {p: what.default for p, what in known.items()} | fixed
    return Subject(
        name=name,
        mesh=mesh,
        sizes=sizes,
        build=builder(align="host") if apart else builder(),
        build_aligned=builder(align="chip") if apart else None,
        axis=str(chosen.get("axis", "x")),
        parameters=fixed | {p: f"{of.__name__}(N)" for p, of in by_size.items()},
        operand_bytes=_operand_bytes(chosen),
    )


def function(
    build: Callable[[HardwareSpec], Program],
    sizes: Sequence[int] | None,
    mesh: Mesh | None,
    parameters: Mapping[str, Any],
) -> Subject:
    """A user's function ``build(hw, **parameters)``; on squares unless said otherwise.

    Raises:
      WaferError: No function; sizes that are too large.
    """
    if not callable(build):
        raise WaferError(
            f"audit: {shown(build)} is no algorithm's name, no program, and no function that "
            f"builds one"
        )
    mesh = check_mesh(mesh or "square")

    def checked(hw: HardwareSpec, size: int) -> Program:
        program = build(hw, **parameters)
        if not isinstance(program, Program) or program.hw.mesh != hw.mesh:
            raise WaferError(f"{shown(program)} is no program for the machine that was given")
        return program

    return Subject(
        name=getattr(build, "__name__", "program"),
        mesh=mesh,
        sizes=check_sizes(sizes, mesh),
        build=checked,
        build_aligned=None,
        axis="x",
        parameters=parameters,
        operand_bytes=None,
    )


def check_mesh(mesh: str) -> Mesh:
    """Raise ``WaferError`` unless a mesh is "square" or "line"."""
    if mesh not in ("line", "square"):
        raise WaferError(f'mesh {shown(mesh)}: choose "square" (N x N PEs) or "line" (1 x N)')
    return mesh


def check_sizes(sizes: Sequence[int] | None, mesh: Mesh) -> tuple[int, ...]:
    """Sizes of a sweep, those of a default sweep for None.

    Raises:
      WaferError: No increasing numbers from 2 on, or too many PEs.
    """
    square = mesh == "square"
    if sizes is None:
        return SQUARE_SIZES if square else LINE_SIZES
    if isinstance(sizes, str) or not all(is_whole(n) for n in sizes):
        raise WaferError(f"sizes {shown(sizes)}: give whole numbers, such as 4,8,16")
    numbers = tuple(int(n) for n in sizes)
    if not 1 <= len(numbers) <= MAX_SIZES or list(numbers) != sorted(set(numbers)):
        raise WaferError(
            f"sizes {shown(numbers)}: give at most {MAX_SIZES}, each larger than the one before"
        )
    if numbers[0] < 2:
        raise WaferError(f"size {numbers[0]}: give sizes from 2 on")
    if (pes := numbers[-1] ** (2 if square else 1)) > MAX_PES:
        raise WaferError(
            f"size {numbers[-1]} on a {mesh} is {pes:,} PEs, over the limit of {MAX_PES:,}"
        )
    return numbers


def _natural_mesh(known: Mapping[str, Any]) -> Mesh:
    """Algorithms that run along an axis of any mesh need a line only; products need both axes."""
    return "line" if "axis" in known and not set(known) & {"m", "n", "rows"} else "square"


def _operand_bytes(chosen: Mapping[str, Any]) -> int | None:
    """Bytes of the dense matrix A or W."""
    element_bytes = DTYPE_BYTES[chosen.get("dtype", "float32")]
    for rows, cols in (("m", "k"), ("rows", "cols")):
        if rows in chosen and cols in chosen:
            return chosen[rows] * chosen[cols] * element_bytes
    return None
