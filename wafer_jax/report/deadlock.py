"""A deadlock, or a region that the watchdog found dead, as a sentence and as a picture."""

import textwrap

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.faults import Fault
from wafer_jax.pictures import pyplot
from wafer_jax.report.axes import label_mesh
from wafer_jax.result import Result

LISTED = 8
"""PEs of the chain that the sentence names, and lines under the picture."""


def deadlock_sentence(result: Result) -> str:
    """Say who waits for whom.

    Raises:
      WaferError: The run ended neither in a deadlock nor with a starved thread.
    """
    chain, waiting = _chain(result), int(_stuck(result).sum())
    others = f"; {waiting} PEs do not go on" if waiting > len(chain) else ""
    what = "Starved" if result.starved else "Deadlock"
    start = f"{what} at cycle {result.snapshot['now']:,}"
    if len(chain) == 1:
        return f"{start}: {result.diagnosis.waiting[0]}{others}."
    names = [f"({y}, {x})" for y, x in chain[:LISTED]]
    more = f" -> {len(chain) - LISTED} more" if len(chain) > LISTED else ""
    circle = " -> ".join(names) + f"{more} -> {names[0]}"
    return f"{start}: {len(chain)} PEs (y, x) wait for each other, {circle}{others}."


def plot_deadlock(result: Result, ax=None):
    """Draw the mesh with the PEs that wait for each other.

    Returns:
      The matplotlib axes.

    Raises:
      WaferError: The run ended neither in a deadlock nor with a starved thread; matplotlib is not
        installed.
    """
    plt = pyplot()
    chain, stuck = _chain(result), _stuck(result)
    height, width = result.program.hw.mesh
    if ax is None:
        size = (max(6.0, min(2 + 0.5 * width, 11)), min(2.6 + 0.5 * height, 10))
        _, ax = plt.subplots(figsize=size, layout="constrained")
    side = 320 if max(height, width) <= 12 else 30
    ys, xs = np.mgrid[0:height, 0:width]
    ax.scatter(xs, ys, s=side, marker="s", color="0.92", zorder=1)
    stuck[tuple(np.array(chain).T)] = False
    if stuck.any():
        ys, xs = np.nonzero(stuck)
        ax.scatter(xs, ys, s=side, marker="s", color="#f3c9a5", zorder=2, label="does not go on")
    ys, xs = np.array(chain).T
    ax.scatter(xs, ys, s=side, marker="s", color="#d1495b", zorder=3, label="in the chain")
    if len(chain) > 1:
        for a, b in zip(chain, [*chain[1:], chain[0]], strict=True):
            ax.annotate(
                "", xy=(b[1], b[0]), xytext=(a[1], a[0]), zorder=4,
                arrowprops={"arrowstyle": "-|>", "connectionstyle": "arc3,rad=0.25",
                            "color": "black", "shrinkA": 6, "shrinkB": 6},
            )  # fmt: skip
        ax.plot([], [], color="black", marker=">", label="waits for")
    ax.set(xlim=(-0.7, width - 0.3), ylim=(height - 0.3, -0.7), aspect="equal")
    label_mesh(ax)
    ax.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=9, markerscale=0.5
    )
    ax.set_title(_wrapped(f"{result.program.name}\n{deadlock_sentence(result)}"), fontsize=9)
    return ax


def _stuck(result: Result) -> np.ndarray:
    return result.diagnosis.bits & (Fault.DEADLOCK | Fault.STARVED) != 0


def _chain(result: Result) -> tuple[tuple[int, int], ...]:
    """The PEs of the chain, each waiting for the next, the last for the first."""
    if not result.diagnosis.chain:
        raise WaferError(f"{result.program.name}: did not end in a deadlock, there is none to draw")
    return result.diagnosis.chain


def _wrapped(text: str, width: int = 64) -> str:
    return "\n".join(line for part in text.split("\n") for line in textwrap.wrap(part, width))
