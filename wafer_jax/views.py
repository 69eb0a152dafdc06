"""A state in the middle of a run, as tables: what is queued, and what every thread is at."""

from typing import TYPE_CHECKING

import numpy as np

from wafer_jax.mesh_state import WaferState
from wafer_jax.program import Program
from wafer_jax.snapshot import snapshot

if TYPE_CHECKING:
    import pandas as pd


def queues(program: Program, state: WaferState) -> "pd.DataFrame":
    """Queues that hold words: y, x, queue, color, words, ready (may leave in this cycle)."""
    import pandas as pd  # slow to import, and most runs print no table

    snap = snapshot(program, state)
    parts = []
    for kind in ("router", "input"):
        total = snap[f"{kind}_total"]
        c, y, x = np.nonzero(total)
        parts.append(
            pd.DataFrame(
                {
                    "y": y,
                    "x": x,
                    "queue": kind,
                    "color": np.array(program.colors, int)[c],
                    "words": total[c, y, x],
                    "ready": snap[f"{kind}_ready"][c, y, x],
                }
            )
        )
    table = pd.concat(parts, ignore_index=True)
    return table.sort_values(["y", "x", "queue", "color"], ignore_index=True)


def threads(program: Program, state: WaferState) -> "pd.DataFrame":
    """Threads that have not halted: y, x, thread, pc, event, left, ready_at."""
    import pandas as pd

    snap = snapshot(program, state)
    t, y, x = np.nonzero(~snap["halted"])
    pc = snap["pc"][t, y, x]
    events = [
        program.role_at(int(row), int(column)).describe(int(thread), int(number))
        for thread, row, column, number in zip(t, y, x, pc, strict=True)
    ]
    table = pd.DataFrame(
        {
            "y": y,
            "x": x,
            "thread": t,
            "pc": pc,
            "event": events,
            "left": snap["left"][t, y, x],
            "ready_at": snap["ready_at"][t, y, x],
        }
    )
    return table.sort_values(["y", "x", "thread"], ignore_index=True)
