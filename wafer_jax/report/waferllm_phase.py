"""What WaferLLM's tables 3 (prefill) and 4 (decode) share: settings, sections and the plot."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from wafer_jax.report.experiment import Section
from wafer_jax.report.experiment_rows import with_bar
from wafer_jax.report.waferllm_rates import (
    GPUS,
    OWN,
    WAFER_SYSTEMS,
    Phase,
    bar_of,
    phase_figures,
    shown_bounds,
    shown_rates,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Settings:
    """Keys of the configuration."""

    preset: str
    tokens: int
    grids: tuple[int, ...]
    models: tuple[str, ...]
    gpus: tuple[int, ...]
    published: tuple[list, ...]
    fitted: tuple[list, ...]


PLOT_INCHES = (12, 5)
_STYLES = {
    "WaferLLM": ("#3b6fb6", "-"),
    OWN: ("#3b6fb6", ":"),
    "T10": ("#e08a2e", "-"),
    "Ladder": ("#3d8f4b", "-"),
}

_RATES_NOTE = """\
grid: PEs of a side of a layer's region. fitted: a constant was fitted to this row; held out: to \
none. Rows without a figure of the paper are predictions."""
_OWN_NOTE = """\
own operators: what this package's own operators take on the same region (heads in regions of \
their own, keys and values as many as the model has, words passed on at once)."""
_BOUND_NOTE = """\
Ours is a roofline, the rate that no server can exceed: 312 TFLOP/s and 2.039 TB/s per GPU, shared \
for free (models/published/a100.py). What GPUs send each other is not modelled, so its error grows \
with their number."""


def figures_of(chosen: Settings, phase: Phase) -> pd.DataFrame:
    """One row per model, system and size, see `phase_figures`."""
    return phase_figures(
        phase,
        chosen.preset,
        chosen.models,
        chosen.grids,
        chosen.gpus,
        chosen.tokens,
        chosen.published,
        chosen.fitted,
    )


def sections(figures: pd.DataFrame, phase: str, tokens: int) -> tuple[Section, ...]:
    """A table per system."""
    what = f"{phase}, {tokens:,} tokens: tokens/s per request (paper: published)"
    notes = {"WaferLLM": f"{_RATES_NOTE}\n{_OWN_NOTE}"}
    wafer = [
        Section(
            f"{system}, {what}",
            with_bar(shown_rates(figures, system), bar_of(system, phase.lower())),
            notes.get(system, ""),
        )
        for system in WAFER_SYSTEMS
        if system != OWN
    ]
    return (*wafer, Section(f"{GPUS}, {what}", shown_bounds(figures), _BOUND_NOTE))


def draw(figure: "Figure", figures: pd.DataFrame, title: str) -> None:
    """A panel per model, tokens/s over the grid."""
    models = figures["model"].drop_duplicates()
    panels = figure.subplots(1, len(models), squeeze=False, sharex=True, sharey=True)[0]
    for axes, model in zip(panels, models, strict=True):
        for system, (color, line) in _STYLES.items():
            rows = figures.query("model == @model and system == @system")
            axes.semilogy(rows["size"], rows["tokens_per_s"], line, color=color, label=system)
            axes.semilogy(rows["size"], rows["paper_tokens_per_s"], "x", color=color)
        axes.plot([], [], "kx", label="paper")
        axes.set_title(model, fontsize=10)
        axes.set_xticks(rows["size"])
        axes.set_xlabel("PEs of a side")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92")
    panels[0].set_ylabel("tokens/s per request")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle(title, fontsize=11)
