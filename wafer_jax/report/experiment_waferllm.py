"""WaferLLM's table 2: requests from the prompt's first token to the answer's last.

Tokens/s are the answer's tokens over the time of prefill and decode, each as tables 3 and 4 count
it: cycles of a layer times the number of layers. The context of decode stays the prompt's, as in
the published kernel, whose KV cache neither grows nor shifts.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from wafer_jax.hardware import hardware
from wafer_jax.report.experiment import Experiment, Progress, Section, settings
from wafer_jax.report.experiment_rows import with_bar
from wafer_jax.report.experiment_waferllm_claims import request_statements
from wafer_jax.report.provenance import provenance
from wafer_jax.report.waferllm_rates import (
    GPUS,
    OWN,
    WAFER_SYSTEMS,
    Phase,
    bar_of,
    costs,
    gpu_tokens_per_s,
    level_of,
)
from wafer_jax.report.waferllm_turns import turns_section

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "waferllm-table-2"
SUMMARY = "Whole requests to four models on a WSE-2: WaferLLM, T10, Ladder, A100s, and re-layouts"


@dataclass(frozen=True)
class Settings:
    """Keys of the configuration."""

    preset: str
    models: tuple[str, ...]
    requests: tuple[list[int], ...]
    prefill_grid: int
    decode_grids: dict[str, int]
    baseline_decode_grid: int
    gpus: tuple[int, ...]
    published: tuple[list, ...]


_NOTE = """\
Prefill of all on 660 x 660. Decode: grid; the paper has figures of LLaMA3-8B only, the grids of \
the two largest models are the smallest of table 4. The layers alone are counted: embedding, head, \
hand-offs between regions and the re-layout are not, as in the per-phase tables."""
_BOUND_NOTE = """\
Ours is a roofline. All columns of the paper but 4096/4096 are about half of what its per-phase \
tables imply."""


def experiment(quick: bool, progress: Progress) -> Experiment:
    """Do it; nothing of it runs on the fabric, ``quick`` or not."""
    chosen = settings(NAME, quick, Settings)
    progress("closed forms")
    figures = _figures(chosen)
    shown = lambda system: figures.query("system == @system").drop(columns="system")
    barred = lambda system: with_bar(_table(shown(system)), bar_of(system, "request"))
    what = "whole requests: tokens/s (paper: published)"
    wafer = [Section(f"{s}, {what}", _table(shown(s)) if s == OWN else barred(s),
                     _NOTE if s == "WaferLLM" else "")
             for s in WAFER_SYSTEMS]  # fmt: skip
    gpus = Section(f"{GPUS}, {what}", _table(shown(GPUS), "GPUs"), _BOUND_NOTE)
    turns = turns_section(chosen.preset, chosen.decode_grids, max(p for p, _ in chosen.requests))
    return Experiment(
        name=NAME,
        title="Whole requests (WaferLLM, table 2)",
        origin=provenance(hardware(chosen.preset), level="cost") | {"mesh": None},
        sections=(*wafer, gpus, turns),
        statements=request_statements(figures),
        figures=figures,
        draw=lambda figure: _draw(figure, figures),
        plot_inches=(12, 5),
    )


def _figures(chosen: Settings) -> pd.DataFrame:
    paper = {
        (model, system, gpus, *request): value
        for model, system, gpus, *values in chosen.published
        for request, value in zip(chosen.requests, values, strict=True)
    }
    rows, on_gpus = [], {model for model, system, *_ in paper if system == GPUS}
    for model in chosen.models:
        for system in (*WAFER_SYSTEMS, *([GPUS] if model in on_gpus else [])):
            for size in chosen.gpus if system == GPUS else [_decode_grid(chosen, model, system)]:
                for prompt, answer in chosen.requests:
                    ours = answer / _seconds(chosen, model, system, size, prompt, answer)
                    gpus = size if system == GPUS else 0
                    value = paper.get((model, system, gpus, prompt, answer))
                    rows.append({
                        "model": model,
                        "system": system,
                        "size": size,
                        "prompt": prompt,
                        "answer": answer,
                        "paper_tokens_per_s": value,
                        "tokens_per_s": ours,
                        "error_percent": None if value is None else 100 * (ours / value - 1),
                        "constants": "" if value is None else "held out",
                        "level": level_of(system),
                    })  # fmt: skip
    return pd.DataFrame(rows)


def _decode_grid(chosen: Settings, model: str, system: str) -> int:
    mesh = system in ("WaferLLM", OWN)
    return chosen.decode_grids[model] if mesh else chosen.baseline_decode_grid


def _seconds(
    chosen: Settings, model: str, system: str, size: int, prompt: int, answer: int
) -> float:
    def rate(phase: Phase) -> float:
        if system == GPUS:
            return gpu_tokens_per_s(phase, model, size, prompt)
        side = chosen.prefill_grid if phase == "prefill" else size
        return costs(system, phase, chosen.preset, model, side, prompt).layers_tokens_per_s

    return prompt / rate("prefill") + answer / rate("decode")


def _table(rows: pd.DataFrame, size: str = "grid") -> pd.DataFrame:
    rows = rows.drop(columns="constants")
    return rows.rename(columns={"size": size, "tokens_per_s": "ours_tokens_per_s"})


def _draw(figure: "Figure", figures: pd.DataFrame) -> None:
    models = figures["model"].drop_duplicates()
    panels = figure.subplots(1, len(models), squeeze=False, sharey=True)[0]
    systems = {"WaferLLM": "#3b6fb6", OWN: "#9dbbe3", "T10": "#e08a2e", "Ladder": "#3d8f4b"}
    for axes, model in zip(panels, models, strict=True):
        for i, (system, color) in enumerate(systems.items()):
            rows = figures.query("model == @model and system == @system").reset_index()
            place = rows.index + 0.2 * i
            axes.bar(place, rows["tokens_per_s"], width=0.2, color=color, label=system)
            axes.plot(place, rows["paper_tokens_per_s"], "kx")
        axes.plot([], [], "kx", label="paper")
        axes.set_yscale("log")
        axes.set_title(model, fontsize=10)
        ticks = [f"{p}/{a}" for p, a in zip(rows["prompt"], rows["answer"], strict=True)]
        axes.set_xticks(rows.index + 0.3, ticks, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("tokens/s per request")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle("Prompt/answer, whole requests on a WSE-2 (bars: level cost)", fontsize=11)
