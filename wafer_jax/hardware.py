"""Hardware specifications: one frozen dataclass, presets in YAML that may extend each other.

A spec is static under jit, so every field is hashable. Cycles are the primary unit; seconds and
joules are derived from ``clock_hz`` and ``power_watts``.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from wafer_jax.errors import WaferError

N, E, S, W, RAMP = range(5)
"""Router directions; y grows south and x grows east."""
OPPOSITE = (S, W, N, E, RAMP)
STEP_YX = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""(dy, dx) of one hop in direction N, E, S, W."""
DIRECTION_NAMES = ("N", "E", "S", "W", "RAMP")


class _BytesOf(dict[str, int]):
    """Refuses other element types in a line, wherever they are looked up."""

    def __missing__(self, dtype: str) -> int:
        raise WaferError(f"dtype {dtype!r} is none of {', '.join(self)}")


DTYPE_BYTES = _BytesOf(float32=4, float16=2, bfloat16=2)
MAX_SWITCH_POSITIONS = 4
SWITCH_CHANGES = ("one side", "both sides")

WORD_BYTES = 4
"""A wavelet and a word of SRAM: 32 bits, one float32 or two 16-bit elements."""


@dataclass(frozen=True, kw_only=True)
class HardwareSpec:
    """A mesh of PEs, each with a router, SRAM and a few threads.

    Attributes:
      name: Preset that the spec started from.
      mesh: ``(Y, X)`` PEs in use; at most ``device_mesh``.
      device_mesh: ``(Y, X)`` PEs that a program can occupy on the device.
      clock_hz: Cycles per second.
      hop_cycles: Latency of a link between neighbouring routers.
      ramp_cycles: Latency of the RAMP between router and PE, each way (T_R in Luczynski et al.).
      colors: Colours that a program may use.
      address_bits: Bits of a header's address code; 2^bits is the paper's count of routes.
      router_depth: Words that a router holds per colour.
      input_queue_depths: Words per input queue; its length is the number of input queues.
      output_queue_depths: Words per output queue; its length is the number of output queues.
      switch_positions: Routes that a switch may have, per PE and colour.
      switch_changes: "one side" if a position differs from position 0 in its receive or in its
        transmit side, "both sides" if in either or both.
      threads: Threads per PE.
      sram_bytes: SRAM per PE.
      reserved_bytes: Part of it that code and the vendor's runtime take.
      stream_setup_cycles: Cycles between the start of a stream op and its first word.
      launch_cycles: Cycles that a core spends to start one asynchronous stream or one vector
        instruction that stands alone.
      task_cycles: Cycles from the end of an asynchronous stream to the first instruction of the
        task that it activates.
      vector_setup_cycles: Fixed cost of one vector instruction of many (issue, decode, completion).
      simd_bytes: Bytes of 16-bit elements that arithmetic retires per vector_group_cycles.
      vector_group_cycles: Cycles per such group of elements.
      fma32_cycles: Cycles per element of a float32 multiply-add, operands in different banks.
      copy_bytes_per_cycle: Bytes that a copy within the SRAM moves per cycle.
      bank_conflict_factor: By how much longer an element takes whose operands share a bank.
      host_link_bytes_per_s: Bandwidth between host and device.
      power_watts: Power of the whole device.
    """

    name: str
    mesh: tuple[int, int]
    device_mesh: tuple[int, int]
    clock_hz: float
    hop_cycles: int
    ramp_cycles: int
    colors: int
    address_bits: int
    router_depth: int
    input_queue_depths: tuple[int, ...]
    output_queue_depths: tuple[int, ...]
    switch_positions: int
    switch_changes: str
    threads: int
    sram_bytes: int
    reserved_bytes: int
    stream_setup_cycles: int
    launch_cycles: int
    task_cycles: int
    vector_setup_cycles: float
    simd_bytes: int
    vector_group_cycles: float
    fma32_cycles: float
    copy_bytes_per_cycle: float
    bank_conflict_factor: float
    host_link_bytes_per_s: float
    power_watts: float
    sources: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)

    def replace(self, **changes: Any) -> "HardwareSpec":
        """Return a validated copy with the given fields changed: a what-if.

        Raises:
          WaferError: An unknown field or a value out of range.
        """
        unknown = set(changes) - {f.name for f in fields(self)}
        if unknown:
            raise WaferError(_unknown_keys(unknown, f"preset {self.name!r}"))
        spec = replace(self, **{k: _coerce(k, v, self.name) for k, v in changes.items()})
        spec.validate()
        return spec

    def validate(self) -> None:
        """Raise ``WaferError`` if a field is out of range, naming it."""
        for name, low, high in _RANGES:
            for value in _flat(getattr(self, name)):
                if not low <= value <= high:
                    raise WaferError(f"{self.name}: {name} = {value} is not in {low} .. {high}")
        (y, x), (dev_y, dev_x) = self.mesh, self.device_mesh
        if y > dev_y or x > dev_x:
            raise WaferError(
                f"mesh {y}x{x} is larger than the device {self.name} ({dev_y}x{dev_x} PEs): "
                f"choose a mesh of at most {dev_y} rows and {dev_x} columns"
            )
        if self.reserved_bytes >= self.sram_bytes:
            raise WaferError(f"{self.name}: reserved_bytes must be below sram_bytes")
        if self.switch_changes not in SWITCH_CHANGES:
            raise WaferError(
                f"{self.name}: switch_changes = {self.switch_changes!r} is none of {SWITCH_CHANGES}"
            )

    @property
    def num_pes(self) -> int:
        """PEs of the mesh in use."""
        return self.mesh[0] * self.mesh[1]

    @property
    def data_bytes(self) -> int:
        """SRAM per PE that tiles may use."""
        return self.sram_bytes - self.reserved_bytes

    @property
    def hash(self) -> str:
        """Ten hex digits that identify the resolved spec in results."""
        values = {k: v for k, v in asdict(self).items() if k != "sources"}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]

    def seconds(self, cycles: float) -> float:
        """Convert cycles to seconds at ``clock_hz``."""
        return cycles / self.clock_hz

    def vector_cycles(self, elements: int, dtype: str = "float32") -> float:
        """Cycles of one vector instruction of many, over ``elements`` contiguous elements.

        ``vector_setup_cycles`` and `fma_cycles`: the model that the MeshGEMM sweeps on the
        vendor's WSE-3 simulator give (6.4 + 2 ceil(n / 8) for 16-bit elements).
        """
        return self.vector_setup_cycles + self.fma_cycles(elements, dtype)

    def fma_cycles(self, elements: int, dtype: str = "float32") -> float:
        """Cycles of multiply-adds (or adds) on a vector, without set-up or bank conflicts.

        16-bit elements go in groups of ``simd_bytes``, float32 ones one after another.
        """
        if dtype == "float32":
            return self.fma32_cycles * elements
        return self.vector_group_cycles * -(-elements * DTYPE_BYTES[dtype] // self.simd_bytes)

    def copy_cycles(self, elements: int, dtype: str = "float32") -> float:
        """Cycles of one vector instruction of many that copies ``elements`` within the SRAM."""
        size = elements * DTYPE_BYTES[dtype]
        return self.vector_setup_cycles + size / self.copy_bytes_per_cycle


_RANGES = (
    ("mesh", 1, 1 << 14),
    ("device_mesh", 1, 1 << 14),
    ("clock_hz", 1.0, 1e12),
    ("hop_cycles", 1, 16),
    ("ramp_cycles", 1, 15),
    ("colors", 1, 1 << 14),
    ("address_bits", 1, 16),
    ("router_depth", 1, 64),
    ("input_queue_depths", 1, 64),
    ("output_queue_depths", 1, 64),
    ("switch_positions", 1, MAX_SWITCH_POSITIONS),
    ("threads", 1, 16),
    ("sram_bytes", 64, 1 << 30),
    ("reserved_bytes", 0, 1 << 30),
    ("stream_setup_cycles", 0, 1 << 16),
    ("launch_cycles", 0, 1 << 16),
    ("task_cycles", 0, 1 << 16),
    ("vector_setup_cycles", 0.0, 1e6),
    ("simd_bytes", 4, 1 << 12),
    ("vector_group_cycles", 0.0, 1e6),
    ("fma32_cycles", 0.0, 1e6),
    ("copy_bytes_per_cycle", 0.01, 1e6),
    ("bank_conflict_factor", 1.0, 1e3),
    ("host_link_bytes_per_s", 1.0, 1e15),
    ("power_watts", 0.0, 1e9),
)


def _flat(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def _unknown_keys(unknown: set[str], where: str) -> str:
    known = sorted(f.name for f in fields(HardwareSpec) if f.name != "sources")
    return f"{where}: unknown key {', '.join(sorted(unknown))}; known keys are {', '.join(known)}"


def _coerce(key: str, value: Any, where: str) -> Any:
    """Check ``value`` against the field's annotation; YAML ints may stand for floats."""
    if key == "sources":
        return value
    kind = _kinds()[key]
    try:
        if get_origin(kind) is tuple:
            length = len(get_args(kind)) if get_args(kind)[-1] is not Ellipsis else None
            out = tuple(_number(int, v) for v in value)
            if not out or (length and len(out) != length):
                raise TypeError
            return out
        if kind is str:
            if not isinstance(value, str):
                raise TypeError
            return value
        return _number(kind, value)
    except TypeError:
        wanted = "a whole number" if kind is int else "a number" if kind is float else "text"
        wanted = "a list of whole numbers" if get_origin(kind) is tuple else wanted
        raise WaferError(f"{where}: {key} = {value!r} is not {wanted}") from None


@cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(HardwareSpec)


def _number(kind: type, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
        raise TypeError
    return kind(value)


def configs_dir() -> Path:
    """Folder of the shipped configurations, in a checkout or an installed wheel."""
    installed = Path(str(resources.files("wafer_jax"))) / "configs"
    return installed if installed.is_dir() else Path(__file__).parent.parent / "configs"


def preset_names() -> tuple[str, ...]:
    """Names that ``hardware`` accepts."""
    return tuple(sorted(p.stem for p in (configs_dir() / "hardware").glob("*.yaml")))


def hardware(preset: str = "wse2", mesh: tuple[int, int] | None = None) -> HardwareSpec:
    """Load a preset, optionally restricted to a mesh of ``(Y, X)`` PEs.

    Raises:
      WaferError: Unknown preset, or a mesh larger than the device.
    """
    spec = _load_preset(preset)
    return spec if mesh is None else spec.replace(mesh=mesh)


@cache
def _load_preset(preset: str) -> HardwareSpec:
    if preset not in preset_names():
        raise WaferError(f"unknown preset {preset!r}; known presets: {', '.join(preset_names())}")
    return load_spec(configs_dir() / "hardware" / f"{preset}.yaml")


def load_spec(path: str | Path) -> HardwareSpec:
    """Read a spec from YAML: every key a field, each ``{value, source}`` or a bare value.

    ``extends: NAME`` starts from the keys of NAME.yaml beside it, which may extend another.

    Raises:
      WaferError: Unreadable file, unknown or missing key, wrong type, value out of range, presets
        that extend each other in a circle.
    """
    path = Path(path)
    values, sources = _read_yaml(path)
    return spec_from_values(values, path.name, sources)


def spec_from_values(
    values: dict[str, Any], where: str, sources: dict[str, str] | None = None
) -> HardwareSpec:
    """Make a validated spec from plain values; ``mesh`` defaults to the whole device.

    Args:
      values: By key, as YAML or JSON has them.
      where: Named in errors.
      sources: Of the figures, by key.

    Raises:
      WaferError: Unknown or missing key, wrong type, value out of range.
    """
    known = {f.name for f in fields(HardwareSpec)} - {"sources"}
    if unknown := set(values) - known:
        raise WaferError(_unknown_keys(unknown, where))
    if missing := known - {"mesh"} - set(values):
        raise WaferError(f"{where}: missing key {', '.join(sorted(missing))}")
    values = {"mesh": values["device_mesh"]} | values
    spec = HardwareSpec(
        **{k: _coerce(k, v, where) for k, v in values.items()},
        sources=tuple(sorted((sources or {}).items())),
    )
    spec.validate()
    return spec


def _read_yaml(
    path: Path, extended_by: tuple[str, ...] = ()
) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise WaferError(f"cannot read {path}: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(document, dict):
        raise WaferError(f"{path.name}: expected a mapping of keys to values")
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    base = document.pop("extends", None)
    if base is not None:
        if not isinstance(base, str) or not base.isidentifier():
            raise WaferError(f"{path.name}: 'extends' takes the name of one preset beside it")
        chain = (*extended_by, path.stem)
        if base in chain:
            raise WaferError(
                f"{path.name}: presets extend each other in a circle: {' -> '.join((*chain, base))}"
            )
        values, sources = _read_yaml(path.parent / f"{base}.yaml", chain)
    for key, entry in document.items():
        if isinstance(entry, dict):
            if set(entry) - {"value", "source"} or "value" not in entry:
                raise WaferError(f"{path.name}: {key} must be a value or {{value, source}}")
            sources[key] = str(entry.get("source", ""))
            entry = entry["value"]
        values[key] = entry
    return values, sources
