"""Model families: checkpoints, configurations, the dense reference, and their place on a mesh."""

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from wafer_jax.models.model_configs import model_config, model_names
from wafer_jax.models.perplexity import perplexity

if TYPE_CHECKING:
    from wafer_jax.models.model import Model, load
    from wafer_jax.models.placement import place
    from wafer_jax.models.tuner import autotune

__all__ = ["Model", "autotune", "load", "model_config", "model_names", "perplexity", "place"]

_HOMES = {"Model": "model", "load": "model", "place": "placement", "autotune": "tuner"}


def __getattr__(name: str):
    """Import these on first use: what places a configuration needs no weights, no tokenizer."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"wafer_jax.models.{_HOMES[name]}"), name)
    if not name.startswith("_") and find_spec(f"wafer_jax.models.{name}"):
        return importlib.import_module(f"wafer_jax.models.{name}")
    raise AttributeError(f"module 'wafer_jax.models' has no attribute {name!r}")
