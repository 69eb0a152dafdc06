"""``wafer-jax run`` and ``wafer-jax show``: programs from files."""

import re
from pathlib import Path
from typing import Annotated

import typer

from wafer_jax.cli.options import Json
from wafer_jax.cli.output import Output
from wafer_jax.errors import WaferError

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
        str, typer.Option("--values", help="full, or none for control and timing only.")
    ] = "full",
    jitter: Annotated[
        int | None, typer.Option("--jitter", metavar="KEY", min=0, max=2**32 - 1,
                                 help="Start PEs late and stall events by this key.")
    ] = None,
    max_cycles: Annotated[int, typer.Option("--max-cycles", min=1)] = 2_000_000_000,
    json: Json = False,
) -> None:  # fmt: skip
    """Run a program file on the fabric; exit 1 if it ends with faults."""
    from wafer_jax.execute import run as execute
    from wafer_jax.jitter import Jitter
    from wafer_jax.report.frames import table
    from wafer_jax.report.programs import faults, summary
    from wafer_jax.report.provenance import provenance

    out = Output(json)
    program, tiles = _load(file)
    asked = None if jitter is None else Jitter(jitter, start_cycles=64, event_cycles=16)
    with out.progress(f"running {program.name}") as report:
        result = execute(
            program,
            tiles if values == "full" else None,
            values=values,  # pyright: ignore[reportArgumentType]
            max_cycles=max_cycles,
            jitter=asked,
            progress=lambda cycle, rate: report(f"cycle {cycle:,}, {rate / 1e6:.1f} M PE-cycles/s"),
        )
    frame = faults(result)
    out.text(repr(result))
    out.show("", table(summary(result)))
    if result.faults:
        out.section("Faults")
        out.show(table(frame))
        out.text("\n".join(result.diagnosis.waiting))
    out.finish(
        "run",
        provenance(program.hw, seed=jitter, level="fabric"),
        {"program": program.name, "cycles": result.cycles, "faults": frame},
    )
    if result.faults:
        raise typer.Exit(1)


def _load(file: Path):
    from wafer_jax.collectives.kernels import GEMM, GEMV
    from wafer_jax.program_file import load_program

    return load_program(file, kernels=[GEMV, GEMM])


def _parse_pe(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,6}),(\d{1,6})", text.strip(), re.ASCII)
    if match is None:
        raise WaferError(f"--pe {text[:40]!r}: expected row,column such as 3,5")
    return int(match[1]), int(match[2])
