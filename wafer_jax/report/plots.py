"""Bars of cycles per operator, published figures against ours (needs the extra ``viz``)."""

from pathlib import Path

import pandas as pd

from wafer_jax.errors import WaferError
from wafer_jax.report.files import atomic, check_output

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
      breakdowns: Title of the panel to a frame with operators and the parts of their cycles, as
        `models.pictures.whole_phase` gives it.
      path: File to write; its suffix chooses the format. It appears whole or not at all.
      title: Line above the panels; should name the model, the machine and the level.

    Raises:
      WaferError: As for ``check_plot``.
    """
    from wafer_jax.models.pictures import draw_panels  # brings the models along

    path = check_plot(path)
    lines = sum(1 + len(frame) for frame in breakdowns.values())
    figure = new_figure((9, 1.2 + 0.23 * lines))
    draw_panels(figure, breakdowns)
    figure.suptitle(title, fontsize=11)
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=150)


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
