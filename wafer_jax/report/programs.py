"""A program's roles and a run's outcome as tables."""

import pandas as pd

from wafer_jax.hardware import WORD_BYTES
from wafer_jax.program import Program
from wafer_jax.result import Result


def roles(program: Program) -> pd.DataFrame:
    """One row per role: PEs, threads, events, colours, bytes of SRAM."""
    rows = [
        {
            "role": role.name,
            "pes": int(mask.sum()),
            "threads": len(role.threads),
            "events": sum(len(events) for events in role.threads),
            "sends_on": " ".join(map(str, role.bound(0).output)),
            "receives_from": " ".join(map(str, role.bound(0).input)),
            "sram_bytes": role.words * WORD_BYTES,
        }
        for role, mask in zip(program.roles, program.role_masks, strict=True)
    ]
    return pd.DataFrame(rows)


def summary(result: Result) -> pd.DataFrame:
    """What a run comes to, one figure per row."""
    use = result.utilisation
    rows = [
        ("cycles", f"{result.cycles:,}"),
        ("time at the machine's clock", f"{result.seconds * 1e6:,.3g} us"),
        ("busiest link", f"{use.links.max(initial=0):.1%}"),
        ("compute, mean over PEs", f"{use.compute.mean():.1%}"),
        ("faults", str(len(result.faults))),
    ]
    return pd.DataFrame(rows, columns=["figure", "value"])


def faults(result: Result) -> pd.DataFrame:
    """One row per fault: kind, y, x, cycle, what."""
    rows = [(str(f.kind.name).lower(), f.y, f.x, f.cycle, f.what) for f in result.faults]
    return pd.DataFrame(rows, columns=["fault", "y", "x", "cycle", "what"])
