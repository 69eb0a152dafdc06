"""Long runs: checkpoints and resuming."""

from wafer_jax.runtime.checkpoint import load, save
from wafer_jax.runtime.long_run import Interrupted, resume, run

__all__ = ["Interrupted", "load", "resume", "run", "save"]
