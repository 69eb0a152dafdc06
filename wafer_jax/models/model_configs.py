"""Configurations of published models, known by name; their weights are not needed."""

from functools import cache
from typing import Any

from wafer_jax.arguments import shown
from wafer_jax.errors import WaferError
from wafer_jax.hardware import configs_dir
from wafer_jax.models import families
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.hf_folder import read_json


def model_names() -> tuple[str, ...]:
    """Names that `model_config` accepts."""
    return tuple(_entries())


def model_config(name: str) -> DecoderConfig:
    """Read the configuration of a published model.

    Args:
      name: One of `model_names`, such as "llama3-8b".

    Returns:
      The configuration, as its Hugging Face ``config.json`` defines it.

    Raises:
      WaferError: An unknown name.
    """
    return families.read_config(_entry(name)["config"], where=f"{name}.json")


def model_source(name: str) -> str:
    """Where a configuration comes from.

    Raises:
      WaferError: An unknown name.
    """
    return _entry(name)["source"]


def _entry(name: str) -> dict[str, Any]:
    if not isinstance(name, str) or name not in _entries():
        raise WaferError(f"unknown model {shown(name)}; known are {', '.join(_entries())}")
    return _entries()[name]


@cache
def _entries() -> dict[str, dict[str, Any]]:
    """Of every file its source and its configuration."""
    paths = sorted((configs_dir() / "models").glob("*.json"))
    return {path.stem: read_json(path) for path in paths}
