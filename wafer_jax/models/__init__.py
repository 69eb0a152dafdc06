"""Model families: checkpoints, configurations, the dense reference, and their place on a mesh."""

from wafer_jax.models.model import Model, load
from wafer_jax.models.perplexity import perplexity

__all__ = ["Model", "load", "perplexity"]
