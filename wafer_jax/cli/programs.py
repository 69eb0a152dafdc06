"""``wafer-jax run`` and ``wafer-jax show``: programs from files."""

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wafer_jax.cli.device_options import Device, DeviceCount, chosen_devices
from wafer_jax.cli.options import Json
from wafer_jax.cli.output import Output
from wafer_jax.cli.trace_options import Trace, TraceRegion, TraceWindow, check_trace, traced_run
from wafer_jax.errors import WaferError

if TYPE_CHECKING:
    from wafer_jax.program import Program
    from wafer_jax.result import Result

MAX_CYCLES, EVERY_S = 2_000_000_000, 300.0
"""As for `wafer_jax.run` and `wafer_jax.runtime.run`, whose modules are slow to import."""
File = Annotated[Path, typer.Argument(metavar="FILE", help="Written by wj.save_program.")]


def show(
    file: File,
    pe: Annotated[
        str | None, typer.Option("--pe", metavar="Y,X", help="One PE's routes and event table.")
    ] = None,
    json: Json = False,
) -> None:
    """Show a program file: machine, roles, or one PE's routes and events."""
    from wafer_jax.report.programs import roles
    from wafer_jax.report.provenance import provenance

    out = Output(json)
    program, tiles = _load(file)
    origin = provenance(program.hw, level="fabric")
    if pe is not None:
        text = program.at(*_parse_pe(pe))
        out.text(text)
        out.finish("show", origin, {"program": program.name, "pe": _parse_pe(pe), "text": text})
        return
    from wafer_jax.report.frames import table

    frame = roles(program)
    saved = ", ".join(sorted(tiles)) or "none"
    out.text(repr(program))
    out.show(f"Tiles saved with it: {saved}", "", table(frame))
    out.show("", f"One PE: [bold]wafer-jax show {file} --pe 0,0[/]")
    out.finish("show", origin, {"program": program.name, "tiles": sorted(tiles), "roles": frame})


def run(
    file: File,
    values: Annotated[
        str | None, typer.Option("--values", help="full (default), or none: only timing.")
    ] = None,
    jitter: Annotated[
        int | None, typer.Option("--jitter", metavar="KEY", min=0, max=2**32 - 1,
                                 help="Start PEs late and stall events by this key.")
    ] = None,
    max_cycles: Annotated[int, typer.Option("--max-cycles", min=1)] = MAX_CYCLES,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", metavar="DIR",
                                  help="Save the state here as the run goes, and on Ctrl-C.")
    ] = None,
    every: Annotated[
        float | None, typer.Option("--every", metavar="SECONDS",
                                   help=f"Time between checkpoints; {EVERY_S:g} by default.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint in DIR.")
    ] = False,
    watchdog: Annotated[
        int, typer.Option("--watchdog", metavar="CYCLES", min=0,
                          help="End the run when a thread was blocked for so long.")
    ] = 0,
    packet_words: Annotated[
        int, typer.Option("--packet-words", min=1,
                          help="Words that travel as one: faster, approximate, timing only.")
    ] = 1,
    device: Device = None,
    devices: DeviceCount = None,
    trace: Trace = None,
    trace_region: TraceRegion = None,
    trace_window: TraceWindow = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Run a program file on the fabric; exit 1 if it ends with faults, 130 if interrupted."""
    from wafer_jax.jitter import Jitter
    from wafer_jax.report.frames import table
    from wafer_jax.report.programs import faults, summary
    from wafer_jax.report.provenance import provenance

    folder = _checkpoint_folder(checkpoint, every, resume)
    check_trace(trace, trace_region, trace_window, folder, file)
    if trace is not None and (watchdog or packet_words > 1 or device or devices):
        raise WaferError("--trace: not with --watchdog, --packet-words, --device or --devices")
    if resume and (watchdog or packet_words > 1):
        raise WaferError("--resume: watchdog and packets are those of the checkpoint")
    out = Output(json)
    program, tiles = _load(file)
    asked = None if jitter is None else Jitter(jitter, start_cycles=64, event_cycles=16)
    options = {"values": values, "jitter": asked, "max_cycles": max_cycles}
    try:
        if trace is not None:
            result = traced_run(out, program, tiles, options, trace, trace_region, trace_window)
        else:
            options["devices"] = chosen_devices(device, devices)
            if not resume:
                options |= {"watchdog_cycles": watchdog, "packet_words": packet_words}
            result = _execute(out, program, tiles, options, folder, every or EVERY_S, resume)
    except KeyboardInterrupt as stop:
        if folder is not None and str(stop):
            again = ["run", str(file), "--checkpoint", str(folder), "--resume"]
            print(f"{stop}\nresume it with: wafer-jax {shlex.join(again)}", file=sys.stderr)
        raise
    frame = faults(result)
    seed = None if result.state.jitter is None else int(result.state.jitter[0])
    out.text(repr(result))
    out.show("", table(summary(result)))
    if result.faults:
        out.section("Faults")
        out.show(table(frame))
        out.text("\n".join(result.diagnosis.waiting))
        if result.state.packet_words is not None:
            out.text(f"In packets of {int(result.state.packet_words)} words: streams must be cut "
                     "alike at both ends (docs/semantics.md, section 7)")  # fmt: skip
    out.finish(
        "run",
        provenance(program.hw, seed=seed, level="fabric"),
        {
            "program": program.name,
            "cycles": result.cycles,
            "stopped": result.stopped,
            "starved": result.starved,
            "faults": frame,
        },
    )
    if result.faults:
        raise typer.Exit(1)


def _checkpoint_folder(text: str | None, every: float | None, resume: bool) -> Path | None:
    if text is None:
        if resume:
            raise WaferError("--resume: say where from, with --checkpoint DIR")
        if every is not None:
            raise WaferError("--every: say where to save, with --checkpoint DIR")
        return None
    if not text:
        raise WaferError("--checkpoint is empty: give a folder")
    if every is not None and not every > 0:
        raise WaferError(f"--every {every:g}: give a number of seconds above 0")
    return Path(text)


def _execute(
    out: Output,
    program: "Program",
    tiles: dict,
    options: dict,
    folder: Path | None,
    every_s: float,
    resume: bool,
) -> "Result":
    """Run or resume, with or without checkpoints, and say how far it is."""
    from wafer_jax import execute
    from wafer_jax.runtime import long_run
    from wafer_jax.runtime.progress import progress_text

    pes, least = program.hw.num_pes, execute.estimate(program).min_cycles
    with out.progress(f"running {program.name}") as report:
        options["progress"] = lambda cycle, rate: report(progress_text(cycle, rate, pes, least))
        if folder is not None and resume:
            return long_run.resume(program, folder, every_s=every_s, **options)
        options["values"] = options["values"] or "full"
        if options["values"] == "none":
            tiles = {}
        if folder is None:
            return execute.run(program, tiles, **options)
        return long_run.run(program, tiles, folder, every_s=every_s, **options)


def _load(file: Path):
    from wafer_jax.collectives.kernels import GEMM, GEMV
    from wafer_jax.program_file import load_program

    return load_program(file, kernels=[GEMV, GEMM])


def _parse_pe(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,6}),(\d{1,6})", text.strip(), re.ASCII)
    if match is None:
        raise WaferError(f"--pe {text[:40]!r}: expected row,column such as 3,5")
    return int(match[1]), int(match[2])
