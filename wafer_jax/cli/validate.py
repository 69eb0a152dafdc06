"""``wafer-jax validate``: published measurements beside our cycles."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wafer_jax.cli.options import Json
from wafer_jax.cli.output import Output

if TYPE_CHECKING:
    import pandas as pd

    from wafer_jax.report.validation import Validation

SHOWN = ["experiment", "size", "mesh", "kind", "preset", "level", "published", "ours", "unit",
         "error_percent", "calibrated"]  # fmt: skip


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
    if every:
        _show_points(out, frame)
    if found.points:
        out.show(table(summary.drop(columns="measured_on")))
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


def _show_points(out: Output, frame: "pd.DataFrame") -> None:
    """Every point, in lines as long as they must be: a table for terminals would cut them."""
    from wafer_jax.report.frames import cell

    for name, rows in frame.groupby("family", sort=False):
        texts = rows[SHOWN].astype(object)
        texts["error_percent"] = [f"{value:+.1f}" for value in rows["error_percent"]]
        texts["mesh"] = ["" if mesh is None else "{}x{}".format(*mesh) for mesh in rows["mesh"]]
        out.section(str(name))
        out.text(texts.map(cell).to_string(index=False))
    out.text("")


def _show_rest(out: Output, found: "Validation", each: bool) -> None:
    """Rows without a figure of ours: each with its reason, or how many there are of a reason."""
    if not found.unexpressed:
        return
    out.show("", f"{len(found.unexpressed)} rows are not compared:")
    if each:
        lines = [f"line {r.line}: {r.experiment} {r.size}: {r.reason}" for r in found.unexpressed]
    else:
        counts = Counter(row.reason for row in found.unexpressed)
        lines = [f"{count}: {reason}" for reason, count in counts.most_common()]
    out.text("\n".join(lines))
