"""Tokens per second of WaferLLM, its baselines and A100s: the paper's and ours, row by row."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Literal

import numpy as np
import pandas as pd

from wafer_jax.hardware import hardware
from wafer_jax.models import mesh_costs
from wafer_jax.models.mesh_costs import PhaseCosts
from wafer_jax.models.model_configs import model_config
from wafer_jax.models.placement import place
from wafer_jax.models.published import a100, ladder, t10, waferllm

Phase = Literal["prefill", "decode"]

OWN = "own operators"
"""Of this package, on the same region: what a kernel of ours would take."""
GPUS = "A100"
BARS = {"prefill": 12.0, "decode": 6.0, "request": 12.0}
"""Percent by which WaferLLM's rates may be off."""
BASELINE_BAR = 30.0
"""The same of its baselines."""
WAFER_SYSTEMS = ("WaferLLM", "T10", "Ladder", OWN)
_KERNELS = {"WaferLLM": waferllm, "T10": t10, "Ladder": ladder}


@cache
def costs(system: str, phase: Phase, preset: str, model: str, side: int, tokens: int) -> PhaseCosts:
    """Cycles of one phase on a square region per layer.

    Args:
      system: One of `WAFER_SYSTEMS`.
      phase: "prefill" or "decode".
      preset: Of the machine.
      model: A name of `model_config`.
      side: PEs of a side.
      tokens: Of the prompt, or in the KV cache.
    """
    hw, config = hardware(preset, (side, side)), model_config(model)
    if system == OWN:
        placement = place(config, hw, dtype="float16")
        count = mesh_costs.prefill_costs if phase == "prefill" else mesh_costs.decode_costs
        return count(placement, tokens)
    kernels = _KERNELS[system]
    count = kernels.prefill_costs if phase == "prefill" else kernels.decode_costs
    return count(hw, config, tokens)


def gpu_tokens_per_s(phase: Phase, model: str, gpus: int, tokens: int) -> float:
    """Roofline of so many A100s."""
    bound = a100.prefill_tokens_per_s if phase == "prefill" else a100.decode_tokens_per_s
    return bound(model_config(model), tokens, gpus)


def phase_figures(
    phase: Phase,
    preset: str,
    models: Iterable[str],
    sides: Iterable[int],
    gpus: Iterable[int],
    tokens: int,
    published: Iterable[list],
    fitted: Iterable[list],
) -> pd.DataFrame:
    """One row per model, system and size.

    Args:
      phase: "prefill" or "decode".
      preset: Of the machine.
      models: Names of `model_config`.
      sides: PEs of a side.
      gpus: Numbers of A100s.
      tokens: Of the prompt, or in the KV cache.
      published: Model, system, PEs of a side or GPUs, and the paper's tokens/s.
      fitted: Model, system and size of the rows that constants were fitted to.

    Returns:
      Columns model, system, size, paper_tokens_per_s, tokens_per_s, error_percent, constants,
      level.
    """
    paper = {tuple(key): value for *key, value in published}
    known = {tuple(key) for key in fitted}
    rows = []
    for model in models:
        for system in (*WAFER_SYSTEMS, GPUS):
            rate = _rate_of(system, phase, preset, model, tokens)
            for size in gpus if system == GPUS else sides:
                key = model, system, size
                rows.append(figure_row(key, paper.get(key), rate(size), key in known))
    return pd.DataFrame(rows)


def figure_row(
    key: tuple[str, str, int], paper: float | None, ours: float, fitted: bool
) -> dict[str, str | int | float | None]:
    """A row of the figures."""
    model, system, size = key
    return {
        "model": model,
        "system": system,
        "size": size,
        "paper_tokens_per_s": paper,
        "tokens_per_s": ours,
        "error_percent": None if paper is None else 100 * (ours / paper - 1),
        "constants": "" if paper is None else "fitted" if fitted else "held out",
        "level": level_of(system),
    }


def level_of(system: str) -> str:
    """Of our figures: a roofline is no level of the emulator."""
    return "roofline" if system == GPUS else "cost"


def bar_of(system: str, what: str) -> float:
    """Percent by which a system's rates may be off in a "prefill", "decode" or "request"."""
    return BARS[what] if system == "WaferLLM" else BASELINE_BAR


def _rate_of(
    system: str, phase: Phase, preset: str, model: str, tokens: int
) -> Callable[[int], float]:
    if system == GPUS:
        return lambda gpus: gpu_tokens_per_s(phase, model, gpus, tokens)
    return lambda side: costs(system, phase, preset, model, side, tokens).layers_tokens_per_s


def shown_rates(figures: pd.DataFrame, system: str) -> pd.DataFrame:
    """The rows of one wafer system as a table; beside WaferLLM's, those of our own operators."""
    rows = figures.query("system == @system").drop(columns="system")
    if system == "WaferLLM":
        own = np.array(figures.query("system == @OWN")["tokens_per_s"])
        rows.insert(5, "own_operators_tokens_per_s", own)
        rows.insert(6, "own / ours", (own / np.array(rows["tokens_per_s"])).round(2))
    return rows.rename(columns={"size": "grid", "tokens_per_s": "ours_tokens_per_s"})


def shown_bounds(figures: pd.DataFrame) -> pd.DataFrame:
    """The rows of the GPUs as a table."""
    rows = figures.query("system == @GPUS").drop(columns=["system", "constants"])
    return rows.rename(columns={"size": "GPUs", "tokens_per_s": "bound_tokens_per_s"})
