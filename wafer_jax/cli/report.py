"""``wafer-jax report``: every published figure done again, on one page."""

from pathlib import Path
from typing import Annotated

import typer

from wafer_jax.cli.options import Json
from wafer_jax.cli.output import Output


def report(
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Write report.html, .md and .json to it."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Run less on the fabric and leave the audit out, to save time."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Do every experiment, the validation and the audit again; exit 1 if one of them fails.

    Without --out the summary and the rows that miss their bar are shown, and nothing is written.
    """
    from wafer_jax.report import reproduction
    from wafer_jax.report.provenance import provenance

    output = Output(json)
    if out is not None:
        reproduction.check_report_folder(out)
    with output.progress("report") as say:
        done = reproduction.reproduce(quick=quick, progress=say)
    output.show(*done.tables())
    if out is not None:
        output.text(f"\nWritten: {done.write(out)}")
    output.finish("report", provenance(), done.record())
    if done.failed:
        raise typer.Exit(1)
