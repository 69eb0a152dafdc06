"""What an experiment is: a published one done again, as tables, a plot and a file of figures.

A paper states things in words where its bars are not public. An experiment puts our figure beside
each statement, and says whether it is reproduced.
"""

import json
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pandas as pd
import yaml
from rich.console import RenderableType

from wafer_jax.errors import WaferError
from wafer_jax.hardware import configs_dir
from wafer_jax.report.audit_result import rendered
from wafer_jax.report.files import atomic, check_output, make_folder
from wafer_jax.report.frames import heading, is_number, plain, table, texts
from wafer_jax.report.plots import check_plot, new_figure
from wafer_jax.report.provenance import provenance_line
from wafer_jax.runtime.sweep import evaluate
from wafer_jax.runtime.sweep_config import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[str], None]
Verdict = Literal["yes", "partly", "no", "not modelled"]
_Settings = TypeVar("_Settings")


@dataclass(frozen=True)
class Reading:
    """Our figure for a statement, under one reading of it.

    Attributes:
      model: Which of our figures, such as "asynchronous".
      ours: The figure, in words.
      verdict: Whether it is what the paper states.
    """

    model: str
    ours: str
    verdict: Verdict


@dataclass(frozen=True)
class Statement:
    """What a paper states.

    Attributes:
      claim: In our words.
      readings: Ours.
      reason: Why they agree or do not.
    """

    claim: str
    readings: tuple[Reading, ...]
    reason: str

    def __str__(self) -> str:
        lines = [f"- {self.claim}"]
        lines += [f"    {r.model}: {r.verdict}. {r.ours}" for r in self.readings]
        return "\n".join([*lines, f"    {self.reason}"])


@dataclass(frozen=True)
class Section:
    """A table.

    Attributes:
      title: Says the level of its figures.
      frame: Its rows.
      note: A sentence below, or empty.
    """

    title: str
    frame: pd.DataFrame
    note: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Experiment:
    """An experiment that was done. Print it, or `write` it to a folder.

    Attributes:
      name: By which it is called.
      title: What it compares.
      origin: From ``report.provenance``.
      sections: Its tables.
      statements: What the paper states, with ours.
      figures: Every figure as a row of its own, with its level.
      draw: Fills an empty figure with the plot.
      plot_inches: Width and height of the plot.
    """

    name: str
    title: str
    origin: dict[str, Any]
    sections: tuple[Section, ...]
    statements: tuple[Statement, ...]
    figures: pd.DataFrame
    draw: Callable[["Figure"], None]
    plot_inches: tuple[float, float]

    def tables(self) -> list[RenderableType]:
        """For a rich console."""
        parts: list[RenderableType] = [f"[bold cyan]{self.title}[/]"]
        for section in self.sections:
            parts += ["", table(section.frame, section.title)]
            parts += ["", section.note] if section.note else []
        return [*parts, "", "[bold]Statements of the paper, and whether ours say the same[/]",
                *map(str, self.statements)]  # fmt: skip

    def __str__(self) -> str:
        return rendered(self.tables())

    def markdown(self) -> str:
        """The same as Markdown."""
        parts = [f"# {self.name}", self.title, provenance_line(self.origin)]
        parts += markdown_body(self.sections, self.statements, "##")
        return "\n\n".join(parts) + "\n"

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return plain(
            {
                "experiment": self.name,
                "title": self.title,
                "sections": [asdict(s) | {"frame": s.frame} for s in self.sections],
                "statements": [asdict(s) for s in self.statements],
                "figures": self.figures,
            }
        )

    def plot(self, path: str | Path) -> None:
        """Draw it; the suffix chooses the format, and the file appears whole or not at all.

        Raises:
          WaferError: matplotlib is missing, or the file cannot be written.
        """
        path = check_plot(path)
        with atomic(path) as temporary:
            self._save(temporary)

    def write(self, folder: str | Path) -> tuple[Path, ...]:
        """Write NAME.md, NAME.png and NAME.json, all of them or none.

        Raises:
          WaferError: matplotlib is missing, or a file cannot be written.
        """
        paths = check_folder(folder, self.name)
        make_folder(folder)
        with ExitStack() as files:
            page, picture, figures = (files.enter_context(atomic(path)) for path in paths)
            page.write_text(self.markdown(), encoding="utf-8")
            self._save(picture)
            text = json.dumps({**self.origin, **self.record()}, indent=2, allow_nan=False)
            figures.write_text(text + "\n", encoding="utf-8")
        return paths

    def png(self) -> bytes:
        """The plot as a file's content.

        Raises:
          WaferError: matplotlib is missing.
        """
        content = BytesIO()
        self._save(content)
        return content.getvalue()

    def _save(self, path: Path | BytesIO) -> None:
        figure = new_figure(self.plot_inches)
        self.draw(figure)
        figure.savefig(path, dpi=110)


def check_folder(folder: str | Path, name: str) -> tuple[Path, Path, Path]:
    """Refuse a folder that an experiment could not be written to, before it is done.

    Raises:
      WaferError: As for ``check_plot``; the folder's own folder is missing.
    """
    folder = Path(folder)
    paths = tuple(folder / f"{name}{suffix}" for suffix in (".md", ".png", ".json"))
    if os.path.isdir(folder):
        for path in paths:
            check_output(path)
        check_plot(paths[1])
    elif os.path.exists(folder):
        raise WaferError(f"cannot write to {folder}: {folder.name} is a file; give a folder")
    else:
        check_output(folder)
        new_figure((1, 1))
    return paths[0], paths[1], paths[2]


def settings(name: str, quick: bool, kind: type[_Settings]) -> _Settings:
    """Read configs/experiments/NAME.yaml into a dataclass; ``quick`` there is what changes then.

    Raises:
      WaferError: A file that does not have the dataclass's fields.
    """
    path = configs_dir() / "experiments" / f"{name}.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    changes = values.pop("quick")
    values |= changes if quick else {}
    names = {f.name for f in fields(kind)}  # pyright: ignore[reportArgumentType]
    if wrong := names ^ set(values):
        raise WaferError(f"{path.name}: unknown or missing key {min(wrong)}")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def overlap(points: Iterable[tuple[str, Point]], progress: Progress) -> pd.DataFrame:
    """Run points on the fabric, and put the closed form beside each.

    Args:
      points: What to call it, and a point of level "fabric".
      progress: Called with what is run next.

    Returns:
      Columns what, mesh, fabric_cycles, cost_cycles, difference_cycles, difference_percent.

    Raises:
      WaferError: A point that failed.
    """
    points, rows = list(points), []
    for number, (what, point) in enumerate(points, start=1):
        progress(f"{number} of {len(points)} on the fabric: {point}")
        fabric, cost = _cycles(point), _cycles(replace(point, level="cost"))
        rows.append({
            "what": what,
            "mesh": "{}x{}".format(*point.mesh),
            "fabric_cycles": fabric,
            "cost_cycles": cost,
            "difference_cycles": fabric - cost,
            "difference_percent": 100 * (fabric / cost - 1),
        })  # fmt: skip
    return pd.DataFrame(rows)


def _cycles(point: Point) -> int:
    row = evaluate(point)
    if row["error"]:
        raise WaferError(f"{point}: {row['error']}")
    return row["cycles"]


def markdown_body(
    sections: Iterable[Section], statements: Iterable[Statement], hashes: str
) -> list[str]:
    """Paragraphs of tables and statements, their titles with so many ``hashes``."""
    parts: list[str] = []
    for section in sections:
        parts += [f"{hashes} {section.title}", markdown_table(section.frame)]
        parts += [section.note] if section.note else []
    if lines := [_markdown_statement(s) for s in statements]:
        parts += [f"{hashes} Statements of the paper, and whether ours say the same", *lines]
    return parts


def markdown_table(frame: pd.DataFrame) -> str:
    """A frame as a table of Markdown."""
    heads = [heading(str(name)).replace("\n", ", ") for name in frame.columns]
    numbers = [is_number(frame[name]) for name in frame.columns]
    lines = [heads, ["---:" if number else "---" for number in numbers], *texts(frame)]
    escaped = [[text.replace("|", "\\|") for text in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _markdown_statement(statement: Statement) -> str:
    lines = [f"- {statement.claim}"]
    lines += [f"  - {r.model}: **{r.verdict}**. {r.ours}" for r in statement.readings]
    return "\n".join([*lines, f"  - {statement.reason}"])
