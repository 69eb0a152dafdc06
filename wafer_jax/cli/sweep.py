"""``wafer-jax sweep``: a grid of machines, sizes and algorithms into a table."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from wafer_jax.cli.options import Json
from wafer_jax.cli.output import Output


def sweep(
    config: Annotated[
        str,
        typer.Argument(metavar="CONFIG", help="A YAML file, or a shipped experiment: 'ktree'."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.jsonl", help="The table; by default CONFIG.jsonl."),
    ] = None,
    json: Json = False,
) -> None:
    """Evaluate every point of a grid; points that the table has already are not run again.

    Ctrl-C leaves a whole table: the same command goes on. A point that fails is a row, too.
    """
    from wafer_jax.report.files import check_output
    from wafer_jax.report.frames import table
    from wafer_jax.report.provenance import provenance
    from wafer_jax.runtime.sweep import sweep as evaluate
    from wafer_jax.runtime.sweep_config import load_sweep

    output = Output(json)
    grid = load_sweep(config)
    file = out or Path(f"{Path(config).stem}.jsonl")
    check_output(file, config)
    with output.progress(f"{grid.num_points} points") as report:
        say = lambda number, of, point: report(f"{number + 1} of {of}: {point}")
        try:
            frame = evaluate(grid, file, progress=say)
        except KeyboardInterrupt:
            print(f"{file} has what was done; the same command goes on", file=sys.stderr)
            raise
    failed = len(frame[frame["error"].notna()])
    shown = frame.drop(columns=["preset_hash", "version"])
    output.show(table(shown if failed else shown.drop(columns="error")), "")
    if failed:
        output.text(f"{failed} of {len(frame)} points failed; the column error says why.")
    output.text(f"Table: {file}")
    output.finish("sweep", provenance(level=grid.level), {"table": str(file), "rows": frame})
