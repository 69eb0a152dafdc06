"""Bars of cycles per operator (needs the extra ``viz``)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from wafer_jax.pictures import pyplot

if TYPE_CHECKING:
    import pandas as pd

    from wafer_jax.models.mesh_costs import PhaseCosts

SHARES = {"compute_cycles": "#3b6fb6", "communication_cycles": "#e08a2e", "idle_cycles": "#c9c9c9"}
"""Columns whose sum is an operator's cycles, with the colour of each."""


def plot_phase(costs: "PhaseCosts", ax=None):
    """`PhaseCosts.plot`."""
    frame = whole_phase(costs)
    if ax is None:
        _, ax = pyplot().subplots(figsize=(8, _inches([frame])), layout="constrained")
    _bars(ax, frame)
    ax.set_title(f"{costs.title} (cost)", fontsize=10)
    ax.set_xlabel("cycles")
    ax.legend(loc="lower right", frameon=False, fontsize=9)
    return ax


def plot_phases(phases: Iterable["PhaseCosts"]):
    """A panel per phase; returns their axes."""
    frames = {f"{costs.title} (cost)": whole_phase(costs) for costs in phases}
    figure = pyplot().figure(figsize=(8, _inches(frames.values())), layout="constrained")
    return draw_panels(figure, frames)


def whole_phase(costs: "PhaseCosts") -> "pd.DataFrame":
    """The columns operator and those of ``SHARES``, all runs of an operator together."""
    frame = costs.frame
    total = frame[list(SHARES)].mul(frame["times"], axis=0)
    return frame[["operator"]].join(total)


def draw_panels(figure, frames: Mapping[str, "pd.DataFrame"]):
    """Draw one panel per frame below another: a bar per operator, split into ``SHARES``.

    Args:
      figure: An empty figure of matplotlib.
      frames: Title of the panel to a frame with a column operator and those of ``SHARES``.

    Returns:
      The axes of the panels.
    """
    heights = [1 + len(frame) for frame in frames.values()]
    panels = figure.subplots(len(frames), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (name, frame) in zip(panels, frames.items(), strict=True):
        _bars(axes, frame)
        axes.set_title(name, fontsize=10, loc="left")
    panels[0].legend(loc="lower right", frameon=False, fontsize=9)
    panels[-1].set_xlabel("cycles")
    return panels


def _inches(frames: Iterable["pd.DataFrame"]) -> float:
    return 0.8 + 0.23 * sum(1 + len(frame) for frame in frames)


def _bars(axes, frame: "pd.DataFrame") -> None:
    left, place = np.zeros(len(frame)), np.arange(len(frame))
    for column, color in SHARES.items():
        width = frame[column].to_numpy(float)
        label = column.removesuffix("_cycles")
        axes.barh(place, width, left=left, color=color, label=label, height=0.75)
        left = left + width
    axes.set_yticks(place, frame["operator"], fontsize=9)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    # Matplotlib leaves no margin where an empty bar ends the longest one.
    axes.set_xlim(0, 1.05 * left.max())
    axes.spines[["top", "right"]].set_visible(False)
    axes.locator_params(axis="x", nbins=6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(axis="x", labelsize=9)
