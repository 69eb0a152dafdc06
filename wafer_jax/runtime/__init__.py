"""Long runs and sweeps: checkpoints, resuming, grids of machines, sizes and algorithms."""

from wafer_jax.runtime.algorithms import ALGORITHMS, Algorithm
from wafer_jax.runtime.checkpoint import load, save
from wafer_jax.runtime.long_run import Interrupted, resume, run
from wafer_jax.runtime.sweep_config import AlgorithmGrid, SweepConfig, load_sweep

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "AlgorithmGrid",
    "Interrupted",
    "SweepConfig",
    "load",
    "load_sweep",
    "resume",
    "run",
    "save",
]
