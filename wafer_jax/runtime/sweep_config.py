"""What a sweep goes over: a grid of machines, meshes and algorithms, also as YAML."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec, configs_dir, hardware
from wafer_jax.runtime.algorithms import Level, check_parameters

MAX_POINTS = 100_000
MAX_BYTES = 1 << 20
"""Of a configuration file."""

Settings = tuple[tuple[str, Any], ...]
"""Names and values, hashable."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a grid.

    Attributes:
      level: Of its figure.
      preset: Name of the machine.
      changes: What is replaced in it.
      mesh: (Y, X).
      algorithm: Registered name.
      parameters: Of the algorithm.
    """

    level: Level
    preset: str
    changes: Settings
    mesh: tuple[int, int]
    algorithm: str
    parameters: Settings

    def hardware(self) -> HardwareSpec:
        """The machine of the point.

        Raises:
          WaferError: The mesh is larger than the device.
        """
        return hardware(self.preset).replace(**dict(self.changes), mesh=self.mesh)

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in (*self.parameters, *self.changes))
        height, width = self.mesh
        return f"{self.algorithm}({settings}) on {height}x{width} PEs of {self.preset}"


@dataclass(frozen=True, kw_only=True)
class AlgorithmGrid:
    """An algorithm with all values of its parameters.

    Attributes:
      name: Registered name, such as "allreduce.ktree".
      parameters: Each with the values that it takes; every combination is a point.
    """

    name: str
    parameters: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    def choices(self) -> Iterator[Settings]:
        """Every combination."""
        names = [name for name, _ in self.parameters]
        for values in product(*(values for _, values in self.parameters)):
            yield tuple(zip(names, values, strict=True))


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """A grid: every preset, with every change, on every mesh, with every algorithm's choices.

    Attributes:
      presets: Names of machines.
      meshes: (Y, X) each.
      algorithms: Each with its own parameters.
      changes: What-ifs: fields of the spec that are replaced, () for the preset as it is.
      level: "fabric" runs the programs, without values; "cost" evaluates closed forms.
    """

    presets: tuple[str, ...]
    meshes: tuple[tuple[int, int], ...]
    algorithms: tuple[AlgorithmGrid, ...]
    changes: tuple[Settings, ...] = ((),)
    level: Level = "fabric"

    def validate(self) -> None:
        """Raise ``WaferError`` that names what no point could use."""
        if self.level not in ("fabric", "cost"):
            raise WaferError(f"level {self.level!r}: choose fabric or cost")
        for grid in self.algorithms:
            values = {name: list(values) for name, values in grid.parameters}
            check_parameters(grid.name, self.level, values)
        for preset, changes in product(self.presets, self.changes):
            hardware(preset).replace(**dict(changes))
        if (count := self.num_points) > MAX_POINTS:
            raise WaferError(f"the grid has {count} points, over the limit of {MAX_POINTS}")
        if not count:
            raise WaferError("the grid has no point: give every list at least one value")

    @property
    def num_points(self) -> int:
        """Points of the grid."""
        choices = sum(math.prod(len(v) for _, v in g.parameters) for g in self.algorithms)
        return len(self.presets) * len(self.changes) * len(self.meshes) * choices

    def points(self) -> Iterator[Point]:
        """Every point, the algorithms' parameters changing fastest."""
        for preset, changes, mesh, grid in product(
            self.presets, self.changes, self.meshes, self.algorithms
        ):
            for parameters in grid.choices():
                yield Point(
                    level=self.level,
                    preset=preset,
                    changes=changes,
                    mesh=mesh,
                    algorithm=grid.name,
                    parameters=parameters,
                )


def load_sweep(path: str | Path) -> SweepConfig:
    """Read a sweep from YAML.

    Args:
      path: A file, or the name of a shipped experiment, such as "ktree".

    Raises:
      WaferError: Unreadable, unknown or missing keys, values of another type, nothing to run.
    """
    path = Path(path)
    if not path.suffix and not path.is_file():
        shipped = configs_dir() / "experiments" / f"{path.name}.yaml"
        if path.is_dir() and not shipped.is_file():
            raise WaferError(f"{path} is a folder: give a YAML file or a shipped experiment")
        path = shipped
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise WaferError(f"{path}: over the limit of {MAX_BYTES} bytes")
        values = yaml.safe_load(text)
    except WaferError:
        raise
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise WaferError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None
    try:
        config = _config(values)
        config.validate()
    except WaferError as error:
        raise WaferError(f"{path.name}: {error}") from None
    return config


def _config(values: Any) -> SweepConfig:
    if not isinstance(values, dict):
        raise WaferError("expected a mapping of keys to values")
    known = {f.name for f in fields(SweepConfig)}
    if unknown := [key for key in values if key not in known]:
        raise WaferError(f"unknown key {unknown[0]!r}; known keys are {', '.join(sorted(known))}")
    if missing := [key for key in ("presets", "meshes", "algorithms") if key not in values]:
        raise WaferError(f"missing key {missing[0]!r}")
    return SweepConfig(
        presets=tuple(_list(values, "presets", str, "names")),
        meshes=tuple(_mesh(mesh) for mesh in _list(values, "meshes", list, "[rows, columns]")),
        algorithms=tuple(_grid(a) for a in _list(values, "algorithms", dict, "{name: ..}")),
        changes=tuple(_changes(c) for c in _list({"changes": [{}]} | values, "changes", dict,
                                                 "{field: value}")),
        level=values.get("level", "fabric"),
    )  # fmt: skip


def _list(values: dict, key: str, kind: type, what: str) -> list:
    found = values[key]
    if not isinstance(found, list) or not all(isinstance(v, kind) for v in found):
        raise WaferError(f"{key} takes a list of {what}")
    return found


def _mesh(mesh: list) -> tuple[int, int]:
    if len(mesh) != 2 or not all(type(n) is int for n in mesh):
        raise WaferError(f"mesh {str(mesh)[:40]} is not [rows, columns]")
    return mesh[0], mesh[1]


def _changes(changes: dict) -> Settings:
    if "mesh" in changes:
        raise WaferError("changes: a mesh is given under meshes")
    if not all(isinstance(name, str) for name in changes):
        raise WaferError("changes: expected names of a machine's fields")
    return tuple((name, _hashable(value)) for name, value in changes.items())


def _grid(values: dict) -> AlgorithmGrid:
    name = values.get("name")
    if not isinstance(name, str) or not all(isinstance(key, str) for key in values):
        raise WaferError("an algorithm takes its name and its parameters: {name: .., words: ..}")
    parameters = ((key, value) for key, value in values.items() if key != "name")
    return AlgorithmGrid(
        name=name,
        parameters=tuple(
            (key, tuple(map(_hashable, value if isinstance(value, list) else [value])))
            for key, value in parameters
        ),
    )


def _hashable(value: Any) -> Any:
    """A YAML value as a setting: lists of numbers become tuples."""
    if isinstance(value, list) and all(type(n) is int for n in value):
        return tuple(value)
    if isinstance(value, bool | int | float | str):
        return value
    raise WaferError(f"{str(value)[:40]!r} is no number, text or list of whole numbers")
