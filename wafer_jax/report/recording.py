"""A recorded run: what PEs did cycle by cycle, and where their cycles went.

Axes: C colours, T threads, K causes, R rows, Y X the mesh, y x the region.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.hardware import DIRECTION_NAMES
from wafer_jax.program import Program
from wafer_jax.report.activity import COLOR_BITS, Activity
from wafer_jax.report.slices import Slices, join
from wafer_jax.result import Result

if TYPE_CHECKING:
    import pandas as pd


class Cause(NamedTuple):
    """What a cycle of a PE goes to: an activity, and for waits the index of the colour."""

    activity: Activity
    color: int | None = None

    @property
    def code(self) -> int:
        """As in `Observation`."""
        return self.activity << COLOR_BITS | (self.color or 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """A run with what its PEs did.

    A *row* is one cycle, or several in which nothing changed.

    Attributes:
      program: What ran.
      result: Values, faults and cycles of the run.
      cycles: Cycles that were observed, up to the end of the last kernel or word.
      causes: What a PE's cycles can go to, K of them.
      totals: [K, Y, X] int64, cycles of each PE per cause; they sum to ``cycles``.
      link_words: [C, 5, Y, X] int64, words of each colour that left each router in each direction.
      changing: Indices of colours whose routes may change in the run.
      rx: [C, Y, X] int8, receive directions at the end.
      tx: [C, Y, X] uint8, transmit sets at the end.
      ys: [y] int64, rows of the region.
      xs: [x] int64, its columns.
      start: [R] int64, first cycle of each row that was kept.
      span: [R] int64, its cycles.
      threads: [R, T, y, x] uint16, ``activity << COLOR_BITS | colour index`` of each thread.
      left: [R, y, x] uint32, mask of the colours whose head left the router.
      links_used: [R, y, x] uint8, set of the directions in which words left it.
      router_words: [R, C, y, x] uint8, words in each router FIFO.
      input_words: [R, C, y, x] uint8, words in each input queue.
    """

    program: Program
    result: Result
    cycles: int
    causes: tuple[Cause, ...]
    totals: np.ndarray
    link_words: np.ndarray
    changing: tuple[int, ...]
    rx: np.ndarray
    tx: np.ndarray
    ys: np.ndarray
    xs: np.ndarray
    start: np.ndarray
    span: np.ndarray
    threads: np.ndarray
    left: np.ndarray
    links_used: np.ndarray
    router_words: np.ndarray
    input_words: np.ndarray

    @cached_property
    def pes(self) -> np.ndarray:
        """[R, y, x] uint16: code of each PE, the greatest of its threads'."""
        return self.threads.max(axis=1)

    @property
    def window(self) -> tuple[int, int]:
        """First cycle that was kept, and the one after the last."""
        if not self.start.size:
            return 0, 0
        return int(self.start[0]), int(self.start[-1] + self.span[-1])

    def at(self, y: int, x: int) -> tuple[int, int]:
        """Place of a PE within the region.

        Raises:
          WaferError: It was not recorded.
        """
        row, column = np.flatnonzero(self.ys == y), np.flatnonzero(self.xs == x)
        if not (row.size and column.size):
            raise WaferError(f"{self.program.name}: PE (y={y}, x={x}) is not in the recording")
        return int(row[0]), int(column[0])

    def slices(self, y: int, x: int, thread: int | None = None) -> Slices:
        """What a PE, or one thread of it, does from when to when.

        Raises:
          WaferError: The PE was not recorded.
        """
        row, column = self.at(y, x)
        codes = self.pes if thread is None else self.threads[:, thread]
        return join(codes[:, row, column], self.start, self.span)

    @property
    def stalls(self) -> "pd.DataFrame":
        """Where all PE-cycles went: state, color, side, pe_cycles, share; shares sum to 1."""
        from wafer_jax.report.stalls import stalls

        return stalls(self)

    @property
    def colors(self) -> "pd.DataFrame":
        """One row per colour: words moved over links, links used, and how busy these were."""
        import pandas as pd  # slow to import, and most runs print no table

        rows = []
        for color, words in zip(self.program.colors, self.link_words, strict=True):
            used = words[words > 0] / max(self.cycles, 1)
            rows.append((color, int(words.sum()), used.size, used.mean() if used.size else 0.0,
                         used.max(initial=0.0)))  # fmt: skip
        columns = ["color", "words", "links", "mean_utilisation", "busiest_link"]
        return pd.DataFrame(rows, columns=columns)

    @property
    def links(self) -> "pd.DataFrame":
        """One row per used link and colour: y, x, direction, color, words, words_per_cycle."""
        import pandas as pd

        c, d, y, x = np.nonzero(self.link_words)
        words = self.link_words[c, d, y, x]
        return pd.DataFrame(
            {
                "y": y,
                "x": x,
                "direction": np.array(DIRECTION_NAMES)[d],
                "color": np.array(self.program.colors, int)[c],
                "words": words,
                "words_per_cycle": words / max(self.cycles, 1),
            }
        )

    def queues(self, y: int, x: int) -> "pd.DataFrame":
        """Words in the queues of a PE over time: cycle, and per queue a column "router 3"."""
        import pandas as pd

        row, column = self.at(y, x)
        fills = {"cycle": self.start}
        for kind, words in (("router", self.router_words), ("input", self.input_words)):
            for c, color in enumerate(self.program.colors):
                if words[:, c, row, column].any():
                    fills[f"{kind} {color}"] = words[:, c, row, column].astype(np.int64)
        return pd.DataFrame(fills)

    def explain(self, causes: int = 3) -> str:
        """The largest causes of lost PE-cycles in words, a line each."""
        from wafer_jax.report.stalls import explain

        return explain(self, causes)

    def plot_timeline(self, ax=None):
        """Draw PE x cycle, coloured by what the PE does; returns the matplotlib axes."""
        from wafer_jax.report.timeline import plot_timeline

        return plot_timeline(self, ax)

    def plot_queues(self, y: int, x: int, ax=None):
        """Draw the fill of a PE's queues over the cycles; returns the matplotlib axes."""
        from wafer_jax.report.timeline import plot_queues

        return plot_queues(self, y, x, ax)

    def plot_links(self, color: int | None = None, ax=None):
        """Draw the load of every link, of one colour or of all; returns the matplotlib axes."""
        from wafer_jax.report.link_pictures import plot_links

        return plot_links(self, color, ax)

    def plot_stalls(self, ax=None):
        """Draw the mesh, coloured by the share of cycles that each PE waits."""
        from wafer_jax.report.stall_pictures import plot_stalls

        return plot_stalls(self, ax)

    def animate(self, cycles_per_frame: int | None = None):
        """Film the mesh; ``.to_jshtml()`` of the result plays in a notebook."""
        from wafer_jax.report.film import animate

        return animate(self, cycles_per_frame)

    def save_trace(self, path: str | Path) -> None:
        """Write a trace for ui.perfetto.dev or chrome://tracing; one cycle is one microsecond."""
        from wafer_jax.report.trace import save_trace

        save_trace(self, path)

    def __repr__(self) -> str:
        first, last = self.window
        return (
            f"Recording({self.program.name}: {self.cycles} cycles, kept {first} .. {last} of "
            f"{len(self.ys)}x{len(self.xs)} PEs)"
        )
