"""``--trace`` of ``wafer-jax run``: record the run and write a trace of it."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wafer_jax.cli.output import Output
from wafer_jax.errors import WaferError

if TYPE_CHECKING:
    from wafer_jax.program import Program
    from wafer_jax.result import Result

Trace = Annotated[
    Path | None,
    typer.Option("--trace", metavar="OUT.json", help="Write a trace for ui.perfetto.dev."),
]
TraceRegion = Annotated[
    str | None,
    typer.Option("--trace-region", metavar="Y0:Y1,X0:X1", help="PEs to trace; all by default."),
]
TraceWindow = Annotated[
    str | None,
    typer.Option("--trace-window", metavar="A:B", help="Cycles to trace; from 0 on by default."),
]


def check_trace(
    trace: Path | None,
    region: str | None,
    window: str | None,
    checkpoint: Path | None,
    program: Path,
) -> None:
    """Refuse what cannot be traced, before anything is read or run.

    Raises:
      WaferError: A region or window without a trace, or malformed; a file that cannot be written
        or is the program; a trace of a run with checkpoints.
    """
    if trace is None:
        for name, value in (("--trace-region", region), ("--trace-window", window)):
            if value is not None:
                raise WaferError(f"{name} needs --trace OUT.json")
        return
    from wafer_jax.report.files import check_output

    if checkpoint is not None:
        raise WaferError("--trace: a run with --checkpoint is not recorded: leave one of them out")
    check_output(trace, program)
    parse_region(region)
    parse_window(window)


def traced_run(
    out: Output,
    program: "Program",
    tiles: dict,
    options: dict,
    trace: Path,
    region: str | None,
    window: str | None,
) -> "Result":
    """Run a program, write its trace and say so.

    Args:
      out: Of the command.
      program: What to run.
      tiles: Its tiles.
      options: values (None for "full"), jitter and max_cycles, as for `record`.
      trace: File to write.
      region: Text of ``--trace-region``.
      window: Text of ``--trace-window``.

    Raises:
      WaferError: As for `record` and `Recording.save_trace`.
    """
    from wafer_jax.report.recorder import record

    options["values"] = options["values"] or "full"
    with out.progress(f"recording {program.name}"):
        recording = record(
            program,
            tiles if options["values"] == "full" else None,
            region=parse_region(region),
            window=parse_window(window),
            **options,
        )
        recording.save_trace(trace)
    first, last = recording.window
    out.text(
        f"{trace}: cycles {first} .. {last} of {recording.ys.size}x{recording.xs.size} PEs, "
        f"open it in ui.perfetto.dev"
    )
    out.text(recording.explain())
    return recording.result


def parse_region(text: str | None) -> tuple[slice, slice] | None:
    """Read ``y0:y1,x0:x1``.

    Raises:
      WaferError: Anything else.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,6}):(\d{1,6}),(\d{1,6}):(\d{1,6})", text.strip(), re.ASCII)
    if match is None:
        raise WaferError(f"--trace-region {text[:40]!r}: expected rows,columns such as 0:4,2:8")
    y0, y1, x0, x1 = map(int, match.groups())
    return slice(y0, y1), slice(x0, x1)


def parse_window(text: str | None) -> tuple[int, int] | None:
    """Read ``a:b``.

    Raises:
      WaferError: Anything else.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,10}):(\d{1,10})", text.strip(), re.ASCII)
    if match is None:
        raise WaferError(f"--trace-window {text[:40]!r}: expected cycles such as 0:5000")
    return int(match[1]), int(match[2])
