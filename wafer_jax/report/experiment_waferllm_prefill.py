"""WaferLLM's table 3: prefill of WaferLLM, T10, Ladder and A100s, by the models of each."""

from wafer_jax.hardware import hardware
from wafer_jax.report.experiment import Experiment, Progress, settings
from wafer_jax.report.experiment_waferllm_claims import prefill_statements
from wafer_jax.report.provenance import provenance
from wafer_jax.report.waferllm_phase import PLOT_INCHES, Settings, draw, figures_of, sections

NAME = "waferllm-table-3"
SUMMARY = "Prefill of four models on a WSE-2: WaferLLM, T10, Ladder, A100s, the paper's and ours"


def experiment(quick: bool, progress: Progress) -> Experiment:
    """Do it; nothing of it runs on the fabric, ``quick`` or not."""
    chosen = settings(NAME, quick, Settings)
    progress("closed forms")
    figures = figures_of(chosen, "prefill")
    return Experiment(
        name=NAME,
        title="Prefill (WaferLLM, table 3)",
        origin=provenance(hardware(chosen.preset), level="cost") | {"mesh": None},
        sections=sections(figures, "Prefill", chosen.tokens),
        statements=prefill_statements(figures),
        figures=figures,
        draw=lambda figure: draw(figure, figures, "Prefill on a WSE-2 (lines: level cost)"),
        plot_inches=PLOT_INCHES,
    )
