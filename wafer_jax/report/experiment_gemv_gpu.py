"""WaferLLM's table 6: one GEMV on a WSE-2 against A100s, times and energy."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from wafer_jax.collectives import gemv
from wafer_jax.collectives.gemv_local import tile_shape
from wafer_jax.hardware import DTYPE_BYTES, HardwareSpec, hardware
from wafer_jax.models.published.a100 import MEMORY_BYTES_PER_S
from wafer_jax.report import experiment_rows
from wafer_jax.report.experiment import Experiment, Progress, Section, overlap, settings
from wafer_jax.report.experiment_gemv_gpu_claims import statements
from wafer_jax.report.gpu_energy import energy_ratio, gpu_name
from wafer_jax.report.provenance import provenance
from wafer_jax.runtime.sweep_config import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "waferllm-table-6"
SUMMARY = "One GEMV, 16K and 32K, on a WSE-2 against A100s: times and energy"
_DTYPE = "float16"


@dataclass(frozen=True)
class Settings:
    """Keys of the configuration."""

    preset: str
    sides: tuple[int, int, int]
    phases: tuple[int, ...]
    paper_phases: int
    gpus: tuple[int, ...]
    published_ms: tuple[list[float], ...]
    published_energy: tuple[list[float], ...]
    gpu_watts: float
    time_bar: float
    energy_bar: float
    formula_bar: float
    gpu_bar: float
    fabric: tuple[list[int], ...]


class Best(NamedTuple):
    """The fastest grid and K-tree of a search."""

    cycles: int
    side: int
    phases: int


_TIME_NOTE = """\
The paper states neither grid nor element type; ours is the fastest of the grids, in float16. Root \
only: the sum stays with one PE of a column. Roofline: the bytes of the matrix over the bandwidth \
of the GPUs' memory; it has neither launches nor an allreduce between GPUs."""
_ENERGY_NOTE = """\
Energy of the GPUs over the wafer's. Formula: the paper's own times, so that only the power is \
tested. K = 2: our time of the wafer, published times of the GPUs."""
_JOULES_NOTE = "Power times time: 15 kW of a WSE-2 (preset), 400 W of an A100."
_GRID_NOTE = "The fastest grid of each K; tiles are those of a PE."
_FABRIC_NOTE = """\
One column of the grid with its tiles, N x 1 PEs: no word leaves its column."""


def experiment(quick: bool, progress: Progress) -> Experiment:
    """Do it; ``quick`` runs less on the fabric."""
    chosen = settings(NAME, quick, Settings)
    hw = hardware(chosen.preset)
    progress("searching grids by cost")
    sizes = [int(size) for size, *_ in chosen.published_ms]
    best = {size: _search(chosen, hw, size) for size in sizes}
    roots = {size: _search(chosen, hw, size, broadcast=False) for size in sizes}
    times = experiment_rows.frame(_time_rows(chosen, hw, best, roots))
    energies = experiment_rows.frame(_energy_rows(chosen, hw, best))
    fabric = overlap(_fabric_points(chosen), progress)
    return Experiment(
        name=NAME,
        title="One GEMV on a WSE-2 and on A100s (WaferLLM, table 6)",
        origin=provenance(hw, level="cost, fabric") | {"mesh": None},
        sections=(
            Section("Times (level cost; A100: roofline)", times, _TIME_NOTE),
            Section("Energy (level cost; formula)", energies, _ENERGY_NOTE),
            Section("Joules of one GEMV (level cost; A100: published)",
                    _joules(chosen, hw, best), _JOULES_NOTE),
            Section("Grids (level cost)", _grids(hw, best), _GRID_NOTE),
            Section("Fabric and cost where both reach", fabric, _FABRIC_NOTE),
        ),
        statements=statements(times, energies),
        figures=pd.concat([times, energies.assign(unit="ratio")]),
        draw=lambda figure: _draw(figure, energies),
        plot_inches=(8, 4.5),
    )  # fmt: skip


def _search(
    chosen: Settings, hw: HardwareSpec, size: int, broadcast: bool = True
) -> dict[int, Best]:
    """The fastest grid by phases of the K-tree, of those whose tiles fit a PE."""
    first, last, step = chosen.sides
    grids = [hw.replace(mesh=(side, side)) for side in range(first, last + 1, step)]
    grids = [grid for grid in grids if _fits(grid, size)]

    def cycles(grid: HardwareSpec, k: int) -> int:
        return gemv.cost(grid, size, size, k=k, broadcast=broadcast, dtype=_DTYPE)

    return {k: min(Best(cycles(grid, k), grid.mesh[0], k) for grid in grids) for k in chosen.phases}


def _fits(hw: HardwareSpec, size: int) -> bool:
    rows, cols = tile_shape(hw, size, size)
    return (rows * cols + rows + cols) * DTYPE_BYTES[_DTYPE] <= hw.data_bytes


def _time_rows(chosen: Settings, hw: HardwareSpec, best: dict, roots: dict) -> list[dict]:
    rows = []
    for size, wafer, *gpu_times in chosen.published_ms:
        found, k = best[size], chosen.paper_phases
        readings = {
            f"K = {k}, as the paper": (found[k], chosen.time_bar),
            "best K": (min(found.values()), None),
            "best K, root only": (min(roots[size].values()), None),
        }
        for how, (at, bar) in readings.items():
            words = f"{at.side} x {at.side}, K = {at.phases}"
            rows.append(experiment_rows.row(
                size=int(size), what="WSE-2", how=how, grid=words, unit="ms", paper=wafer,
                ours=1e3 * hw.seconds(at.cycles), level="cost", bar=bar,
            ))  # fmt: skip
        for gpus, time in zip(chosen.gpus, gpu_times, strict=True):
            rows.append(experiment_rows.row(
                size=int(size), what=gpu_name(gpus), how="memory bandwidth", grid="", unit="ms",
                paper=time, ours=1e3 * _roofline(int(size), gpus), level="roofline",
                bar=chosen.gpu_bar if gpus == 1 else None,
            ))  # fmt: skip
    return rows


def _roofline(size: int, gpus: int) -> float:
    """Seconds to read the matrix, all GPUs at once."""
    return size * size * DTYPE_BYTES[_DTYPE] / (gpus * MEMORY_BYTES_PER_S)


def _energy_rows(chosen: Settings, hw: HardwareSpec, best: dict) -> list[dict]:
    rows = []
    for (size, wafer, *times), (_, *ratios) in zip(
        chosen.published_ms, chosen.published_energy, strict=True
    ):
        ours = 1e3 * hw.seconds(best[size][chosen.paper_phases].cycles)
        readings = {
            "the paper's times": (wafer, "formula", chosen.formula_bar),
            f"our time, K = {chosen.paper_phases}": (ours, "cost", chosen.energy_bar),
        }
        for how, (wafer_ms, level, bar) in readings.items():
            for gpus, time, ratio in zip(chosen.gpus, times, ratios, strict=True):
                rows.append(experiment_rows.row(
                    size=int(size), what=f"{gpu_name(gpus)} / WSE-2", how=how, paper=ratio,
                    ours=energy_ratio(time / wafer_ms, gpus, hw, chosen.gpu_watts),
                    level=level, bar=bar,
                ))  # fmt: skip
    return rows


def _joules(chosen: Settings, hw: HardwareSpec, best: dict) -> pd.DataFrame:
    rows = []
    for size, wafer, *times in chosen.published_ms:
        ours = hw.seconds(best[size][chosen.paper_phases].cycles)
        devices = [("WSE-2", hw.power_watts, wafer, ours)]
        devices += [
            (gpu_name(gpus), gpus * chosen.gpu_watts, time, None)
            for gpus, time in zip(chosen.gpus, times, strict=True)
        ]
        for device, watts, published, own in devices:
            rows.append({
                "size": int(size), "device": device, "watts": watts,
                "published_joules": watts * published / 1e3,
                "ours_joules": None if own is None else watts * own,
            })  # fmt: skip
    return pd.DataFrame(rows)


def _grids(hw: HardwareSpec, best: dict[int, dict[int, Best]]) -> pd.DataFrame:
    rows = []
    for size, found in best.items():
        for at in found.values():
            tile = tile_shape(hw.replace(mesh=(at.side, at.side)), size, size)
            rows.append({"size": size, "K": at.phases, "side": at.side,
                         "tile": "{}x{}".format(*tile), "cycles": at.cycles})  # fmt: skip
    return pd.DataFrame(rows)


def _fabric_points(chosen: Settings) -> list[tuple[str, Point]]:
    points = []
    for size, side in chosen.fabric:
        _, cols = tile_shape(hardware(chosen.preset, (side, side)), size, size)
        parameters = (("rows", size), ("cols", cols), ("dtype", _DTYPE), ("k", chosen.paper_phases))
        points.append((f"{size:,}, K={chosen.paper_phases}", Point(
            level="fabric", preset=chosen.preset, changes=(), mesh=(side, 1), algorithm="gemv",
            parameters=parameters,
        )))  # fmt: skip
    return points


def _draw(figure: "Figure", energies: pd.DataFrame) -> None:
    panels = figure.subplots(1, len(set(energies["size"])), sharey=True)
    ours = energies.query("level == 'cost'")
    for axes, (size, rows) in zip(panels, ours.groupby("size"), strict=True):
        for name, color, offset in (("paper", "0.6", -0.2), ("ours", "#3b6fb6", 0.2)):
            places = [n + offset for n in range(len(rows))]
            axes.bar(places, rows[name], width=0.4, color=color, label=name)
        axes.set_xticks(range(len(rows)), [w.removesuffix(" / WSE-2") for w in rows["what"]])
        axes.set_title(f"GEMV of {size}", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("energy of the A100s over the WSE-2's")
    panels[0].legend(frameon=False)
    figure.suptitle("Energy of one GEMV, float16, closed forms (level cost)", fontsize=11)
