"""Model families: checkpoints, configurations, the dense reference, and their place on a mesh."""

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from wafer_jax.models.families import FAMILIES
from wafer_jax.models.model_configs import model_config, model_names
from wafer_jax.models.perplexity import perplexity

if TYPE_CHECKING:
    from wafer_jax.models.capacity import what_fits
    from wafer_jax.models.checkpoints import load_config
    from wafer_jax.models.mesh_costs import decode_costs, prefill_costs
    from wafer_jax.models.model import Model, load
    from wafer_jax.models.parameters import num_parameters
    from wafer_jax.models.placement import place
    from wafer_jax.models.tuner import autotune

__all__ = [
    "FAMILIES",
    "Model",
    "autotune",
    "decode_costs",
    "load",
    "load_config",
    "model_config",
    "model_names",
    "num_parameters",
    "perplexity",
    "place",
    "prefill_costs",
    "what_fits",
]

_HOMES = {
    "Model": "model",
    "autotune": "tuner",
    "decode_costs": "mesh_costs",
    "load": "model",
    "load_config": "checkpoints",
    "num_parameters": "parameters",
    "place": "placement",
    "prefill_costs": "mesh_costs",
    "what_fits": "capacity",
}


def __getattr__(name: str):
    """Import these on first use: what places a configuration needs no weights, no tokenizer."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"wafer_jax.models.{_HOMES[name]}"), name)
    if not name.startswith("_") and find_spec(f"wafer_jax.models.{name}"):
        return importlib.import_module(f"wafer_jax.models.{name}")
    raise AttributeError(f"module 'wafer_jax.models' has no attribute {name!r}")
