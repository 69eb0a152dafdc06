"""Where PEs wait, and how two runs differ, as pictures (need the extra ``viz``)."""

from typing import TYPE_CHECKING

import numpy as np

from wafer_jax.pictures import pyplot
from wafer_jax.report.activity import WAITS
from wafer_jax.report.axes import label_mesh
from wafer_jax.report.stalls import compare, run_names
from wafer_jax.report.timeline import title

if TYPE_CHECKING:
    from wafer_jax.report.recording import Recording


def plot_stalls(recording: "Recording", ax=None):
    """Draw the mesh, coloured by the share of the run that each PE waits.

    Returns:
      The matplotlib axes.

    Raises:
      WaferError: matplotlib is not installed.
    """
    plt = pyplot()
    height, width = recording.program.hw.mesh
    if ax is None:
        size = (min(3 + 0.45 * width, 11), min(2.2 + 0.45 * height, 9))
        _, ax = plt.subplots(figsize=size, layout="constrained")
    waits = [cause.activity in WAITS for cause in recording.causes]
    share = recording.totals[waits].sum(axis=0) / max(recording.cycles, 1)
    image = ax.imshow(100 * share, cmap="YlOrRd", vmin=0, vmax=100, aspect="equal")
    ax.figure.colorbar(image, ax=ax, label="% of cycles waiting", shrink=0.8)
    label_mesh(ax)
    ax.set_title(title(recording).replace(": ", "\n", 1), fontsize=10)
    return ax


def plot_compare(a: "Recording", b: "Recording", names: tuple[str, str] | None = None, ax=None):
    """Draw the table of `compare`: per cause the cycles of a mean PE in both runs.

    Returns:
      The matplotlib axes.

    Raises:
      WaferError: As for `compare`; matplotlib is not installed.
    """
    plt = pyplot()
    names = names or run_names(a, b)
    frame = compare(a, b, names)
    place = np.arange(len(frame))
    if ax is None:
        _, ax = plt.subplots(figsize=(9, 1.4 + 0.42 * len(frame)), layout="constrained")
    for side, (name, color) in enumerate(zip(names, ("#3b6fb6", "#e08a2e"), strict=True)):
        bars = ax.barh(
            place + 0.38 * (side - 0.5), frame[f"{name}_cycles"], height=0.36, color=color,
            label=name,
        )  # fmt: skip
        ax.bar_label(bars, fmt="{:,.1f}", fontsize=8, padding=2)
    ax.set_yticks(place, frame["cause"].replace("all", "whole run"), fontsize=9)
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_xlabel("cycles of a mean PE")
    ax.legend(frameon=False, loc="lower right")
    ax.set_title(
        a.program.name if a.program.name == b.program.name else "Two programs", fontsize=10
    )
    return ax
