"""What a checkpoint says about itself: a JSON text beside the arrays, checked before them."""

import hashlib
import json
import tempfile
import zipfile
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from wafer_jax._version import __version__
from wafer_jax.errors import WaferError
from wafer_jax.execute import MAX_CYCLES, MAX_PACKET_WORDS
from wafer_jax.jitter import Jitter
from wafer_jax.mesh_state import WaferState, carries_all
from wafer_jax.program import Program
from wafer_jax.program_file import save_program

FORMAT, VERSION = "wafer_jax checkpoint", 2
MAX_BYTES = 1 << 20
"""Of any file in a checkpoint that is no array."""

_COMPARED = {
    "format": "format",
    "version": "format version",
    "wafer_jax": "wafer_jax version",
    "mesh": "mesh",
    "preset_hash": "machine (preset hash)",
    "program": "program (fingerprint)",
}


def describe(program: Program, state: WaferState) -> dict[str, Any]:
    """The sidecar of a state of a program, as JSON has it."""
    return {
        **_identity(program),
        "name": program.name,
        "values": "none" if state.memory is None else "full",
        "jitter": None if state.jitter is None else np.asarray(state.jitter).tolist(),
        "watchdog_cycles": 0 if state.watchdog is None else int(state.watchdog),
        "packet_words": 1 if state.packet_words is None else int(state.packet_words),
        "carry_all": carries_all(program, state),
        "cycle": int(state.now),
        "leaves": _leaves(state),
    }


def _identity(program: Program) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "wafer_jax": __version__,
        "mesh": list(program.hw.mesh),
        "preset_hash": program.hw.hash,
        "program": fingerprint(program),
    }


def _leaves(state: WaferState) -> list[list[Any]]:
    """Name, shape and element type of every array of a state."""
    return [[name, list(x.shape), x.dtype.name] for name, x in named_leaves(state).items()]


def named_leaves(state: WaferState) -> dict[str, jax.Array]:
    """The arrays of a state by name, such as ``router.0`` or ``memory.sram``."""
    paths, _ = jax.tree_util.tree_flatten_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in paths}


@lru_cache(maxsize=1)
def fingerprint(program: Program) -> str:
    """Hex digits that identify all that a program file holds but the program's name.

    Kernels count by their names and the shapes of their tiles.
    """
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.npz"
        save_program(replace(program, name=""), path)
        with zipfile.ZipFile(path) as archive:
            for name in sorted(archive.namelist()):
                digest.update(f"{name} {archive.getinfo(name).file_size} ".encode())
                digest.update(archive.read(name))
    return digest.hexdigest()[:32]


def read(path: Path) -> dict[str, Any]:
    """Read a sidecar.

    Raises:
      WaferError: No file, too large, or no JSON object.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise WaferError(f"{path}: expected a JSON object")
    return value


def read_json(path: Path) -> Any:
    """Read a JSON file of bounded size."""
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise WaferError(f"{path}: over the limit of {MAX_BYTES} bytes")
        return json.loads(text)
    except FileNotFoundError:
        raise WaferError(f"{path}: no such file: the checkpoint is damaged") from None
    except OSError as error:
        raise WaferError(f"cannot read {path}: {error.strerror}") from None
    except WaferError:
        raise
    except (ValueError, RecursionError):
        raise WaferError(f"{path}: damaged: it is no JSON text") from None


def refuse_other(where: Path, sidecar: dict[str, Any], program: Program) -> None:
    """Raise ``WaferError`` that names what differs unless the checkpoint is one of the program."""
    for key, expected in _identity(program).items():
        if (found := sidecar.get(key)) != expected:
            raise WaferError(
                f"{where}: saved with {_COMPARED[key]} {_short(found)}, not {_short(expected)}: "
                f"resume it with what it was saved from"
            )


def refuse_other_leaves(where: Path, sidecar: dict[str, Any], state: WaferState) -> None:
    """Raise ``WaferError`` that names the first array which differs from those of a state."""
    expected, found = _leaves(state), sidecar.get("leaves")
    if found == expected:
        return
    listed = found if isinstance(found, list) else []
    other = next((x for x in listed if x not in expected), None) or next(
        (x for x in expected if x not in listed), None
    )
    raise WaferError(f"{where}: damaged: array {_short(other)} does not fit the program's state")


def settings(where: Path, sidecar: dict[str, Any]) -> dict[str, Any]:
    """How the run was started: what `initial_state` takes.

    Raises:
      WaferError: It cannot have been started so.
    """
    values, carry_all = sidecar.get("values"), sidecar.get("carry_all")
    if values not in ("full", "none"):
        raise WaferError(f"{where}: damaged: values {_short(values)}")
    if not isinstance(carry_all, bool) or (carry_all and values == "none"):
        raise WaferError(f"{where}: damaged: carry_all {_short(carry_all)}")
    numbers = {}
    for name, low, high in (
        ("watchdog_cycles", 0, MAX_CYCLES),
        ("packet_words", 1, 1 if values == "full" else MAX_PACKET_WORDS),
    ):
        numbers[name] = sidecar.get(name)
        if type(numbers[name]) is not int or not low <= numbers[name] <= high:
            raise WaferError(f"{where}: damaged: {name} {_short(numbers[name])}")
    jitter = _jitter(where, sidecar.get("jitter"))
    return {"values": values == "full", "jitter": jitter, "carry_all": carry_all, **numbers}


def _jitter(where: Path, jitter: Any) -> Jitter | None:
    if jitter is None:
        return None
    whole = isinstance(jitter, list) and all(type(n) is int for n in jitter)
    if not whole or len(jitter) != 3:
        raise WaferError(f"{where}: damaged: jitter {_short(jitter)}")
    try:
        return Jitter(*jitter)
    except WaferError as error:
        raise WaferError(f"{where}: damaged: {error}") from None


def _short(value: Any) -> str:
    return repr(value)[:60]
