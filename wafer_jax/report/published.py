"""Published measurements as rows of a table, and what a family of them needs to be compared.

A row has the columns of ``COLUMNS``; the shipped table is ``configs/validation/points.csv``.
"""

import csv
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec, configs_dir, hardware

COLUMNS = (
    "source", "experiment", "device", "mesh_w", "mesh_h", "vector_len_or_matrix", "dtype",
    "metric", "value", "unit", "note",
)  # fmt: skip
MAX_BYTES, MAX_ROWS = 16 << 20, 100_000
PRESETS = {"WSE-2": "wse2", "CS-2": "wse2", "WSE-3": "wse3", "CS-3": "wse3"}

Kind = Literal["silicon", "vendor simulator", "unclear"]
Level = Literal["fabric", "cost"]


class NotExpressible(Exception):
    """The reason why the emulator has no figure for a row."""


@dataclass(frozen=True, kw_only=True)
class PublishedPoint:
    """One published measurement.

    Attributes:
      source: Where it was published.
      experiment: What was measured.
      device: Such as "WSE-2".
      mesh: ``(Y, X)`` PEs, or None if the row does not say.
      size: Payload, matrix or tile, as published.
      dtype: As published, such as "fp16".
      metric: What the value is.
      value: Published figure, above 0.
      unit: Of the value.
      note: Begins with the evidence: [HW] silicon, [SIM] the vendor's simulator.
      line: Of the file.
    """

    source: str
    experiment: str
    device: str
    mesh: tuple[int, int] | None
    size: str
    dtype: str
    metric: str
    value: float
    unit: str
    note: str
    line: int

    @property
    def kind(self) -> Kind:
        """What the figure was measured on, by the tag that the note begins with."""
        tag = re.match(r"\[([^\]]*)\]", self.note)
        silicon, simulator = (bool(tag) and word in tag[1] for word in ("HW", "SIM"))
        if silicon == simulator:
            return "unclear"
        return "silicon" if silicon else "vendor simulator"

    @property
    def preset(self) -> str:
        """Preset of the device: the WSE-3's rates on silicon are a preset of their own.

        Raises:
          NotExpressible: No preset stands for the device.
        """
        if self.device not in PRESETS:
            raise NotExpressible(f"no preset stands for the device {self.device!r}")
        name = PRESETS[self.device]
        return "wse3_silicon" if name == "wse3" and self.kind == "silicon" else name

    def machine(self, mesh: tuple[int, int] | None = None) -> HardwareSpec:
        """The preset on a mesh, by default the row's.

        Raises:
          NotExpressible: No preset, no mesh, or one larger than the device.
        """
        mesh = mesh or self.mesh
        if mesh is None:
            raise NotExpressible("the row does not give the mesh")
        try:
            return hardware(self.preset, mesh)
        except WaferError as error:
            raise NotExpressible(str(error)) from None

    def number(self, name: str, default: int | None = None) -> int:
        """A number of the size, such as 4 of "hops=4".

        Raises:
          NotExpressible: The size does not give it, and there is no default.
        """
        found = re.search(rf"\b{name}=(\d{{1,9}})\b", self.size)
        if found is None and default is None:
            raise NotExpressible(f"vector_len_or_matrix = {self.size!r} does not give {name}=")
        number = default if found is None else int(found[1])
        if not number:
            raise NotExpressible(f"{name}=0: give a number above 0")
        return number


@dataclass(frozen=True, kw_only=True)
class Ours:
    """The emulator's figure for a published one.

    Attributes:
      value: In the unit of the published one.
      level: "fabric" if a run gave it, "cost" if a closed form did.
      calibrated: Constant of the presets that the published figure went into, or empty.
    """

    value: float
    level: Level
    calibrated: str = ""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """How close a family has to be.

    Attributes:
      median: Largest median of the errors' sizes that passes, in percent; None: any.
      worst: The same of the worst.
      cycles: A figure that is off by no more passes, too: ours are whole cycles.
    """

    median: float | None = None
    worst: float | None = None
    cycles: float = 0.0

    def __str__(self) -> str:
        limits = {"median": self.median, "worst": self.worst}
        text = ", ".join(f"{name} <= {p:g} %" for name, p in limits.items() if p is not None)
        return text + (f" or {self.cycles:g} cycles" if self.cycles else "")


@dataclass(frozen=True, kw_only=True)
class Family:
    """Measurements of one kind.

    Attributes:
      name: Such as "reduce".
      experiments: Regular expression that their experiments match as a whole.
      ours: The emulator's figure for one of them; raises `NotExpressible` or ``WaferError``.
      bar: None if the comparison only informs.
    """

    name: str
    experiments: str
    ours: Callable[[PublishedPoint], Ours]
    bar: Bar | None = None

    def has(self, point: PublishedPoint) -> bool:
        """Whether a point is of this kind."""
        return re.fullmatch(self.experiments, point.experiment) is not None


def shipped_points() -> Path:
    """The table that comes with the package."""
    return configs_dir() / "validation" / "points.csv"


def read_points(path: str | Path) -> tuple[PublishedPoint, ...]:
    """Read a table of published measurements.

    Raises:
      WaferError: An unreadable or too large file, other columns, a row that is malformed (with its
        line), or no rows.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise WaferError(f"{path.name} is larger than {MAX_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise WaferError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    points: list[PublishedPoint] = []
    try:
        header = next(reader, [])
        if tuple(header) != COLUMNS:
            raise WaferError(f"{path.name}, line 1: the columns must be {','.join(COLUMNS)}")
        for row in reader:
            if row:
                points.append(_point(row, reader.line_num, path.name))
            if len(points) > MAX_ROWS:
                raise WaferError(f"{path.name}: more than {MAX_ROWS:,} rows")
    except csv.Error as error:
        raise WaferError(f"{path.name}, line {reader.line_num}: {error}") from None
    if not points:
        raise WaferError(f"{path.name} has no rows")
    return tuple(points)


def _point(row: list[str], line: int, file: str) -> PublishedPoint:
    where = f"{file}, line {line}"
    if len(row) != len(COLUMNS):
        raise WaferError(f"{where}: {len(row)} fields instead of {len(COLUMNS)}")
    fields = dict(zip(COLUMNS, (text.strip() for text in row), strict=True))
    if not fields["experiment"]:
        raise WaferError(f"{where}: the experiment is empty")
    try:
        value = float(fields["value"])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise WaferError(f"{where}: value = {fields['value'][:40]!r} is not a number above 0")
    return PublishedPoint(
        mesh=_mesh(fields["mesh_w"], fields["mesh_h"], where),
        size=fields["vector_len_or_matrix"],
        value=value,
        line=line,
        **{k: fields[k] for k in
           ("source", "experiment", "device", "dtype", "metric", "unit", "note")},
    )  # fmt: skip


def _mesh(width: str, height: str, where: str) -> tuple[int, int] | None:
    if not width and not height:
        return None
    if not all(re.fullmatch(r"[1-9]\d{0,5}", side, re.ASCII) for side in (width, height)):
        raise WaferError(
            f"{where}: mesh_w = {width[:20]!r}, mesh_h = {height[:20]!r} are not both whole "
            "numbers above 0, nor both empty"
        )
    return int(height), int(width)
