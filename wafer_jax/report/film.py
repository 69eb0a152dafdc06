"""A recording as a film: what PEs do and which links move words (needs the extra ``viz``)."""

from typing import TYPE_CHECKING

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.hardware import STEP_YX
from wafer_jax.pictures import pyplot
from wafer_jax.report.axes import label_mesh
from wafer_jax.report.palette import legend, rgb
from wafer_jax.report.timeline import dominant, kept_window, title

if TYPE_CHECKING:
    from wafer_jax.report.recording import Recording

MAX_FRAMES = 100
ARROWS_UP_TO = 24
"""Rows or columns of a region whose links are drawn."""
FRAME_MS = 120


def animate(recording: "Recording", cycles_per_frame: int | None = None):
    """Film the region over the window.

    A frame shows what each PE does most in its cycles, and an arrow on every link that moved a
    word in them.

    Args:
      recording: What to show.
      cycles_per_frame: By default as few as `MAX_FRAMES` frames allow.

    Returns:
      A matplotlib ``FuncAnimation``; in a notebook, ``HTML(film.to_jshtml())`` plays it.

    Raises:
      WaferError: Too many frames; nothing was kept; matplotlib is not installed.
    """
    plt = pyplot()
    from matplotlib.animation import FuncAnimation

    first, last = kept_window(recording)
    step = cycles_per_frame or -(-(last - first) // MAX_FRAMES)
    if step < 1 or -(-(last - first) // step) > MAX_FRAMES:
        raise WaferError(
            f"{recording.program.name}: {last - first} cycles in frames of {step} are over "
            f"{MAX_FRAMES} frames: give a larger cycles_per_frame, or record a shorter window"
        )
    edges = np.append(np.arange(first, last, step), last).astype(float)
    shape = (recording.ys.size, recording.xs.size)
    activity = dominant(recording, edges).reshape(-1, *shape)
    moved = _moved(recording, edges)
    size = (min(4.5 + 0.4 * shape[1], 11), min(1.8 + 0.4 * shape[0], 8))
    figure, ax = plt.subplots(figsize=size, dpi=72, layout="constrained")
    image = ax.imshow(rgb(activity[0]), extent=_extent(recording), interpolation="nearest")
    label_mesh(ax)
    legend(ax, activity)
    heading = ax.set_title("", fontsize=9)
    quiver, ends = _quiver(ax, recording, moved) if max(shape) <= ARROWS_UP_TO else (None, None)

    def draw(frame: int):
        image.set_data(rgb(activity[frame]))
        cycles = f"cycle {edges[frame]:,.0f} .. {edges[frame + 1] - 1:,.0f}"
        heading.set_text(f"{title(recording).replace(': ', chr(10), 1)}\n{cycles}")
        if quiver is None or ends is None:
            return image, heading
        on = moved[:, frame][ends[0]]
        quiver.set_UVC(ends[1] * on, ends[2] * on)
        return image, heading, quiver

    # The layout is found once; it would take most of the time of every frame.
    draw(0)
    figure.canvas.draw()
    figure.set_layout_engine("none")
    film = FuncAnimation(figure, draw, frames=len(activity), interval=FRAME_MS, blit=False)  # pyright: ignore[reportArgumentType]
    plt.close(figure)
    return film


def _extent(recording: "Recording") -> tuple[float, float, float, float]:
    ys, xs = recording.ys, recording.xs
    return float(xs[0]) - 0.5, float(xs[-1]) + 0.5, float(ys[-1]) + 0.5, float(ys[0]) - 0.5


def _moved(recording: "Recording", edges: np.ndarray) -> np.ndarray:
    """[4, frames, y, x] bool: the link moved a word in the frame, of whatever colour."""
    at = np.searchsorted(edges, recording.start, "right") - 1
    frames = np.zeros((len(edges) - 1, *recording.links_used.shape[1:]), np.uint8)
    np.bitwise_or.at(frames, at, recording.links_used)
    return np.stack([frames >> d & 1 == 1 for d in range(4)])


def _quiver(ax, recording: "Recording", moved: np.ndarray):
    """Arrows of all links that ever move a word, and (their places, dx, dy)."""
    d, y, x = places = np.nonzero(moved.any(axis=1))
    dy, dx = np.array(STEP_YX[:4])[d].T
    # Both directions of a link lie side by side.
    quiver = ax.quiver(
        recording.xs[x] + 0.15 * dx - 0.14 * dy, recording.ys[y] + 0.15 * dy + 0.14 * dx,
        0.7 * dx, 0.7 * dy, angles="xy", scale_units="xy", scale=1, units="xy", width=0.06,
        color="black", minlength=0,
    )  # fmt: skip
    return quiver, (places, 0.7 * dx, 0.7 * dy)
