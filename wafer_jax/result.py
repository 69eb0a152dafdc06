"""What a run gives back: values, cycles, faults, utilisation, tables and pictures."""

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from wafer_jax.diagnosis import Diagnosis, FaultRecord
from wafer_jax.errors import WaferError
from wafer_jax.faults import FaultError
from wafer_jax.hardware import DIRECTION_NAMES
from wafer_jax.mesh_state import WaferState, lowered, unpack
from wafer_jax.program import Program
from wafer_jax.routes import sources
from wafer_jax.snapshot import snapshot, sram_grid
from wafer_jax.step_spec import from_lanes

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Utilisation:
    """What PEs and links did per cycle of the run.

    Attributes:
      links: [5, Y, X] float64, words on each outgoing link and the RAMP inwards.
      compute: [Y, X] float64, cycles in kernels.
      issue: [Y, X] float64, words that threads sent and received: up to 2, since a core that
        forwards a word does both in one issue.
    """

    links: np.ndarray
    compute: np.ndarray
    issue: np.ndarray

    def __repr__(self) -> str:
        return (
            f"Utilisation(links: mean {self.links.mean():.1%}, busiest {self.links.max():.1%}; "
            f"compute: mean {self.compute.mean():.1%}; words sent and received: mean "
            f"{self.issue.mean():.2f} per cycle)"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """The end of a fabric run.

    Attributes:
      program: What ran.
      state: The final state.
      diagnosis: Faults and waits.
      run_s: Seconds of emulation.
      compile_s: Seconds of compilation before it.
    """

    program: Program
    state: WaferState
    diagnosis: Diagnosis
    run_s: float
    compile_s: float

    level = "fabric"

    @cached_property
    def snapshot(self) -> dict[str, Any]:
        """The final state as arrays over [Y, X]."""
        return snapshot(self.program, self.state)

    @property
    def stopped(self) -> bool:
        """Whether ``max_cycles`` ended the run before it could end by itself."""
        return not bool(self.state.stuck) and not self.starved

    @property
    def starved(self) -> bool:
        """Whether the watchdog ended the run."""
        return self.state.starved is not None and bool(self.state.starved)

    @cached_property
    def cycles(self) -> int:
        """Cycles until the last thread halted, or until the stop if some did not."""
        halted = self.snapshot["halted"]
        finish = int(self.snapshot["ready_at"][halted].max(initial=0))
        return finish if halted.all() else max(finish, self.snapshot["now"])

    @property
    def seconds(self) -> float:
        """``cycles`` at the machine's clock."""
        return self.program.hw.seconds(self.cycles)

    @cached_property
    def finish_cycles(self) -> np.ndarray:
        """[Y, X] int64: when each PE's last thread halted, -1 where one did not."""
        finish = self.snapshot["ready_at"].max(axis=0)
        return np.where(self.snapshot["halted"].all(axis=0), finish, -1)

    @cached_property
    def tiles(self) -> dict[str, np.ndarray]:
        """The output tiles by name, each [*shape, Y, X]; NaN on PEs that lack the tile."""
        if self.state.memory is None:
            raise WaferError(f"{self.program.name}: ran with values='none', so it has no values")
        sram = sram_grid(self.program, self.state)
        return {name: unpack(self.program, sram, name) for name in self.program.outputs}

    @property
    def values(self) -> Any:
        """The output tile, [*shape, Y, X]; a dict by name if there are several."""
        tiles = self.tiles
        return next(iter(tiles.values())) if len(tiles) == 1 else tiles

    @property
    def faults(self) -> tuple[FaultRecord, ...]:
        """What went wrong, empty if nothing did."""
        return self.diagnosis.records

    def raise_on_fault(self) -> "Result":
        """Return the result, or raise ``FaultError`` that names PE, event, cycle and remedy.

        A run that was stopped before its end raises, too.
        """
        if self.stopped:
            raise FaultError(
                f"{self.program.name}: stopped at cycle {self.snapshot['now']}, before its end: "
                f"give a larger max_cycles"
            )
        if self.faults:
            lines = [str(f) for f in self.faults[:5]]
            if (more := len(self.faults) - 5) > 0:
                lines.append(f"and {more} more")
            text = "\n".join((*lines, *self.diagnosis.waiting))
            raise FaultError(f"{self.program.name}: {text}")
        return self

    @cached_property
    def link_words(self) -> np.ndarray:
        """[5, Y, X] int64: words that left each router in each direction.

        In a run with packets every packet counts as a full one.
        """
        totals = self.snapshot["router_total"]
        fixed = ~np.isin(np.arange(len(totals)), lowered(self.program, self.state)[0].dynamic)
        source, held = sources(self.program.rx, self.program.tx, totals)
        sent = self.snapshot["sent"].reshape(len(totals), self.program.hw.num_pes)
        fed = np.take_along_axis(sent, np.maximum(source, 0).reshape(sent.shape), 1)
        passed = np.where(source >= 0, fed.reshape(source.shape) - held, 0)[fixed]
        tx = self.program.tx[fixed]
        words = np.stack([(passed * (tx >> d & 1)).sum(axis=0) for d in range(5)]).astype(np.int64)
        if self.state.passed:
            counted = np.stack([np.asarray(p) for p in self.state.passed])
            words += from_lanes(counted, self.program.hw.mesh)
        return words * self.packet_words

    @property
    def packet_words(self) -> int:
        """Words that travelled as one."""
        return 1 if self.state.packet_words is None else int(self.state.packet_words)

    @cached_property
    def compute_cycles(self) -> np.ndarray:
        """[Y, X] int64: cycles of kernels."""
        if self.state.compute_cycles is None:
            return np.zeros(self.program.hw.mesh, np.int64)
        return from_lanes(np.asarray(self.state.compute_cycles), self.program.hw.mesh).astype(
            np.int64
        )

    @cached_property
    def utilisation(self) -> Utilisation:
        """How busy links and PEs were, as shares of ``cycles``."""
        cycles = max(self.cycles, 1)
        words = (self.snapshot["sent"] + self.snapshot["received"]).sum(axis=0) * self.packet_words
        return Utilisation(
            links=self.link_words / cycles, compute=self.compute_cycles / cycles,
            issue=words / cycles,
        )  # fmt: skip

    @property
    def links(self) -> "pd.DataFrame":
        """One row per used link: y, x, direction, words, words_per_cycle."""
        import pandas as pd  # slow to import, and most runs print no table

        d, y, x = np.nonzero(self.link_words)
        words = self.link_words[d, y, x]
        return pd.DataFrame(
            {
                "y": y,
                "x": x,
                "direction": np.array(DIRECTION_NAMES)[d],
                "words": words,
                "words_per_cycle": words / max(self.cycles, 1),
            }
        )

    @property
    def pes(self) -> "pd.DataFrame":
        """One row per PE: y, x, role, finish_cycle, compute_cycles, words sent and received."""
        import pandas as pd

        y, x = (a.ravel() for a in np.indices(self.program.hw.mesh))
        names = np.array([r.name for r in self.program.roles])
        return pd.DataFrame(
            {
                "y": y,
                "x": x,
                "role": names[self.program.role_of.ravel()],
                "finish_cycle": self.finish_cycles.ravel(),
                "compute_cycles": self.compute_cycles.ravel(),
                "words_sent": self.snapshot["sent"].sum(axis=0).ravel(),
                "words_received": self.snapshot["received"].sum(axis=0).ravel(),
                "faults": self.diagnosis.bits.ravel(),
            }
        )

    def plot_links(self, ax=None):
        """Draw the mesh with the load of every link; returns the matplotlib axes."""
        from wafer_jax.pictures import plot_links

        return plot_links(self, ax)

    def __repr__(self) -> str:
        return f"Result({self._summary()})"

    def _summary(self) -> str:
        height, width = self.program.hw.mesh
        packets = f" in packets of {self.packet_words} words" if self.packet_words > 1 else ""
        end = f", {len(self.faults)} fault{'s'[: len(self.faults) > 1]}" if self.faults else ""
        end += ", stopped at max_cycles" if self.stopped else ""
        return (
            f"{self.program.name}: {self.cycles} cycles on {height}x{width} PEs of "
            f"{self.program.hw.name}, level {self.level}{packets}{end}"
        )

    def _repr_html_(self) -> str:
        u = self.utilisation
        faults = "<br>".join(escape(str(f)) for f in self.faults[:5]) or "none"
        rows = {
            "cycles": f"{self.cycles:,} ({self.seconds * 1e6:.3g} µs at "
            f"{self.program.hw.clock_hz / 1e9:g} GHz)",
            "level": self.level,
            "mesh": f"{self.program.hw.mesh[0]} x {self.program.hw.mesh[1]} PEs of "
            f"{self.program.hw.name}",
            "busiest link": f"{u.links.max():.1%}",
            "compute, mean": f"{u.compute.mean():.1%}",
            "faults": faults,
        }
        body = "".join(f"<tr><th>{k}</th><td>{v}</td></tr>" for k, v in rows.items())
        return f"<b>{escape(self.program.name)}</b><table>{body}</table>"
