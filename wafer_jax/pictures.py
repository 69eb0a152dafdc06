"""Pictures of one result (needs the extra ``viz``)."""

from typing import TYPE_CHECKING

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.hardware import STEP_YX

if TYPE_CHECKING:
    from wafer_jax.result import Result

ARROWS_UP_TO = 32
"""Meshes with more rows or columns are drawn as a heat map."""


def plot_links(result: "Result", ax=None):
    """Draw the mesh; arrows (or, on large meshes, a heat map) show words per cycle.

    Returns:
      The matplotlib axes.

    Raises:
      WaferError: matplotlib is not installed.
    """
    plt = pyplot()
    height, width = result.program.hw.mesh
    if ax is None:
        size = (min(2 + 0.45 * width, 11), min(1.5 + 0.45 * height, 9))
        _, ax = plt.subplots(figsize=size, layout="constrained")
    load = result.utilisation.links
    if max(height, width) > ARROWS_UP_TO:
        image = ax.imshow(load[:4].max(axis=0), cmap="viridis", vmin=0, aspect="equal")
    else:
        image = arrows(ax, load)
    ax.figure.colorbar(image, ax=ax, label="words per cycle", shrink=0.8)
    ax.set(xlabel="x (east)", ylabel="y (south)")
    ax.set_title(
        f"{result.program.name}\n{result.cycles:,} cycles ({result.level} level)", fontsize=10
    )
    return ax


def arrows(ax, load: np.ndarray):
    """Draw the load of every link, [5, Y, X], as coloured arrows; returns the quiver."""
    height, width = load.shape[1:]
    y, x = np.mgrid[0:height, 0:width]
    ax.scatter(x, y, s=26, marker="s", color="0.85", zorder=1)
    d, ys, xs = np.nonzero(load[:4])
    dy, dx = np.array(STEP_YX)[d].T
    # Both directions of a link lie side by side.
    oy, ox = ys + 0.12 * dx, xs - 0.12 * dy
    picture = ax.quiver(
        ox, oy, dx * 0.8, dy * 0.8, load[d, ys, xs], cmap="viridis", angles="xy",
        scale_units="xy", scale=1, units="xy", width=0.07, zorder=2,
    )  # fmt: skip
    picture.set_clim(0, max(load[:4].max(initial=0), 1e-9))
    ax.set(xlim=(-0.7, width - 0.3), ylim=(height - 0.3, -0.7), aspect="equal")
    return picture


def pyplot():
    """Import matplotlib, or say how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise WaferError("plots need matplotlib: pip install 'wafer-jax[viz]'") from None
    return plt
