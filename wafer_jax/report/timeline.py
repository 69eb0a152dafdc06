"""Pictures over the cycles of a recording (need the extra ``viz``).

Axes: R rows of the recording, P PEs of the region, B bins of cycles.
"""

from typing import TYPE_CHECKING

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.pictures import pyplot
from wafer_jax.report.activity import COLOR_BITS, Activity
from wafer_jax.report.axes import whole_numbers
from wafer_jax.report.palette import legend, rgb

if TYPE_CHECKING:
    from wafer_jax.report.recording import Recording

COLUMNS = 1500
"""Longer windows are drawn in bins of several cycles, each with what takes most of it."""
NAMED_UP_TO = 40
"""PEs that are named on the axis."""


def plot_timeline(recording: "Recording", ax=None):
    """Draw PE x cycle, coloured by what the PE does; PEs in row-major order.

    Returns:
      The matplotlib axes.

    Raises:
      WaferError: Nothing was kept; matplotlib is not installed.
    """
    plt = pyplot()
    first, last = kept_window(recording)
    count = recording.ys.size * recording.xs.size
    if ax is None:
        _, ax = plt.subplots(figsize=(11, min(1.6 + 0.2 * count, 10)), layout="constrained")
    edges = np.linspace(first, last, min(last - first, COLUMNS) + 1)
    activity = dominant(recording, edges)
    ax.imshow(
        rgb(activity.T), aspect="auto", interpolation="nearest",
        extent=(first, last, count - 0.5, -0.5),
    )  # fmt: skip
    names = [f"{y}, {x}" for y in recording.ys for x in recording.xs]
    if count <= NAMED_UP_TO:
        ax.set_yticks(range(count), names, fontsize=8)
        ax.set_ylabel("PE (y, x)")
    else:
        places = np.arange(0, count, recording.xs.size)
        places = places[:: -(-len(places) // NAMED_UP_TO)]
        ax.set_yticks(places, [names[p] for p in places], fontsize=8)
        ax.set_ylabel("PE (y, x), row by row")
    ax.set_xlabel("cycle")
    legend(ax, activity)
    part = "" if (first, last) == (0, recording.cycles) else f"\nkept: cycles {first:,} .. {last:,}"
    ax.set_title(title(recording) + part, fontsize=10)
    return ax


def plot_queues(recording: "Recording", y: int, x: int, ax=None):
    """Draw the words in the queues of a PE over the cycles.

    Returns:
      The matplotlib axes.

    Raises:
      WaferError: The PE was not recorded; nothing was kept; matplotlib is not installed.
    """
    plt = pyplot()
    _, last = kept_window(recording)
    frame = recording.queues(y, x)
    if ax is None:
        _, ax = plt.subplots(figsize=(10, 3.2), layout="constrained")
    for name in frame.columns.drop("cycle"):
        fills = frame[name].to_numpy()
        style = "-" if name.startswith("router") else "--"
        ax.step([*frame["cycle"], last], [*fills, fills[-1]], style, where="post", label=name)
    ax.set(xlabel="cycle", ylabel="words")
    whole_numbers(ax.yaxis)
    if len(frame.columns) > 1:
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, title="queue, colour")
    ax.set_title(f"Queues of PE (y={y}, x={x})\n{title(recording)}", fontsize=10)
    return ax


def kept_window(recording: "Recording") -> tuple[int, int]:
    """The cycles that were kept.

    Raises:
      WaferError: None were.
    """
    if not recording.start.size:
        raise WaferError(f"{recording.program.name}: no cycle was kept: record another window")
    return recording.window


def title(recording: "Recording") -> str:
    """What a picture of a recording shows."""
    hw = recording.program.hw
    return (
        f"{recording.program.name}: {recording.cycles:,} cycles on {hw.mesh[0]}x{hw.mesh[1]} PEs "
        f"of {hw.name} (fabric level)"
    )


def dominant(recording: "Recording", edges: np.ndarray) -> np.ndarray:
    """[B, P] int64: the activity that takes most of each bin.

    Args:
      recording: Whose rows are binned.
      edges: [B + 1] float64, cycles within the window.
    """
    activity = (recording.pes >> COLOR_BITS).reshape(len(recording.start), -1)
    ends = np.append(recording.start, recording.window[1])
    row = np.clip(np.searchsorted(ends, edges, "right") - 1, 0, len(recording.start) - 1)
    inside = (edges - recording.start[row])[:, None]
    best = np.zeros((len(edges) - 1, activity.shape[1]))
    out = np.zeros(best.shape, np.int64)
    for a in Activity:
        here = activity == a
        if not here.any():
            continue
        whole = np.cumsum(here * recording.span[:, None], axis=0) - here * recording.span[:, None]
        cycles = np.diff(whole[row] + here[row] * inside, axis=0)
        out = np.where(cycles > best, int(a), out)
        best = np.maximum(best, cycles)
    return out
