"""How busy links are, colour by colour (needs the extra ``viz``)."""

from typing import TYPE_CHECKING

from wafer_jax.errors import WaferError
from wafer_jax.pictures import ARROWS_UP_TO, arrows, pyplot
from wafer_jax.report.axes import label_mesh
from wafer_jax.report.timeline import title

if TYPE_CHECKING:
    from wafer_jax.report.recording import Recording


def plot_links(recording: "Recording", color: int | None = None, ax=None):
    """Draw the mesh with the words per cycle on every link, of one colour or of all.

    Returns:
      The matplotlib axes.

    Raises:
      WaferError: The program does not use the colour; matplotlib is not installed.
    """
    plt = pyplot()
    program = recording.program
    if color is not None and color not in program.colors:
        used = ", ".join(map(str, program.colors))
        raise WaferError(f"{program.name}: has no colour {color}, only {used}")
    height, width = program.hw.mesh
    if ax is None:
        size = (min(3 + 0.45 * width, 11), min(2.6 + 0.45 * height, 9))
        _, ax = plt.subplots(figsize=size, layout="constrained")
    words = recording.link_words
    words = words.sum(axis=0) if color is None else words[program.colors.index(color)]
    load = words / max(recording.cycles, 1)
    if max(height, width) > ARROWS_UP_TO:
        image = ax.imshow(load[:4].max(axis=0), cmap="viridis", vmin=0, aspect="equal")
    else:
        image = arrows(ax, load)
    ax.figure.colorbar(image, ax=ax, label="words per cycle", shrink=0.8)
    label_mesh(ax)
    what = "all colours" if color is None else f"colour {color}"
    ax.set_title(title(recording).replace(": ", "\n", 1) + f"\n{what}", fontsize=10)
    return ax
