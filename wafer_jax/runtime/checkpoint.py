"""A running wafer as a folder, so that another process can go on with it.

    folder/checkpoint_000007/sidecar/data.json      see sidecar.py
    folder/checkpoint_000007/state/router.0/0       one array, raw, with .zarray beside it

orbax writes a checkpoint under another name and renames it when it is complete, so a killed save
leaves the one before. The arrays are neither compressed nor cut: every file has a size that the
program determines, and all of them are checked before one is read. Nothing is ever unpickled.
"""

import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.execute import refuse_oversize
from wafer_jax.mesh_state import WaferState, initial_state
from wafer_jax.program import Program
from wafer_jax.runtime import sidecar as sc

KEPT = 2
"""Checkpoints that a folder holds at most."""
_NAME = re.compile(r"checkpoint_([0-9]{6,18})", re.ASCII)
_UNFINISHED = "checkpoint_*.orbax-checkpoint-tmp"


def save(folder: str | Path, program: Program, state: WaferState) -> Path:
    """Write a state; the last two of a folder are kept.

    Args:
      folder: Made if it is missing.
      program: What the state belongs to.
      state: Not donated.

    Returns:
      The new checkpoint.

    Raises:
      WaferError: The folder cannot be written, or the disk is full.
    """
    folder = Path(folder).absolute()
    arrays = {name: np.asarray(x) for name, x in sc.named_leaves(state).items() if x.size}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for unfinished in folder.glob(_UNFINISHED):
            shutil.rmtree(unfinished)
        old = checkpoints(folder)
        path = folder / f"checkpoint_{_number(old[-1]) + 1 if old else 0:06d}"
        with _orbax() as ocp:
            ocp.save_checkpointables(
                path, {"state": arrays, "sidecar": sc.describe(program, state)}
            )
    except OSError as error:
        raise WaferError(f"cannot write to {folder}: {error.strerror or error}") from None
    except Exception as error:
        # What tensorstore raises when a disk is full is not documented.
        raise WaferError(f"cannot write to {folder}: {_first_line(error)}") from None
    for outdated in old[: len(old) - KEPT + 1]:
        shutil.rmtree(outdated, ignore_errors=True)
    return path


def checkpoints(folder: str | Path) -> list[Path]:
    """The complete checkpoints of a folder, the newest last."""
    folder = Path(folder)
    found = [p for p in folder.iterdir() if _NAME.fullmatch(p.name)] if folder.is_dir() else []
    return sorted(found, key=_number)


def latest(folder: str | Path) -> Path:
    """The newest checkpoint of a folder.

    Raises:
      WaferError: There is none.
    """
    if not (found := checkpoints(folder)):
        raise WaferError(f"{folder}: there is no checkpoint in it")
    return found[-1].absolute()


def load(folder: str | Path, program: Program) -> WaferState:
    """Read the newest state of a folder.

    Args:
      folder: Where `save` wrote.
      program: The same program, by content; the name may differ.

    Raises:
      WaferError: No checkpoint; one of another program, machine, mesh or version; a damaged one.
    """
    path = latest(folder)
    try:
        _refuse_strange_files(path)
        sidecar = sc.read(path / "sidecar" / "data.json")
        sc.refuse_other(path, sidecar, program)
        settings = sc.settings(path, sidecar)
        refuse_oversize(program, "full" if settings["values"] else "none")
        like = initial_state(program, **settings)
        sc.refuse_other_leaves(path, sidecar, like)
        state = _read_state(path, like)
    except OSError as error:
        raise WaferError(f"cannot read {path}: {error.strerror or error}") from None
    except WaferError as error:
        if len(checkpoints(folder)) < 2 or "damaged" not in str(error):
            raise
        raise WaferError(f"{error}; delete {path.name} to resume from the one before") from None
    if int(state.now) != sidecar.get("cycle"):
        raise WaferError(f"{path}: damaged: the state is at cycle {int(state.now)}")
    return state


def _read_state(path: Path, like: WaferState) -> WaferState:
    expected = sc.named_leaves(like)
    wanted = {k: np.empty(0, x.dtype) for k, x in expected.items() if x.size}
    _refuse_other_arrays(path / "state", {k: expected[k] for k in wanted})
    try:
        with _orbax() as ocp:
            loaded: dict[str, Any] = ocp.load(path, wanted, checkpointable_name="state")
    except Exception as error:
        # orbax and tensorstore raise a dozen types on damaged files.
        raise WaferError(f"{path}: damaged: {_first_line(error)}") from None
    leaves = []
    for name, x in expected.items():
        value = loaded.pop(name) if x.size else np.zeros(x.shape, x.dtype)
        if value.shape != x.shape or value.dtype != x.dtype:
            raise WaferError(f"{path}: damaged: array {name!r} is {value.dtype}{value.shape}")
        # A copy: a state is donated, and memory that numpy shares must not be.
        leaves.append(jnp.array(value, copy=True))
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _refuse_strange_files(path: Path) -> None:
    """Only folders and files, and as many as a state could have."""
    entries = 0
    for folder, names, files in os.walk(path):
        for name in (*names, *files):
            entries += 1
            mode = os.lstat(os.path.join(folder, name)).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise WaferError(f"{path}: damaged: {name!r} is neither a file nor a folder")
        if entries > 10_000:
            raise WaferError(f"{path}: damaged: it holds over 10000 files")


def _refuse_other_arrays(folder: Path, expected: dict[str, jax.Array]) -> None:
    """Every array file is as long as it must be, and said to be stored as `save` stores it."""
    tree = sc.read(folder / "_METADATA")
    if tree.get("use_ocdbt") is not False or tree.get("use_zarr3") is not False:
        raise WaferError(f"{folder}: damaged: stored in another way than wafer_jax does")
    chunks = set()
    for name, x in expected.items():
        chunk = folder / name / (".".join("0" * x.ndim) or "0")
        chunks.add(chunk)
        size = chunk.stat().st_size if chunk.is_file() else 0
        if size != x.nbytes:
            raise WaferError(
                f"{folder.parent}: damaged: array {name!r} has {size} bytes, not {x.nbytes}"
            )
        found = sc.read(folder / name / ".zarray")
        if {key: found.get(key) for key in _zarray(x)} != _zarray(x):
            raise WaferError(f"{folder.parent}: damaged: array {name!r} is stored in another way")
    for file in folder.parent.rglob("*"):
        if file not in chunks and file.stat().st_size > sc.MAX_BYTES:
            raise WaferError(f"{folder.parent}: damaged: {file.name!r} is too large")


def _zarray(x: jax.Array) -> dict[str, Any]:
    """Metadata of an array stored raw in one piece (zarr, version 2)."""
    return {
        "zarr_format": 2,
        "shape": list(x.shape),
        "chunks": list(x.shape),
        "dtype": np.dtype(x.dtype).str if np.dtype(x.dtype).isbuiltin == 1 else x.dtype.name,
        "compressor": None,
        "filters": None,
        "order": "C",
    }


@contextmanager
def _orbax() -> Iterator[Any]:
    """orbax, set to write raw arrays and a JSON text; its notices are for its developers."""
    from orbax.checkpoint import v1 as ocp  # slow to import, and most runs save nothing

    context = ocp.Context()
    context.array.saving.use_ocdbt = False
    context.array.saving.use_zarr3 = False
    context.array.saving.use_compression = False
    registry = ocp.handlers.local_registry()
    registry.add(ocp.handlers.JsonHandler, checkpointable_name="sidecar")
    context.checkpointables.registry = registry
    notices = logging.getLogger("absl")
    level = notices.level
    notices.setLevel(logging.ERROR)
    try:
        with context:
            yield ocp
    finally:
        notices.setLevel(level)


def _number(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
