"""Colours of activities in pictures."""

import numpy as np

from wafer_jax.report.activity import MEANING, Activity

COLORS = {
    Activity.HALTED: "#f4f4f2",
    Activity.NEEDS_SIGNAL: "#f3d64e",
    Activity.NEEDS_ROOM: "#c8322b",
    Activity.NEEDS_WORD: "#f0964b",
    Activity.NEEDS_SLOT: "#8c6d5a",
    Activity.STARTING: "#c9c3d6",
    Activity.CONTROL: "#7a5aa6",
    Activity.FORWARDING: "#1f9e9a",
    Activity.RECEIVING: "#9bd07f",
    Activity.SENDING: "#3d8f4b",
    Activity.COMPUTING: "#2f63b0",
}


def rgb(activity: np.ndarray) -> np.ndarray:
    """[...] activities to [..., 3] colours in 0 .. 1."""
    values = [tuple(int(COLORS[a][i : i + 2], 16) / 255 for i in (1, 3, 5)) for a in Activity]
    return np.array(values)[activity]


def legend(ax, activities: np.ndarray) -> None:
    """Name the activities that occur, beside the axes."""
    from matplotlib.patches import Patch

    found = [a for a in reversed(Activity) if (activities == a).any()]
    patches = [Patch(facecolor=COLORS[a], edgecolor="0.6", label=MEANING[a]) for a in found]
    ax.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)
