"""What WaferLLM's tables 7 and 8 share: whole models on a WSE-2 and on A100s, speed and energy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from wafer_jax.hardware import HardwareSpec, hardware
from wafer_jax.report import experiment_rows
from wafer_jax.report.experiment import Experiment, Progress, Section, Statement, settings
from wafer_jax.report.gpu_energy import energy_ratio, gpu_name
from wafer_jax.report.provenance import provenance
from wafer_jax.report.waferllm_rates import Phase, costs, gpu_tokens_per_s

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Settings:
    """Keys of the configuration."""

    preset: str
    side: int
    tokens: int
    gpus: tuple[int, ...]
    published: tuple[list, ...]
    gpu_watts: float
    bar: float


@dataclass(frozen=True, kw_only=True)
class Table:
    """Prefill or decode.

    Attributes:
      name: Of the experiment.
      title: What it compares.
      phase: Of the costs.
      statements: From the speeds and the energies.
    """

    name: str
    title: str
    phase: Phase
    statements: Callable[[pd.DataFrame, pd.DataFrame], tuple[Statement, ...]]


_SPEED_NOTE = """\
Tokens/s of one request. Of the WSE-2 as the paper counts: cycles of one layer, times the layers. \
Roofline: the most that the GPUs' arithmetic and memory allow, without launches and without \
communication between them."""
_ENERGY_NOTE = """\
Energy of the GPUs over the wafer's, published speeds of the GPUs. Paper: its own speeds, the \
power of table 6 (15 kW against 400 W), which gives all ratios of that table; those printed in \
this one were not at hand. Ours: our speed of the wafer."""


def compare(table: Table, quick: bool, progress: Progress) -> Experiment:
    """Do the experiment of a phase."""
    chosen = settings(table.name, quick, Settings)
    hw = hardware(chosen.preset, (chosen.side, chosen.side))
    progress("cycles of a layer")
    ours = {
        model: costs("WaferLLM", table.phase, chosen.preset, model, chosen.side, chosen.tokens)
        .layers_tokens_per_s
        for model, *_ in chosen.published
    }  # fmt: skip
    speeds = experiment_rows.frame(_speed_rows(chosen, table.phase, ours))
    energies = experiment_rows.frame(_energy_rows(chosen, hw, ours))
    return Experiment(
        name=table.name,
        title=table.title,
        origin=provenance(hw, level="cost"),
        sections=(
            Section("Tokens/s of one request (level cost; A100: roofline)", speeds, _SPEED_NOTE),
            Section("Energy (level cost)", energies, _ENERGY_NOTE),
        ),
        statements=table.statements(speeds, energies),
        figures=pd.concat([speeds.assign(unit="tokens/s"), energies.assign(unit="ratio")]),
        draw=lambda figure: _draw(figure, speeds, energies),
        plot_inches=(8, 4.5),
    )


def _speed_rows(chosen: Settings, phase: Phase, ours: dict[str, float]) -> list[dict]:
    rows = []
    for model, wafer, *speeds in chosen.published:
        rows.append(experiment_rows.row(
            model=model, what="WSE-2", paper=wafer, ours=ours[model], level="cost", bar=chosen.bar
        ))  # fmt: skip
        rows += [experiment_rows.row(
            model=model, what=gpu_name(gpus), paper=speed, level="roofline",
            ours=gpu_tokens_per_s(phase, model, gpus, chosen.tokens),
        ) for gpus, speed in zip(chosen.gpus, speeds, strict=True)]  # fmt: skip
    return rows


def _energy_rows(chosen: Settings, hw: HardwareSpec, ours: dict[str, float]) -> list[dict]:
    rows = []
    for model, wafer, *speeds in chosen.published:
        for gpus, speed in zip(chosen.gpus, speeds, strict=True):
            paper, own = (
                energy_ratio(of / speed, gpus, hw, chosen.gpu_watts) for of in (wafer, ours[model])
            )
            rows.append(experiment_rows.row(
                model=model, what=f"{gpu_name(gpus)} / WSE-2", paper=paper, ours=own, level="cost",
                bar=chosen.bar,
            ))  # fmt: skip
    return rows


def _draw(figure: "Figure", speeds: pd.DataFrame, energies: pd.DataFrame) -> None:
    models = list(dict.fromkeys(speeds["model"]))
    panels = figure.subplots(2, len(models), squeeze=False, sharey="row")
    for column, model in enumerate(models):
        for axes, frame in zip(panels[:, column], (speeds, energies), strict=True):
            rows = frame[frame["model"] == model]
            for name, color, offset in (("paper", "0.6", -0.2), ("ours", "#3b6fb6", 0.2)):
                places = [n + offset for n in range(len(rows))]
                axes.bar(places, rows[name], width=0.4, color=color, label=name)
            labels = [what.removesuffix(" / WSE-2") for what in rows["what"]]
            axes.set_xticks(range(len(rows)), labels, fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
        panels[0, column].set_title(model, fontsize=10)
        panels[1, column].axhline(1, color="0.3", linewidth=0.8)
    panels[0, 0].set_ylabel("tokens/s")
    panels[0, 0].set_yscale("log")
    panels[1, 0].set_ylabel("energy over the WSE-2's")
    panels[0, -1].legend(frameon=False, fontsize=9)
    figure.suptitle("Ours: cost of the wafer, rooflines of A100s", fontsize=11)
