"""Where the cycles of a prefill or of a token go, operator by operator."""

from typing import Any

import pandas as pd

from wafer_jax.models.generation import Generation
from wafer_jax.models.mesh_costs import PhaseCosts
from wafer_jax.report.plots import SHARES


def breakdown(costs: PhaseCosts) -> pd.DataFrame:
    """List the operators of a phase.

    Args:
      costs: The phase.

    Returns:
      One row per operator with the columns operator, times (how often it runs: once per layer, or
      once), cycles, compute_cycles, communication_cycles, idle_cycles and moved_bytes of one run,
      and share_percent, the part of the phase that all its runs take.
    """
    frame = costs.frame.drop(columns="part")
    return frame.assign(share_percent=100 * frame["cycles"] * frame["times"] / costs.cycles)


def whole_phase(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of ``breakdown`` that ``plot_operators`` draws, for all runs together."""
    shares = frame[list(SHARES)].mul(frame["times"], axis=0)
    return pd.concat([frame["operator"], shares], axis=1)


def generation_record(generation: Generation) -> dict[str, Any]:
    """A generation as plain values and frames, for JSON.

    Args:
      generation: What was generated.

    Returns:
      The model, the ids, the text, the tables of both phases, and the time in cycles of the
      machine and in seconds of the emulation.
    """
    g = generation
    return {
        "model": g.name,
        "prompt_ids": list(g.prompt_ids),
        "ids": list(g.ids),
        "text": g.text,
        "cycles_level": "cost",
        "cycles": g.cycles,
        "device_seconds": g.seconds,
        "first_token_seconds": g.first_token_s,
        "rates": g.rates,
        "operators": {
            "prefill": breakdown(g.prefill),
            "decode": breakdown(g.decode),
        },
        "emulation_prefill_seconds": g.prefill_s,
        "emulation_decode_seconds": g.decode_s,
    }
