"""WaferLLM's table 4: decode of WaferLLM, T10, Ladder and A100s, by the models of each."""

import pandas as pd

from wafer_jax.hardware import hardware
from wafer_jax.models.mesh_costs import PhaseCosts
from wafer_jax.report.experiment import Experiment, Progress, Section, settings
from wafer_jax.report.experiment_waferllm_claims import decode_statements
from wafer_jax.report.provenance import provenance
from wafer_jax.report.waferllm_phase import PLOT_INCHES, Settings, draw, figures_of, sections
from wafer_jax.report.waferllm_rates import OWN, costs

NAME = "waferllm-table-4"
SUMMARY = "Decode of four models on a WSE-2: WaferLLM, T10, Ladder, A100s, the paper's and ours"

_LAYER_NOTE = """\
local: products and vector instructions. allreduces: everything else. The published kernels pass \
on whole messages, launch + 2 T_R + 1 + hops + words a stage (22 and the words); our own operators \
pass every word on as it comes, 2 T_R + 1 + hops a stage (6), the words once."""


def experiment(quick: bool, progress: Progress) -> Experiment:
    """Do it; nothing of it runs on the fabric, ``quick`` or not."""
    chosen = settings(NAME, quick, Settings)
    progress("closed forms")
    figures = figures_of(chosen, "decode")
    layer = Section(
        "Cycles of a layer and token, published kernels against our own operators (level cost)",
        _layers(chosen),
        _LAYER_NOTE,
    )
    return Experiment(
        name=NAME,
        title="Decode (WaferLLM, table 4)",
        origin=provenance(hardware(chosen.preset), level="cost") | {"mesh": None},
        sections=(*sections(figures, "Decode", chosen.tokens), layer),
        statements=decode_statements(figures),
        figures=figures,
        draw=lambda figure: draw(figure, figures, "Decode on a WSE-2 (lines: level cost)"),
        plot_inches=PLOT_INCHES,
    )


def _layers(chosen: Settings) -> pd.DataFrame:
    rows = []
    for model in chosen.models:
        for grid in chosen.grids:
            of = lambda system, key=(model, grid): costs(
                system, "decode", chosen.preset, *key, chosen.tokens
            )
            published, own = (_split(of(system)) for system in ("WaferLLM", OWN))
            rows.append({
                "model": model,
                "grid": grid,
                "published_local_cycles": published[0],
                "published_allreduces_cycles": published[1],
                "own_local_cycles": own[0],
                "own_allreduces_cycles": own[1],
            })  # fmt: skip
    return pd.DataFrame(rows)


def _split(phase: PhaseCosts) -> tuple[int, int]:
    local = sum(o.compute_cycles for o in phase.layer)
    return local, phase.layer_cycles - local
