"""What a figure needs beside it to be repeated: version, preset, seed, level, jax."""

import importlib.metadata
from typing import Any

from wafer_jax._version import __version__
from wafer_jax.hardware import HardwareSpec


def provenance(
    hw: HardwareSpec | None = None, *, seed: int | None = None, level: str | None = None
) -> dict[str, Any]:
    """Describe where a result comes from.

    Args:
      hw: Machine, or None where none was involved.
      seed: Seed of whatever was random, or None if nothing was.
      level: "fabric", "bulk" or "cost"; None if nothing was emulated.

    Returns:
      version, preset, preset_hash (of the resolved spec), mesh, seed, level and jax_version.
    """
    return {
        "version": __version__,
        "preset": None if hw is None else hw.name,
        "preset_hash": None if hw is None else hw.hash,
        "mesh": None if hw is None else list(hw.mesh),
        "seed": seed,
        "level": level,
        "jax_version": importlib.metadata.version("jax"),
    }


def provenance_line(record: dict[str, Any]) -> str:
    """What ``provenance`` returned, in one line for people."""
    parts = [f"wafer-jax {record['version']}", f"jax {record['jax_version']}"]
    if record["preset"] is not None:
        parts.append(f"{record['preset']} {record['preset_hash']}")
    if record["seed"] is not None:
        parts.append(f"seed {record['seed']}")
    return ", ".join(parts)
