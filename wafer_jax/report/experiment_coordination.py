"""MeshRT's table 1: what broadcasts, all-to-alls and the host cost on a WSE-3.

The table gives orders of magnitude and states neither mesh nor payload. Here a message is one
word, an event of one request; N goes from a small region to the whole wafer.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from wafer_jax.collectives import alltoall, broadcast, broadcast_2d
from wafer_jax.hardware import HardwareSpec, hardware
from wafer_jax.report.experiment import (
    Experiment,
    Progress,
    Reading,
    Section,
    Statement,
    overlap,
    settings,
)
from wafer_jax.report.provenance import provenance
from wafer_jax.runtime.sweep_config import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "meshrt-table-1"
SUMMARY = "Broadcast, all-to-all and host synchronisation on a WSE-3, in orders of magnitude"
BROADCAST, ALL_TO_ALL, HOST = (100, 1000), (1e5, 1e6), 7000
"""Cycles of the table: from, to; and about."""
_WORDS = 1


@dataclass(frozen=True)
class Settings:
    """Keys of the configuration."""

    preset: str
    lines: tuple[int, ...]
    host_bytes: tuple[int, ...]
    fabric_lines: tuple[int, ...]
    fabric_meshes: tuple[int, ...]


_NOTE = """\
One word per message. Line: N PEs of a row, from its end. Mesh: N x N PEs, from the middle; the \
last row is the whole wafer. All-to-all: every PE of the line has a word for each other one."""
_FABRIC_NOTE = """\
All-to-all: both directions share the slots of a core, which the closed form leaves out (up to \
30 %)."""
_HOST_NOTE = """\
The bytes at the bandwidth of the host link: one word, one word for each of 256 slots, one word \
from every PE. The latency between host and wafer (drivers, network, the halo) is not modelled, \
and nothing here says what it is."""


def experiment(quick: bool, progress: Progress) -> Experiment:
    """Do it; ``quick`` runs less on the fabric."""
    chosen = settings(NAME, quick, Settings)
    wafer = hardware(chosen.preset)
    progress("closed forms")
    costs = _costs(chosen, wafer)
    host = _host(chosen, wafer)
    fabric = overlap(_fabric_points(chosen), progress)
    figures = costs.melt(["N", "PEs"], var_name="what", value_name="cycles").dropna()
    figures = pd.concat([figures.assign(level="cost"), host.assign(what="host", level="cost")])
    return Experiment(
        name=NAME,
        title="Coordination at run time (MeshRT, table 1)",
        origin=provenance(wafer, level="cost, fabric"),
        sections=(
            Section("Cycles on the wafer (level cost)", costs, _NOTE),
            Section("Cycles of the host link alone (level cost)", host, _HOST_NOTE),
            Section("Fabric and cost where both reach", fabric, _FABRIC_NOTE),
        ),
        statements=_statements(costs, host),
        figures=figures,
        draw=lambda figure: _draw(figure, costs),
        plot_inches=(8, 5.5),
    )


def _costs(chosen: Settings, wafer: HardwareSpec) -> pd.DataFrame:
    rows = []
    for n in chosen.lines:
        line = wafer.replace(mesh=(1, n))
        rows.append(
            {
                "N": n,
                "PEs": n * n,
                "line_broadcast_cycles": broadcast.cost(line, _WORDS),
                "mesh_broadcast_cycles": _from_the_middle(wafer.replace(mesh=(n, n))),
                "line_all-to-all_cycles": alltoall.cost(line, _WORDS),
            }
        )
    longest = max(wafer.mesh)
    rows.append(
        {
            "N": longest,
            "PEs": wafer.num_pes,
            "line_broadcast_cycles": broadcast.cost(wafer, _WORDS, "y"),
            "mesh_broadcast_cycles": _from_the_middle(wafer),
            "line_all-to-all_cycles": alltoall.cost(wafer, _WORDS, "y"),
        }
    )
    return pd.DataFrame(rows)


def _from_the_middle(hw: HardwareSpec) -> int:
    height, width = hw.mesh
    return broadcast_2d.cost(hw, _WORDS, height // 2, width // 2)


def _host(chosen: Settings, wafer: HardwareSpec) -> pd.DataFrame:
    seconds = [size / wafer.host_link_bytes_per_s for size in chosen.host_bytes]
    cycles = [wafer.clock_hz * s for s in seconds]
    share = [100 * n / HOST for n in cycles]
    return pd.DataFrame(
        {"moved_bytes": chosen.host_bytes, "cycles": cycles, "of 7,000 cycles_percent": share}
    )


def _fabric_points(chosen: Settings) -> list[tuple[str, Point]]:
    words = ("words", _WORDS)
    points = []
    for n in chosen.fabric_lines:
        for what, algorithm in (("broadcast", "broadcast"), ("all-to-all", "alltoall")):
            points.append((f"{what} on a line", _point(chosen, (1, n), algorithm, (words,))))
    for n in chosen.fabric_meshes:
        at = (words, ("y", n // 2), ("x", n // 2))
        points.append(("broadcast on a mesh", _point(chosen, (n, n), "broadcast_2d", at)))
    return points


def _point(chosen: Settings, mesh: tuple[int, int], algorithm: str, parameters: tuple) -> Point:
    return Point(
        level="fabric",
        preset=chosen.preset,
        changes=(),
        mesh=mesh,
        algorithm=algorithm,
        parameters=parameters,
    )


def _statements(costs: pd.DataFrame, host: pd.DataFrame) -> tuple[Statement, ...]:
    wafer = int(costs["mesh_broadcast_cycles"].iloc[-1])
    least, most = host["cycles"].to_numpy()[[0, -1]]
    return (
        Statement(
            "Broadcast: O(N), 100 to 1,000 cycles",
            (
                _range("along a line", costs, "line_broadcast_cycles", BROADCAST),
                _range("over a mesh", costs, "mesh_broadcast_cycles", BROADCAST),
            ),
            f"2 cycles a hop: a region of up to about 490 PEs a side is reached within 1,000. The "
            f"whole wafer takes {wafer:,}, the 'thousands of cycles' of the text (section 2).",
        ),
        Statement(
            "All-to-all: O(N^2), 10^5 to 10^6 cycles",
            (_range("along a line", costs, "line_all-to-all_cycles", ALL_TO_ALL),),
            "N^2 / 4 words pass the middle of a line each way, whatever the schedule. The table's "
            "range is that of lines of about 450 PEs up to the wafer's longest.",
        ),
        Statement(
            "Host synchronisation: O(1), about 7,000 cycles",
            (
                Reading(
                    "bandwidth alone",
                    f"One word takes {least:.2f} cycles, one from every PE {most:,.0f}",
                    "not modelled",
                ),
            ),
            "Anything small is latency, which the presets have no figure for. One word from every "
            "PE would exceed the table by bandwidth alone, so its O(1) is not that.",
        ),
    )


def _range(model: str, costs: pd.DataFrame, column: str, limits: tuple[float, float]) -> Reading:
    inside = costs[costs[column].between(*limits)]
    first, last = costs.iloc[0], costs.iloc[-1]
    words = f"N = {first['N']:,} to {last['N']:,}: {first[column]:,} to {last[column]:,} cycles"
    if len(inside):
        words += f"; within the range at N = {', '.join(map(str, inside['N']))}"
    verdict = "yes" if len(inside) == len(costs) else "partly" if len(inside) else "no"
    return Reading(model, words, verdict)


def _draw(figure: "Figure", costs: pd.DataFrame) -> None:
    axes = figure.subplots()
    for (low, high), color, what in (
        (BROADCAST, "#3b6fb6", "table 1: broadcast"),
        (ALL_TO_ALL, "#e08a2e", "table 1: all-to-all"),
    ):
        axes.axhspan(low, high, color=color, alpha=0.12, linewidth=0, label=what)
    axes.axhline(HOST, color="0.4", linestyle=":", label="table 1: host synchronisation")
    for column, style in (
        ("line_broadcast_cycles", "o-"),
        ("mesh_broadcast_cycles", "s--"),
        ("line_all-to-all_cycles", "o-"),
    ):
        where, what, _ = column.split("_")
        color = "#3b6fb6" if what == "broadcast" else "#e08a2e"
        label = f"{what} on a {where}"
        axes.loglog(costs["N"], costs[column], style, color=color, label=label, markersize=5)
    axes.set_xticks(costs["N"], [f"{n:,}" for n in costs["N"]])
    axes.minorticks_off()
    axes.set(
        xlabel="PEs of the line, or of a side of the mesh (1,170: whole wafer)", ylabel="cycles"
    )
    axes.set_title("One word per message on a WSE-3, closed forms (level cost)", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=9)
