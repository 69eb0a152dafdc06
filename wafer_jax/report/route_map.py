"""The routes of a colour as a picture (needs the extra ``viz``)."""

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.hardware import RAMP, STEP_YX
from wafer_jax.mesh_state import WaferState
from wafer_jax.pictures import pyplot
from wafer_jax.program import NO_ROUTE, Program
from wafer_jax.report.axes import label_mesh
from wafer_jax.routes import unrouted_heads
from wafer_jax.snapshot import snapshot

LARGEST = 64
"""Rows or columns; arrows on larger meshes cannot be told apart."""
_ONE_WAY, _SEVERAL, _NO_WAY = "#33658a", "#d1495b", "#000000"


def plot_routes(program: Program, color: int, state: WaferState | None = None, ax=None):
    """Draw where a colour goes: an arrow per PE and link that it transmits to.

    Filled circles are sources (the PE's threads send here), rings are PEs that the colour is
    delivered to, and PEs that transmit to several targets (multicast) are drawn in red.

    Args:
      program: Whose routes.
      color: The device's number.
      state: Of a run, for its current routes; by default those that the program starts with.
      ax: Axes to draw on.

    Returns:
      The matplotlib axes.

    Raises:
      WaferError: The program does not use the colour; the mesh is too large for arrows;
        matplotlib is not installed.
    """
    plt = pyplot()
    height, width = program.hw.mesh
    if color not in program.colors:
        used = ", ".join(map(str, program.colors))
        raise WaferError(f"{program.name}: has no colour {color}, only {used}")
    if max(height, width) > LARGEST:
        raise WaferError(
            f"{program.name}: routes on {height}x{width} PEs are too many arrows, at most "
            f"{LARGEST}x{LARGEST}: draw the same program on a smaller mesh"
        )
    c = program.colors.index(color)
    current = {"rx": program.rx, "tx": program.tx}
    current = current if state is None else snapshot(program, state)
    rx = current["rx"][c]
    tx = current["tx"][c] * (rx != NO_ROUTE)
    if ax is None:
        size = (min(2 + 0.5 * width, 11), min(1.8 + 0.5 * height, 10))
        _, ax = plt.subplots(figsize=size, layout="constrained")
    y, x = np.mgrid[0:height, 0:width]
    small = min(1.0, (20 / max(height, width)) ** 2)
    ax.scatter(x, y, s=26 * small, marker="s", color="0.88", zorder=1)
    targets = sum(tx >> d & 1 for d in range(5))
    lost = unrouted_heads(current["rx"], current["tx"])[c]
    shade = np.where(lost, 2, np.where(targets > 1, 1, 0))
    d, ys, xs = np.nonzero(np.stack([tx >> d & 1 for d in range(4)]))
    dy, dx = np.array(STEP_YX[:4])[d].T
    paint = np.array([_ONE_WAY, _SEVERAL, _NO_WAY])[shade]
    ax.quiver(
        xs + 0.12 * dx, ys + 0.12 * dy, 0.76 * dx, 0.76 * dy, color=paint[ys, xs], angles="xy",
        scale_units="xy", scale=1, units="xy", width=0.06, zorder=2,
    )  # fmt: skip
    ys, xs = np.nonzero(rx == RAMP)
    ax.scatter(xs, ys, s=22 * small, zorder=3, label="sends", color=_ONE_WAY)
    ys, xs = np.nonzero(tx >> RAMP & 1)
    ax.scatter(
        xs, ys, s=80 * small, zorder=3, label="delivers", facecolors="none", edgecolors=_ONE_WAY
    )  # fmt: skip
    ways = ((_ONE_WAY, "one target"), (_SEVERAL, "several targets"), (_NO_WAY, "nobody listens"))
    for k, (ink, label) in enumerate(ways):
        if (shade[targets > 0] == k).any():
            ax.plot([], [], color=ink, label=label, linewidth=2)
    ax.set(xlim=(-0.7, width - 0.3), ylim=(height - 0.3, -0.7), aspect="equal")
    label_mesh(ax)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=9)
    ax.set_title(f"{program.name}\nroutes of colour {color}", fontsize=10)
    return ax
