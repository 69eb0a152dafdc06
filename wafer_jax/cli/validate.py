"""``wafer-jax validate``: published measurements beside our cycles."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wafer_jax.cli.options import Json
from wafer_jax.cli.output import Output

if TYPE_CHECKING:
    from wafer_jax.report.validation import Validation

SHOWN = ["family", "experiment", "device", "size", "measured_on", "level", "published", "ours",
         "unit", "error_percent", "calibrated"]  # fmt: skip


def validate(
    family: Annotated[
        str | None, typer.Option("--family", metavar="NAME", help="Only this family of points.")
    ] = None,
    points: Annotated[
        Path | None,
        typer.Option("--points", metavar="FILE.csv", help="Your points, in the shipped format."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show every point.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="Draw published figures against ours."),
    ] = None,
    json: Json = False,
) -> None:
    """Put our figures beside published measurements; exit 1 if a family misses its bar."""
    from wafer_jax.report import validation
    from wafer_jax.report.frames import table
    from wafer_jax.report.provenance import provenance

    if plot is not None:
        from wafer_jax.report.plots import check_plot

        check_plot(plot, *([] if points is None else [points]))
    out = Output(json)
    with out.progress("comparing") as report:
        found = validation.validate(family, points, progress=report)
    summary, frame = found.summary(), found.frame()
    if every and found.points:
        shown = frame.rename(columns={"kind": "measured_on"}).loc[:, SHOWN]
        out.show(table(shown), "")
    if found.points:
        out.show(table(summary))
    _show_rest(out, found, points is not None or every)
    if plot is not None:
        found.plot(plot)
        out.text(f"Plot: {plot}")
    out.finish(
        "validate",
        provenance(),
        {
            "met": found.met,
            "summary": summary,
            "points": frame,
            "unexpressed": [vars(row) for row in found.unexpressed],
        },
    )
    if not found.met:
        raise typer.Exit(1)


def _show_rest(out: Output, found: "Validation", each: bool) -> None:
    """Rows without a figure of ours: each with its reason, or only how many there are."""
    import pandas as pd

    from wafer_jax.report.frames import table

    if not found.unexpressed:
        return
    out.show("", f"{len(found.unexpressed)} rows are not compared:")
    if each:
        out.show(table(pd.DataFrame([vars(row) for row in found.unexpressed])))
    else:
        reasons = pd.Series([row.reason for row in found.unexpressed]).value_counts()
        out.text("\n".join(f"  {count}: {reason}" for reason, count in reasons.items()))
