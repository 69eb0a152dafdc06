"""WaferLLM's figure 9: MeshGEMM against SUMMA, Cannon and an all-gather, cycles by closed forms.

Blocks are aligned as in the published code: A on chip, B by the host; SUMMA needs no alignment.
Both are counted as communication, like everything that is no product.

The *compute efficiency* is the cycles of the local products over all cycles. The paper does not
define its own. It cannot be the peak rate of the vector unit: a vector instruction has a set-up,
so short columns leave most of that unused whatever the communication (`vector_percent`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from wafer_jax.collectives import gemm, gemm_allgather, gemm_cannon, gemm_cannon_cost, gemm_summa
from wafer_jax.collectives.gemm_broadcast_cost import summa_unison_cost_parts
from wafer_jax.collectives.gemm_cost import Parts
from wafer_jax.collectives.gemm_layout import block_words, layout_of
from wafer_jax.collectives.kernels import gemm_cycles
from wafer_jax.hardware import DTYPE_BYTES, WORD_BYTES, HardwareSpec, hardware
from wafer_jax.report.experiment import Experiment, Progress, Section, overlap, settings
from wafer_jax.report.experiment_gemm_claims import statements
from wafer_jax.report.provenance import provenance
from wafer_jax.runtime.sweep_config import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "waferllm-figure-9"
SUMMARY = "MeshGEMM against SUMMA, Cannon and an all-gather on a WSE-2, grids up to 720 x 720"
_DTYPE, _ALIGN = "float16", "left"


@dataclass(frozen=True)
class Settings:
    """Keys of the configuration."""

    preset: str
    sizes: tuple[int, ...]
    grids: tuple[int, ...]
    fabric_tiles: tuple[int, ...]
    fabric_grids: tuple[int, ...]
    fabric_large_grids: tuple[int, ...]


METHODS: dict[str, Callable[[HardwareSpec, int], Parts]] = {
    "MeshGEMM": lambda hw, n: gemm.cost_parts(hw, n, n, n, align=_ALIGN, dtype=_DTYPE),
    "SUMMA": lambda hw, n: gemm_summa.cost_parts(hw, n, n, n, dtype=_DTYPE),
    "Cannon": lambda hw, n: gemm_cannon.cost_parts(hw, n, n, n, align=_ALIGN, dtype=_DTYPE),
    "SUMMA unison": lambda hw, n: summa_unison_cost_parts(hw, n, n, n, dtype=_DTYPE),
    "Cannon unison": lambda hw, n: gemm_cannon_cost.unison_cost_parts(
        hw, n, n, n, align=_ALIGN, dtype=_DTYPE
    ),
    "SUMMA serial": lambda hw, n: summa_unison_cost_parts(hw, n, n, n, dtype=_DTYPE, overlap=False),
    "Cannon serial": lambda hw, n: gemm_cannon_cost.unison_cost_parts(
        hw, n, n, n, align=_ALIGN, dtype=_DTYPE, overlap=False
    ),
    "all-gather": lambda hw, n: gemm_allgather.cost_parts(hw, n, n, n, dtype=_DTYPE),
}
_COLORS = {"MeshGEMM": "#3b6fb6", "SUMMA": "#e08a2e", "Cannon": "#3d8f4b", "all-gather": "#8c6d5a"}
_LINES = {"": "-", "unison": "--", "serial": ":"}

_NOTE = """\
Unison: no PE begins a step before all have ended the one before, so every step pays the line, as \
in the paper's L column. Serial: unison, and nothing moves while a product is made. MeshGEMM is \
the same in unison: its farthest partner is 2 hops away everywhere.
All-gather: only where a PE's SRAM holds its row and column (none of the other grids). Neither its \
sources nor SUMMA's fit a WSE-2 with a colour each (2 N of 24): on four colours, with routes that \
change, SUMMA takes a cycle more per step; the all-gather's figures leave it out."""
_FABRIC_NOTE = """\
Tiles have as many rows and columns as named. SUMMA with the colours and input queues that it \
needs, which no WSE-2 has; the executor takes it up to 13 x 13 PEs. On four colours its routes \
change with the source, a cycle more per step. The differences are streams and signals that want \
an issue slot in the same cycle."""


def experiment(quick: bool, progress: Progress) -> Experiment:
    """Do it; ``quick`` runs less on the fabric."""
    chosen = settings(NAME, quick, Settings)
    progress("closed forms")
    figures = _figures(chosen)
    fabric = overlap(_fabric_points(chosen), progress)
    shares = _wide(figures, "communication_percent")
    vector = figures.query("method == 'MeshGEMM'")["vector_percent"]
    shares["vector_percent"] = vector.to_numpy()
    return Experiment(
        name=NAME,
        title="Distributed GEMM in float16 (WaferLLM, figure 9)",
        origin=provenance(hardware(chosen.preset), level="cost, fabric") | {"mesh": None},
        sections=(
            Section("Cycles (level cost)", _wide(figures, "cycles"), _NOTE),
            Section(
                "Communication, percent of the cycles; the rest is compute efficiency (level cost)",
                shares,
                "vector: share of the vector unit's peak rate that a local product reaches.",
            ),
            Section("Fabric and cost where both reach", fabric, _FABRIC_NOTE),
        ),
        statements=statements(figures, hardware(chosen.preset)),
        figures=figures,
        draw=lambda figure: _draw(figure, figures),
        plot_inches=(12, 7.5),
    )


def _figures(chosen: Settings) -> pd.DataFrame:
    rows = []
    for size in chosen.sizes:
        for grid in chosen.grids:
            hw = hardware(chosen.preset, (grid, grid))
            for method, parts_of in METHODS.items():
                if method == "all-gather" and not _gathered_fits(hw, size):
                    continue
                parts = parts_of(hw, size)
                rows.append({
                    "method": method,
                    "size": size,
                    "grid": grid,
                    "cycles": parts.total,
                    "compute_cycles": parts.compute,
                    "communication_cycles": parts.total - parts.compute,
                    "communication_percent": 100 * (1 - parts.compute / parts.total),
                    "vector_percent": _vector_percent(hw, size),
                    "level": "cost",
                })  # fmt: skip
    return pd.DataFrame(rows)


def _vector_percent(hw: HardwareSpec, size: int) -> float:
    """Multiply-adds of a PE's product at the peak rate, over its cycles."""
    tile = layout_of(hw.mesh, size, size, size)
    lanes = hw.simd_bytes // DTYPE_BYTES[_DTYPE] / hw.vector_group_cycles
    cycles = gemm_cycles(hw, tile.tile_m, tile.block_k, tile.tile_n, _DTYPE)
    return 100 * tile.tile_m * tile.block_k * tile.tile_n / lanes / cycles


def _gathered_fits(hw: HardwareSpec, size: int) -> bool:
    tile = layout_of(hw.mesh, size, size, size)
    words = sum(block_words(rows * tile.block_k, _DTYPE) for rows in (tile.tile_m, tile.tile_n))
    return (words * tile.steps + tile.tile_m * tile.tile_n) * WORD_BYTES <= hw.data_bytes


def _fabric_points(chosen: Settings) -> list[tuple[str, Point]]:
    small = [(tile, grid) for tile in chosen.fabric_tiles for grid in chosen.fabric_grids]
    large = [(chosen.fabric_tiles[0], grid) for grid in chosen.fabric_large_grids]
    aligned = (("align", _ALIGN),)
    points = []
    for method, algorithm, plan, more in (
        ("MeshGEMM", "gemm", small + large, aligned),
        ("Cannon", "gemm.cannon", small + large, aligned),
        ("SUMMA", "gemm.summa", small, ()),
        ("SUMMA on four colours", "gemm.summa_segments", large, ()),
    ):
        for tile, grid in plan:
            budgets = (("colors", 2 * grid), ("input_queue_depths", (2,) * 2 * grid))
            point = Point(
                level="fabric",
                preset=chosen.preset,
                changes=budgets if algorithm == "gemm.summa" else (),
                mesh=(grid, grid),
                algorithm=algorithm,
                parameters=(*((n, tile * grid) for n in "mkn"), ("dtype", _DTYPE), *more),
            )
            points.append((f"{method}, tile {tile}", point))
    return points


def _wide(figures: pd.DataFrame, column: str) -> pd.DataFrame:
    """Sizes and grids down, methods across."""
    wide = figures.pivot(index=["size", "grid"], columns="method", values=column)
    wide = wide[[m for m in METHODS if m in wide.columns]]
    if column == "cycles":
        wide = wide.astype("Int64")
    unit = column.split("_")[-1]
    wide.columns = [f"{m.replace(' ', '_')}_{unit}" for m in wide.columns]
    return wide.reset_index()


def _draw(figure: "Figure", figures: pd.DataFrame) -> None:
    sizes = figures["size"].drop_duplicates()
    panels = figure.subplots(2, len(sizes), squeeze=False, sharex=True, sharey="row")
    for (top, bottom), size in zip(panels.T, sizes, strict=True):
        for method in METHODS:
            rows = figures.query("size == @size and method == @method")
            base, _, how = method.partition(" ")
            mesh, cannon = base == "MeshGEMM", base == "Cannon"  # nearly the same: one in the other
            style = {
                "color": _COLORS[base],
                "linestyle": _LINES[how],
                "linewidth": 2.4 if mesh else 1.2,
                "zorder": 3 if mesh else 2,
                "marker": "s" if cannon else "o",
                "markersize": 8 if cannon else 4,
                "markerfacecolor": "none" if cannon else None,
                "label": method,
            }
            top.semilogy(rows["grid"], rows["cycles"], **style)
            bottom.plot(rows["grid"], rows["communication_percent"], **style)
        top.set_title(f"{size} x {size} x {size}", fontsize=10)
        bottom.set_xlabel("PEs of a side")
        bottom.set_xticks(figures["grid"].drop_duplicates())
        for axes in (top, bottom):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(color="0.92")
    panels[0, 0].set_ylabel("cycles")
    panels[1, 0].set_ylabel("communication, % of the cycles")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.suptitle("Distributed GEMM, float16 on a WSE-2, closed forms (level cost)", fontsize=11)
