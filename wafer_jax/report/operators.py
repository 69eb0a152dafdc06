"""Where the cycles of a prefill or of a token go, operator by operator."""

from typing import Any

import pandas as pd

from wafer_jax.models.generation import Generation
from wafer_jax.models.mesh_costs import PhaseCosts


def breakdown(costs: PhaseCosts) -> pd.DataFrame:
    """The operators of a phase as commands print them: `PhaseCosts.frame` without its parts."""
    return costs.frame.drop(columns="part")


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
