"""Where the PE-cycles of a recorded run went, as tables and in words."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.hardware import DIRECTION_NAMES
from wafer_jax.program import NO_ROUTE, direction_set
from wafer_jax.report.activity import MEANING, WAITS, Activity

if TYPE_CHECKING:
    import pandas as pd

    from wafer_jax.report.recording import Cause, Recording

_SIDES = {"N": "north", "E": "east", "S": "south", "W": "west", "RAMP": "own PE"}
LOST = (*WAITS, Activity.STARTING)


class Share(NamedTuple):
    """PE-cycles of all PEs that went to one cause."""

    activity: Activity
    color: int | None
    side: str
    pe_cycles: int


def stalls(recording: "Recording") -> "pd.DataFrame":
    """Attribute every PE-cycle of a run.

    Args:
      recording: The run.

    Returns:
      One row per state, colour and side with the columns state, color (the device's number, or
      missing), side (from which a word is missing, or towards which there is no room; empty where
      the routes of the colour change), pe_cycles and share; largest first, shares sum to 1.
    """
    import pandas as pd  # slow to import, and most runs print no table

    rows = shares(recording)
    whole = max(sum(row.pe_cycles for row in rows), 1)
    return pd.DataFrame(
        {
            "state": [MEANING[row.activity] for row in rows],
            "color": pd.array([row.color for row in rows], dtype="Int64"),
            "side": [row.side for row in rows],
            "pe_cycles": [row.pe_cycles for row in rows],
            "share": [row.pe_cycles / whole for row in rows],
        }
    )


def shares(recording: "Recording") -> list[Share]:
    """The causes that took any PE-cycle, largest first."""
    rows = []
    for cause, cycles in zip(recording.causes, recording.totals, strict=True):
        color = None if cause.color is None else recording.program.colors[cause.color]
        for side, where in _sides(recording, cause):
            if amount := int(cycles[where].sum()):
                rows.append(Share(cause.activity, color, side, amount))
    return sorted(rows, key=lambda row: -row.pe_cycles)


def _sides(recording: "Recording", cause: "Cause") -> list[tuple[str, np.ndarray]]:
    """The sides that a cause splits into, each with the PEs [Y, X] bool that it concerns."""
    if cause.color is None or cause.color in recording.changing:
        return [("", np.ones(recording.program.hw.mesh, bool))]
    if cause.activity is Activity.NEEDS_WORD:
        rx = recording.rx[cause.color]
        names = {d: name for d, name in enumerate(DIRECTION_NAMES)} | {NO_ROUTE: "nowhere"}
        return [(names[int(d)], rx == d) for d in np.unique(rx)]
    tx = recording.tx[cause.color]
    return [(direction_set(int(mask)), tx == mask) for mask in np.unique(tx)]


def explain(recording: "Recording", causes: int) -> str:
    """The largest causes of lost PE-cycles, a sentence each, and what the rest does."""
    rows = shares(recording)
    whole = max(sum(row.pe_cycles for row in rows), 1)
    lost = [row for row in rows if row.activity in LOST]
    lines = [f"{row.pe_cycles / whole:.1%} of PE-cycles {_what(row)}" for row in lost[:causes]]
    if others := sum(row.pe_cycles for row in lost[causes:]):
        lines.append(
            f"{others / whole:.1%} of PE-cycles are lost to {len(lost) - causes} other causes"
        )
    halted = sum(row.pe_cycles for row in rows if row.activity is Activity.HALTED)
    busy = whole - halted - sum(row.pe_cycles for row in lost)
    lines.append(f"{busy / whole:.1%} compute or move words, {halted / whole:.1%} have halted")
    return "\n".join(lines)


def _what(row: Share) -> str:
    sides = " and the ".join(_SIDES.get(side, side) for side in row.side.split("+"))
    match row.activity:
        case Activity.NEEDS_WORD:
            place = f" from the {sides}" if sides else ""
            return f"wait for a word of colour {row.color}{place}"
        case Activity.NEEDS_ROOM:
            place = f" to the {sides}" if sides else ""
            return f"wait for room on colour {row.color}{place}"
        case Activity.NEEDS_SIGNAL:
            return "wait for a signal of another thread"
    return "set up a stream or stall before an event"


def compare(a: "Recording", b: "Recording", names: tuple[str, str] | None = None) -> "pd.DataFrame":
    """Set two runs side by side: two machines, or two algorithms.

    Args:
      a: One run.
      b: The other.
      names: What to call them; by default the machines, or else the programs.

    Returns:
      One row per state and colour with the cycles of a mean PE in each run and their difference;
      the first row is the whole run, the others sum to it.

    Raises:
      WaferError: Two equal names.
    """
    import pandas as pd

    names = names or run_names(a, b)
    means = [_mean_cycles(recording) for recording in (a, b)]
    rows = [
        (cause, means[0].get(cause, 0.0), means[1].get(cause, 0.0))
        for cause in dict.fromkeys([*means[0], *means[1]])
    ]
    rows.sort(key=lambda row: -abs(row[2] - row[1]))
    rows = [("all", float(a.cycles), float(b.cycles)), *rows]
    columns = ["cause", f"{names[0]}_cycles", f"{names[1]}_cycles", "difference_cycles"]
    return pd.DataFrame([(*row, row[2] - row[1]) for row in rows], columns=pd.Index(columns))


def run_names(a: "Recording", b: "Recording") -> tuple[str, str]:
    """What tells two runs apart: their machines, or else their programs.

    Raises:
      WaferError: Nothing does.
    """
    for one, other in ((a.program.hw.name, b.program.hw.name), (a.program.name, b.program.name)):
        if one != other:
            return one, other
    raise WaferError(f"compare: both runs are {a.program.name!r}: give names=(..., ...)")


def _mean_cycles(recording: "Recording") -> dict[str, float]:
    """Cycles of a mean PE per cause."""
    means: dict[str, float] = {}
    for row in shares(recording):
        label = MEANING[row.activity] + ("" if row.color is None else f", colour {row.color}")
        means[label] = means.get(label, 0.0) + row.pe_cycles / recording.program.hw.num_pes
    return means
