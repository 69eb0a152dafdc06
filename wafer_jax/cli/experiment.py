"""``wafer-jax experiment``: published experiments done again, with the papers' statements."""

from pathlib import Path
from typing import Annotated

import typer

from wafer_jax.cli.options import Json
from wafer_jax.cli.output import Output
from wafer_jax.errors import WaferError


def experiment(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which one; without it they are listed.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Write NAME.md, NAME.png and NAME.json too."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run less on the fabric, to save time.")
    ] = False,
    json: Json = False,
) -> None:
    """Do a published experiment again: tables, a plot, and what the paper states beside ours."""
    from wafer_jax.report import experiments
    from wafer_jax.report.experiment import check_folder
    from wafer_jax.report.provenance import provenance

    output = Output(json)
    names = experiments.experiment_names()
    if name is None:
        if out is not None or quick:
            raise WaferError("--out and --quick need the NAME of an experiment")
        for known, summary in names.items():
            output.text(f"{known:18} {summary}")
        output.finish("experiment", provenance(), {"experiments": names})
        return
    if out is not None and name in names:
        check_folder(out, name)
    with output.progress(f"experiment {name}") as report:
        done = experiments.experiment(name, quick=quick, progress=report)
    output.show(*done.tables())
    if out is not None:
        output.text("\nWritten: " + ", ".join(map(str, done.write(out))))
    output.finish("experiment", done.origin, done.record())
