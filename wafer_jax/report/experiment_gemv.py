"""WaferLLM's figure 10: MeshGEMV against GEMVs with other allreduces, cycles by closed forms.

The vendor's GEMV is taken as the local product and a pipeline allreduce (section 6.1). *Whole
messages*: cores that pass on a message when they have all of it, as WaferLLM's published allreduce
does (`message_cost`); the programs here pass on every word at once.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from wafer_jax.collectives import gemv, gemv_pipeline, gemv_ring, message_cost
from wafer_jax.collectives.gemv_local import cost_parts, tile_shape
from wafer_jax.hardware import hardware
from wafer_jax.report import experiment_rows
from wafer_jax.report.experiment import Experiment, Progress, Section, overlap, settings
from wafer_jax.report.experiment_gemv_claims import READ_OFF_BAR, statements
from wafer_jax.report.provenance import provenance
from wafer_jax.runtime.sweep_config import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "waferllm-figure-10"
SUMMARY = "MeshGEMV against GEMVs with pipeline and ring allreduce on a WSE-2, 2K to 16K"
_DTYPE = "float16"
_MESSAGES = ("K=2 messages", "pipeline messages")


@dataclass(frozen=True)
class Settings:
    """Keys of the configuration."""

    preset: str
    sizes: tuple[int, ...]
    grids: tuple[int, ...]
    phases: tuple[int, ...]
    read_offs: tuple[list[int], ...]
    fabric_phases: tuple[int, ...]
    fabric_sizes: tuple[int, ...]
    fabric_grids: tuple[int, ...]


_STYLES = {
    "K=1": ("#9bb7d9", "-"),
    "K=2": ("#3b6fb6", "-"),
    "K=3": ("#2a9d9a", "-"),
    "K=4": ("#7a5aa6", "-"),
    "pipeline": ("#e08a2e", "-"),
    "ring": ("#3d8f4b", "-"),
    "K=2 messages": ("#3b6fb6", "--"),
    "pipeline messages": ("#e08a2e", "--"),
}
_CYCLES_NOTE = """\
K: phases of MeshGEMV's K-tree, groups as the package cuts them. Messages: cores pass on whole \
messages, a launch, a latency and the words per stage. Read off: cycles of MeshGEMV that a third \
party read off the published plot, approximate."""
_READ_NOTE = """\
K = 2, words passed on at once; a third party read the paper's figures off its plot, so they are \
approximate."""
_FABRIC_NOTE = """\
One column of a grid with its tiles, N x 1 PEs: no word leaves its column, so the whole grid takes \
as long. The first of them is run whole, too."""


def experiment(quick: bool, progress: Progress) -> Experiment:
    """Do it; ``quick`` runs less on the fabric."""
    chosen = settings(NAME, quick, Settings)
    progress("closed forms")
    figures = _figures(chosen)
    fabric = overlap(_fabric_points(chosen), progress)
    return Experiment(
        name=NAME,
        title="Distributed GEMV in float16 (WaferLLM, figure 10)",
        origin=provenance(hardware(chosen.preset), level="cost, fabric") | {"mesh": None},
        sections=(
            Section(
                "Cycles (level cost; read off: published)", _wide(figures, "cycles"), _CYCLES_NOTE
            ),
            Section(
                "Communication, percent of the cycles, and cycles over those of K=2 (level cost)",
                _shares(figures),
            ),
            Section(
                "MeshGEMV, read off the plot (level cost)", _read_off_rows(figures), _READ_NOTE
            ),
            Section("Fabric and cost where both reach", fabric, _FABRIC_NOTE),
        ),
        statements=statements(figures),
        figures=figures,
        draw=lambda figure: _draw(figure, figures),
        plot_inches=(11, 8),
    )


def _figures(chosen: Settings) -> pd.DataFrame:
    rows = []
    for size in chosen.sizes:
        for grid in chosen.grids:
            hw = hardware(chosen.preset, (grid, grid))
            compute, words = cost_parts(hw, size, size, "y", _DTYPE)
            cycles = {f"K={k}": gemv.cost(hw, size, size, k=k, dtype=_DTYPE) for k in chosen.phases}
            cycles["pipeline"] = gemv_pipeline.cost(hw, size, size, dtype=_DTYPE)
            cycles["ring"] = gemv_ring.cost(hw, size, size, dtype=_DTYPE)
            tree, pipeline = _MESSAGES
            cycles[tree] = compute + message_cost.ktree_cycles(hw, words, axis="y")
            cycles[pipeline] = compute + message_cost.pipeline_cycles(hw, words, axis="y")
            rows += [_row(name, size, grid, n, compute) for name, n in cycles.items()]
    rows += [
        _row("read off", size, grid, n, None, "published") for size, grid, n in chosen.read_offs
    ]
    return pd.DataFrame(rows)


def _read_off_rows(figures: pd.DataFrame) -> pd.DataFrame:
    """The read-offs with the cycles of K = 2, the paper's tree."""
    ours = {
        (r["size"], r["grid"]): r["cycles"]
        for r in figures.query("method == 'K=2'").to_dict("records")
    }
    return experiment_rows.frame(
        experiment_rows.row(
            size=r["size"], grid=r["grid"], unit="cycles", paper=r["cycles"],
            ours=ours[r["size"], r["grid"]], level="cost", bar=READ_OFF_BAR,
        )
        for r in figures.query("level == 'published'").to_dict("records")
    )  # fmt: skip


def _row(
    method: str, size: int, grid: int, cycles: int, compute: int | None, level: str = "cost"
) -> dict:
    share = None if compute is None else 100 * (1 - compute / cycles)
    return {
        "method": method,
        "size": size,
        "grid": grid,
        "cycles": cycles,
        "compute_cycles": compute,
        "communication_percent": share,
        "level": level,
    }


def _wide(figures: pd.DataFrame, column: str) -> pd.DataFrame:
    wide = figures.pivot(index=["size", "grid"], columns="method", values=column)
    wide = wide[[m for m in (*_STYLES, "read off") if m in wide.columns]].astype("Int64")
    wide.columns = [f"{m.replace(' ', '_')}_cycles" for m in wide.columns]
    return wide.reset_index()


def _shares(figures: pd.DataFrame) -> pd.DataFrame:
    """Shares of three methods, and how many times longer the two baselines take than K = 2."""
    own = figures.query("level == 'cost'")
    shares = own.pivot(index=["size", "grid"], columns="method", values="communication_percent")
    cycles = own.pivot(index=["size", "grid"], columns="method", values="cycles")
    frame = pd.DataFrame(index=shares.index)
    for method in ("K=2", "pipeline", "ring"):
        frame[f"{method}_percent"] = shares[method].astype(float)
    for method in ("pipeline", "ring"):
        frame[f"{method} / K=2"] = (cycles[method] / cycles["K=2"]).round(2)
    return frame.reset_index()


def _fabric_points(chosen: Settings) -> list[tuple[str, Point]]:
    """K = 2 and the pipeline on all grids, the others and a whole grid where that is cheap."""
    cheap = chosen.fabric_sizes[0], chosen.fabric_grids[0]
    trees = [(f"K={k}", "gemv", (("k", k),)) for k in chosen.fabric_phases]
    pipeline, ring = ("pipeline", "gemv.pipeline", ()), ("ring", "gemv.ring", ())
    points = []
    for size in chosen.fabric_sizes:
        for grid in chosen.fabric_grids:
            is_cheap = (size, grid) == cheap
            _, cols = tile_shape(hardware(chosen.preset, (grid, grid)), size, size)
            for name, algorithm, more in (*trees, pipeline, ring):
                is_main = name in ("K=2", "pipeline")
                for width in (1, grid) if is_cheap and name == "K=2" else (1,):
                    if is_cheap or is_main:
                        mesh = grid, width
                        point = _fabric_point(chosen, algorithm, mesh, size, cols * width, more)
                        points.append((f"{size:,}, {name}", point))
    return points


def _fabric_point(
    chosen: Settings, algorithm: str, mesh: tuple[int, int], rows: int, cols: int, more: tuple
) -> Point:
    return Point(
        level="fabric",
        preset=chosen.preset,
        changes=(),
        mesh=mesh,
        algorithm=algorithm,
        parameters=(("rows", rows), ("cols", cols), ("dtype", _DTYPE), *more),
    )


def _draw(figure: "Figure", figures: pd.DataFrame) -> None:
    own = figures.query("level == 'cost'")
    sizes = figures["size"].drop_duplicates()
    panels = figure.subplots(2, -(-len(sizes) // 2), squeeze=False, sharex=True, sharey=True)
    for axes, size in zip(panels.flat, sizes, strict=False):
        for method, (color, line) in _STYLES.items():
            rows = own.query("size == @size and method == @method")
            axes.semilogy(rows["grid"], rows["cycles"], line, color=color, label=method, marker=".")
        rows = figures.query("level == 'published' and size == @size")
        axes.semilogy(rows["grid"], rows["cycles"], "kx", label="MeshGEMV, read off")
        axes.set_title(f"vector of {size} x matrix of {size} x {size}", fontsize=10)
        axes.set_xticks(figures["grid"].drop_duplicates())
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.92")
    for axes in panels[-1]:
        axes.set_xlabel("PEs of a side")
    for axes in panels[:, 0]:
        axes.set_ylabel("cycles")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle("Distributed GEMV, float16 on a WSE-2, closed forms (level cost)", fontsize=11)
