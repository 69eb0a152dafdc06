"""Bars of cycles per operator, published figures against ours (needs the extra ``viz``)."""

from pathlib import Path

import numpy as np
import pandas as pd

from wafer_jax.errors import WaferError
from wafer_jax.report.files import atomic, check_output

SHARES = {"compute_cycles": "#3b6fb6", "communication_cycles": "#e08a2e", "idle_cycles": "#c9c9c9"}
"""Columns of a breakdown whose sum is its cycles, with the colour of each."""
MARKERS = "osD^vP*X"
"""One per family of points."""


def check_plot(path: str | Path, *inputs: str | Path) -> Path:
    """Refuse a plot that could not be written, before the run that fills it.

    Args:
      path: The plot.
      inputs: Files that it must not replace.

    Raises:
      WaferError: matplotlib is missing, it cannot write such a file, or as for ``check_output``.
    """
    path = check_output(path, *inputs)
    formats = new_figure((1, 1)).canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise WaferError(f"cannot draw {path}: give a file that ends in .png, .svg or .pdf")
    return path


def plot_operators(breakdowns: dict[str, pd.DataFrame], path: str | Path, title: str) -> None:
    """Draw one panel per breakdown: a bar per operator, split into compute, communication, idle.

    Args:
      breakdowns: Title of the panel to a frame with a column operator and those of ``SHARES``.
      path: File to write; its suffix chooses the format. It appears whole or not at all.
      title: Line above the panels; should name the model, the machine and the level.

    Raises:
      WaferError: As for ``check_plot``.
    """
    path = check_plot(path)
    heights = [1 + len(frame) for frame in breakdowns.values()]
    figure = new_figure((9, 1.2 + 0.23 * sum(heights)))
    panels = figure.subplots(len(breakdowns), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (name, frame) in zip(panels, breakdowns.items(), strict=True):
        _bars(axes, frame)
        axes.set_title(name, fontsize=10, loc="left")
    panels[0].legend(loc="lower right", frameon=False, fontsize=9)
    panels[-1].set_xlabel("cycles")
    figure.suptitle(title, fontsize=11)
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=150)


def _bars(axes, frame: pd.DataFrame) -> None:
    left, place = np.zeros(len(frame)), np.arange(len(frame))
    for column, color in SHARES.items():
        width = frame[column].to_numpy(float)
        label = column.removesuffix("_cycles")
        axes.barh(place, width, left=left, color=color, label=label, height=0.75)
        left = left + width
    axes.set_yticks(place, frame["operator"], fontsize=9)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(axis="x", labelsize=9)


def plot_validation(points: pd.DataFrame, path: str | Path) -> None:
    """Draw published figures against ours, both axes logarithmic, a colour per family.

    Args:
      points: A row per point with the columns family, published and ours, all above 0 to be drawn.
      path: File to write; its suffix chooses the format. It appears whole or not at all.

    Raises:
      WaferError: As for ``check_plot``.
    """
    path = check_plot(path)
    figure = validation_figure(points)
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=150)


def validation_figure(points: pd.DataFrame):
    """The figure of `plot_validation`.

    Raises:
      WaferError: matplotlib is missing.
    """
    figure = new_figure((6.5, 6))
    axes = figure.subplots()
    drawn = points[(points["published"] > 0) & (points["ours"] > 0)]
    for number, (family, rows) in enumerate(drawn.groupby("family", sort=False)):
        axes.loglog(rows["published"], rows["ours"], MARKERS[number % len(MARKERS)], markersize=4,
                    alpha=0.7, label=f"{family} ({len(rows)})")  # fmt: skip
    if len(drawn):
        ends = [drawn[["published", "ours"]].min().min(), drawn[["published", "ours"]].max().max()]
        axes.plot(ends, ends, color="0.6", linewidth=0.8, zorder=0)
        axes.legend(loc="upper left", frameon=False, fontsize=9)
    axes.set(xlabel="published, in its unit", ylabel="ours, in the same unit")
    axes.set_title("Published figures against ours", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def new_figure(size: tuple[float, float]):
    """An empty figure of so many inches, width and height.

    Raises:
      WaferError: matplotlib is missing.
    """
    try:
        # Figures made without pyplot need no display and no backend.
        from matplotlib.figure import Figure
    except ImportError:
        raise WaferError("plots need matplotlib: pip install 'wafer-jax[viz]'") from None
    return Figure(figsize=size, layout="constrained")
