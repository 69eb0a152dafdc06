"""Sweeps over machine, size and algorithm into a table on disk that can be gone on with.

The table is a file of JSON lines, one per point, written when the point is done. A point is known
by its content, the hash of its machine and the version; one that stands in the table is not run
again. So a sweep that was stopped, or whose grid has grown, is started again as it was.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wafer_jax._version import __version__
from wafer_jax.errors import WaferError
from wafer_jax.execute import run
from wafer_jax.hardware import hardware
from wafer_jax.runtime.algorithms import ALGORITHMS
from wafer_jax.runtime.sweep_config import Point, SweepConfig, load_sweep

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
MAX_TABLE_BYTES = 1 << 30
_KEY, _START = b'{"key": "', re.compile(rb'\{"key": "[0-9a-f]{16}", "algorithm": "')
"""How a row begins; few bytes of it are believed only behind rows that are whole."""


def sweep(
    config: SweepConfig | str | Path,
    table: str | Path | None = None,
    *,
    progress: Callable[[int, int, Point], None] | None = None,
) -> "pd.DataFrame":
    """Evaluate every point of a grid.

    Args:
      config: The grid, the path of its YAML file, or the name of a shipped experiment.
      table: File of JSON lines that takes the rows as they come; points that it has already are
        not run again. Without it nothing is written.
      progress: Called before each point that is run with (points done, points in all, point).

    Returns:
      One row per point: algorithm, preset, mesh_y, mesh_x, the parameters and changes, level,
      cycles, seconds (at the machine's clock), faults, error, preset_hash, version. A point that
      failed has no cycles, but a message under error.

    Raises:
      WaferError: A grid that cannot be; a table that cannot be read or written.
    """
    if isinstance(config, SweepConfig):
        config.validate()
    else:
        config = load_sweep(config)
    points = {key_of(point): point for point in config.points()}
    rows = {} if table is None else _open(Path(table))
    for number, (key, point) in enumerate(points.items()):
        if key in rows:
            continue
        if progress is not None:
            progress(number, len(points), point)
        rows[key] = {"key": key, **evaluate(point)}
        if table is not None:
            _append(Path(table), rows[key])
    return _frame([rows[key] for key in points])


def key_of(point: Point) -> str:
    """Hex digits that identify a point's content, its machine, and the version."""
    content = [*_plain(point).values(), hardware(point.preset).hash, __version__]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def evaluate(point: Point) -> Row:
    """The row of a point; a failure is a row, too."""
    row = _plain(point) | {
        "cycles": None,
        "seconds": None,
        "faults": None,
        "error": None,
        "preset_hash": None,
        "version": __version__,
    }
    algorithm, parameters = ALGORITHMS[point.algorithm], dict(point.parameters)
    try:
        hw = point.hardware()
        row["preset_hash"] = hw.hash
        if point.level == "cost":
            cycles = int(algorithm.cost(hw, **parameters))
        else:
            result = run(algorithm.program(hw, **parameters), values="none")
            row["faults"] = len(result.faults)
            if result.faults:
                row["error"] = str(result.faults[0])
            cycles = result.cycles
    except Exception as error:
        # One point must not end a sweep of hours, whatever it runs into.
        kind = "" if isinstance(error, WaferError) else f"{type(error).__name__}: "
        return row | {"error": kind + " ".join(str(error).split())}
    return row | {"cycles": cycles, "seconds": hw.seconds(cycles)}


def _plain(point: Point) -> Row:
    return {
        "algorithm": point.algorithm,
        "preset": point.preset,
        "changes": dict(point.changes),
        "mesh": list(point.mesh),
        "parameters": dict(point.parameters),
        "level": point.level,
    }


def _open(table: Path) -> dict[str, Row]:
    """The rows of a table by key; a last line that a killed sweep left unfinished is cut off."""
    if table.exists() and not table.is_file():
        raise WaferError(f"cannot write {table}: it is a folder, a device or a pipe")
    try:
        with open(table, "a+b") as file:
            if (size := file.tell()) > MAX_TABLE_BYTES:
                raise WaferError(f"{table}: {size} bytes are over the limit of {MAX_TABLE_BYTES}")
            file.seek(0)
            text = file.read()
            whole = text.rfind(b"\n") + 1
            rows = [_row(table, i, line) for i, line in enumerate(text[:whole].splitlines(), 1)]
            torn = text[whole:]
            if torn and not (_START.match(torn) or (rows and _KEY.startswith(torn[: len(_KEY)]))):
                raise _no_row(table, len(rows) + 1)
            file.truncate(whole)
    except OSError as error:
        raise WaferError(f"cannot write {table}: {error.strerror}") from None
    return {row["key"]: row for row in rows}


def _row(table: Path, number: int, line: bytes) -> Row:
    try:
        row = json.loads(line)
        shape = {"key": str, "mesh": list, "parameters": dict, "changes": dict}
        if all(isinstance(row[name], kind) for name, kind in shape.items()):
            return row
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise _no_row(table, number)


def _no_row(table: Path, number: int) -> WaferError:
    return WaferError(f"{table}: line {number} is no row of a sweep: give another file")


def _append(table: Path, row: Row) -> None:
    """Write a row at once, so that a stop leaves it whole or absent."""
    try:
        with open(table, "ab", buffering=0) as file:
            file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
            os.fsync(file.fileno())
    except OSError as error:
        raise WaferError(f"cannot write {table}: {error.strerror}") from None


def _frame(rows: list[Row]) -> "pd.DataFrame":
    import pandas as pd  # slow to import

    flat = []
    for row in rows:
        mesh_y, mesh_x = row["mesh"]
        flat.append(
            {
                "algorithm": row["algorithm"],
                "preset": row["preset"],
                "mesh_y": mesh_y,
                "mesh_x": mesh_x,
                **row["changes"],
                **row["parameters"],
            }
        )
    settings = pd.DataFrame(flat).convert_dtypes()
    ends = ("level", "cycles", "seconds", "faults", "error", "preset_hash", "version")
    figures = pd.DataFrame({name: [row.get(name) for row in rows] for name in ends}, dtype=object)
    figures = figures.astype({"cycles": "Int64", "faults": "Int64", "seconds": "float64"})
    return pd.concat([settings, figures], axis=1)
