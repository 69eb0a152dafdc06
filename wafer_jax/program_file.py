"""Programs as files, so that a failing case can be shared.

A file is an ``.npz`` archive: the member ``program`` is a JSON text with the machine, the roles
and their events; ``role_of`` are the roles, ``rx:0``, ``tx:0``, ``positions:0``, ``ring:0`` the
routes of segment 0; ``tile:NAME`` are the input
tiles, if they were saved too. Nothing in a file is ever executed or unpickled: a kernel is only
named, and the reader supplies the functions.
"""

import io
import json
import os
import zipfile
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import numpy as np

from wafer_jax import events as ev
from wafer_jax.errors import WaferError
from wafer_jax.events import Event, Kernel, Register, Slice, Tile
from wafer_jax.hardware import DTYPE_BYTES, HardwareSpec, spec_from_values
from wafer_jax.program import Program, Queues, Role, Segment
from wafer_jax.validation import validate

FORMAT, VERSION = "wafer_jax program", 3
MAX_BYTES = 4 << 30
"""Bytes that a file may unpack to."""
_OPERATIONS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        ev.Send, ev.SendControl, ev.Receive, ev.Forward, ev.Compute, ev.Signal, ev.Wait, ev.Loop,
        ev.SetRegister, ev.AddToRegister, ev.Branch, ev.Reconfigure, ev.Halt,
    )
}  # fmt: skip
_ENUMERATED = {
    "combine": get_args(ev.Combine),
    "relation": get_args(ev.Relation),
    "command": get_args(ev.Command),
}
_GRIDS = {"rx": np.int8, "tx": np.uint8, "positions": np.uint8, "ring": np.bool_}
_INT = 1 << 31


def save_program(
    program: Program, path: str | Path, tiles: dict[str, np.ndarray] | None = None
) -> None:
    """Write a program, and the tiles that it is to run on if given; whole or not at all.

    Raises:
      WaferError: The file cannot be written.
    """
    hw = {k: v for k, v in asdict(program.hw).items() if k != "sources"}
    text = {
        "format": FORMAT,
        "version": VERSION,
        "name": program.name,
        "hw": hw,
        "colors": program.colors,
        "segments": [segment.name for segment in program.segments],
        "roles": [_encode_role(role) for role in program.roles],
        "inputs": program.inputs,
        "outputs": program.outputs,
    }
    arrays = {"role_of": program.role_of}
    for g, segment in enumerate(program.segments):
        arrays |= {f"{name}:{g}": getattr(segment, name) for name in _GRIDS}
    arrays |= {f"tile:{name}": np.asarray(tile) for name, tile in (tiles or {}).items()}
    arrays["program"] = np.frombuffer(json.dumps(text).encode(), np.uint8)
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise WaferError(f"cannot write {path}: {error.strerror}") from None


def load_program(
    path: str | Path, kernels: Iterable[Kernel] = ()
) -> tuple[Program, dict[str, np.ndarray]]:
    """Read a program and the tiles that were saved with it.

    Args:
      path: Written by `save_program`.
      kernels: The kernels that the program names.

    Raises:
      WaferError: Unreadable, damaged, of another version, too large, or a program that
        docs/semantics.md refuses.
    """
    path = Path(path)
    arrays = _read_archive(path)
    try:
        text = json.loads(bytes(arrays.pop("program")))
        _expect(text.get("format") == FORMAT, "it is no program of wafer_jax")
        _expect(text.get("version") == VERSION, f"version {text.get('version')!r} is not {VERSION}")
        known = {kernel.name: kernel for kernel in kernels}
        program = Program(
            name=_text(text["name"]),
            hw=_hardware(text["hw"]),
            colors=tuple(_number(c) for c in text["colors"]),
            segments=tuple(_segment(n, g, arrays) for g, n in enumerate(text["segments"])),
            role_of=_grid(arrays.pop("role_of"), np.int32),
            roles=tuple(_role(role, known) for role in text["roles"]),
            inputs=tuple(_text(n) for n in text["inputs"]),
            outputs=tuple(_text(n) for n in text["outputs"]),
        )
        _expect(list(program.colors) == sorted(set(program.colors)), "its colours are not in order")
        tiles = {name.partition(":")[2]: a for name, a in arrays.items() if name[:5] == "tile:"}
        _expect(len(tiles) == len(arrays), "it has members that do not belong to it")
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = error if isinstance(error, WaferError) else f"damaged ({type(error).__name__})"
        raise WaferError(f"{path}: {what}") from None
    validate(program)
    return program, tiles


def _read_archive(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > MAX_BYTES:
                raise WaferError(f"{path}: unpacks to {size} bytes, over the limit of {MAX_BYTES}")
            return {
                name.removesuffix(".npy"): np.load(
                    io.BytesIO(archive.read(name)), allow_pickle=False
                )
                for name in archive.namelist()
            }
    except FileNotFoundError:
        raise WaferError(f"{path}: no such file") from None
    except OSError as error:
        raise WaferError(f"cannot read {path}: {error.strerror or error}") from None
    except WaferError:
        raise
    except Exception as error:
        # zipfile and the npy reader raise a dozen types on damaged files.
        raise WaferError(
            f"{path}: not a program file, or damaged ({type(error).__name__})"
        ) from None


def _encode_role(role: Role) -> dict[str, Any]:
    return {
        "name": role.name,
        "threads": [[_encode_event(e) for e in events] for events in role.threads],
        "tiles": [asdict(tile) for tile in role.tiles.values()],
        "queues": [[sorted(q.output.items()), sorted(q.input.items())] for q in role.queues],
    }


def _encode_event(event: Event) -> dict[str, Any]:
    out: dict[str, Any] = {"op": type(event).__name__}
    for f in fields(event):
        value = getattr(event, f.name)
        if isinstance(value, Kernel):
            value = value.name
        elif isinstance(value, tuple):
            value = [_encode_operand(o) for o in value]
        elif isinstance(value, Register | Slice):
            value = _encode_operand(value)
        out[f.name] = value
    return out


def _encode_operand(value: Any) -> Any:
    if isinstance(value, Register):
        return {"register": value.index}
    if isinstance(value, Slice):
        return asdict(value) | {"words": _encode_operand(value.words)}
    if isinstance(value, Tile):
        return asdict(value)
    return value


def _role(text: dict[str, Any], kernels: dict[str, Kernel]) -> Role:
    tiles = [_tile(tile) for tile in text["tiles"]]
    _expect(len({t.name for t in tiles}) == len(tiles), "two tiles of a role share a name")
    return Role(
        name=_text(text["name"]),
        threads=tuple(tuple(_event(e, kernels) for e in events) for events in text["threads"]),
        tiles=MappingProxyType({tile.name: tile for tile in tiles}),
        queues=tuple(
            Queues(_binding(output), _binding(input_)) for output, input_ in text["queues"]
        ),
    )


def _segment(name: Any, number: int, arrays: dict[str, np.ndarray]) -> Segment:
    grids = {key: _grid(arrays.pop(f"{key}:{number}"), dtype) for key, dtype in _GRIDS.items()}
    _expect(grids["rx"].ndim > 0 and len(grids["rx"]) > 0, "a segment has no positions")
    return Segment(name=_text(name), **grids)


def _binding(pairs: list) -> MappingProxyType[int, int]:
    return MappingProxyType({_number(color): _number(queue) for color, queue in pairs})


def _event(text: dict[str, Any], kernels: dict[str, Kernel]) -> Event:
    kind = _OPERATIONS.get(_text(text["op"]))
    _expect(kind is not None, f"there is no event {text['op']!r}")
    assert kind is not None
    names = [f.name for f in fields(kind)]
    _expect(set(text) == {"op", *names}, f"event {text['op']!r} has fields {sorted(text)}")
    return kind(**{name: _field(name, text[name], kernels) for name in names})


def _field(name: str, value: Any, kernels: dict[str, Kernel]) -> Any:
    match name:
        case "kernel":
            found = kernels.get(_text(value))
            _expect(found is not None, f"kernel {value!r} is needed: give it as kernels=[...]")
            return found
        case "slice":
            return None if value is None else _slice(value)
        case "inputs" | "outputs":
            return tuple(_register(o) if "register" in o else _tile(o) for o in value)
        case "combine" | "relation" | "command":
            _expect(value in _ENUMERATED[name], f"there is no {name} {value!r}")
            return value
        case "wide":
            _expect(isinstance(value, bool), f"wide = {value!r} is neither true nor false")
            return value
        case "words" | "cycles" | "segment":
            return _register(value) if isinstance(value, dict) else _number(value)
    return _number(value)


def _slice(text: dict[str, Any]) -> Slice:
    words = text["words"]
    return Slice(
        offset=_number(text["offset"]),
        stride=_number(text["stride"]),
        words=_register(words) if isinstance(words, dict) else _number(words),
        dtype=_dtype(text["dtype"]),
    )


def _tile(text: dict[str, Any]) -> Tile:
    shape = tuple(_number(n) for n in text["shape"])
    _expect(all(n >= 1 for n in shape), f"a tile has shape {shape}")
    offset = _number(text["offset"])
    _expect(offset >= 0, f"a tile lies at word {offset}")
    return Tile(name=_text(text["name"]), offset=offset, shape=shape, dtype=_dtype(text["dtype"]))


def _hardware(values: dict[str, Any]) -> HardwareSpec:
    return spec_from_values(values, "hw")


def _grid(array: np.ndarray, dtype: type) -> np.ndarray:
    _expect(array.dtype == dtype, f"an array has type {array.dtype}, not {np.dtype(dtype)}")
    return array


def _register(text: dict[str, Any]) -> Register:
    _expect(set(text) == {"register"}, f"{text!r} is no register")
    return Register(_number(text["register"]))


def _dtype(value: Any) -> str:
    _expect(isinstance(value, str) and value in DTYPE_BYTES, f"there is no element type {value!r}")
    return value


def _text(value: Any) -> str:
    _expect(isinstance(value, str) and len(value) <= 1000, "a name is no text, or too long")
    return value


def _number(value: Any) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    _expect(whole and -_INT <= value < _INT, f"{value!r} is no 32-bit number")
    return value


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise WaferError(message)
