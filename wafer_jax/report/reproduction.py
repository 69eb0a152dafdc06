"""Every experiment, the validation and the audit, done in one go and written as one page."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import RenderableType
from rich.markup import escape

from wafer_jax.errors import WaferError
from wafer_jax.report import experiments, reproduction_page
from wafer_jax.report.audit_result import rendered
from wafer_jax.report.experiment import Experiment, Progress, Section
from wafer_jax.report.experiment_rows import paper_column, tally
from wafer_jax.report.files import atomic_folder, check_output_folder
from wafer_jax.report.frames import plain, table
from wafer_jax.report.plots import new_figure
from wafer_jax.report.provenance import provenance
from wafer_jax.report.reproduction_chapter import Chapter
from wafer_jax.report.reproduction_tables import audited, validated

PAGES = ("report.html", "report.md", "report.json")


@dataclass(frozen=True, kw_only=True, eq=False)
class Reproduction:
    """What was done. Print it for the summary, or ``write`` it to a folder.

    Attributes:
      chapters: In the order in which they were done.
      quick: Whether little was run on the fabric.
    """

    chapters: tuple[Chapter, ...]
    quick: bool

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the chapters that failed."""
        return tuple(c.name for c in self.chapters if c.error)

    def summary(self) -> pd.DataFrame:
        """One row per chapter: rows, errors, bars that are missed, verdicts, levels."""
        rows = []
        for c in self.chapters:
            rows.append({
                "part": c.name,
                "rows": c.tally.rows,
                "median_percent": c.tally.median_percent,
                "worst_percent": c.tally.worst_percent,
                "with bar": c.tally.with_bar,
                "missed": c.tally.missed,
                **c.verdicts,
                "level": "failed" if c.error else _level(c),
            })  # fmt: skip
        return pd.DataFrame(rows)

    def missed(self) -> pd.DataFrame:
        """The rows of all chapters that miss their bar."""
        columns = ["row", "paper", "ours", "error_percent", "bar_percent", "level"]
        rows = [
            {"part": c.name} | {name: row[name] for name in columns}
            for c in self.chapters
            for row in _missed_rows(c.sections)
        ]
        return pd.DataFrame(rows)

    def tables(self) -> list[RenderableType]:
        """For a rich console: the summary, the rows that miss, what failed."""
        parts: list[RenderableType] = [table(self.summary(), "Published figures done again"), ""]
        if len(missed := self.missed()):
            parts += [table(missed, "Rows that miss their bar"), ""]
        failures = (f"failed: {c.name}: {c.error}" for c in self.chapters if c.error)
        return [*parts, *map(escape, failures)]

    def __str__(self) -> str:
        return rendered(self.tables())

    def record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        chapters = [
            {
                "name": c.name,
                "title": c.title,
                "command": c.command,
                "error": c.error or None,
                "origin": c.origin,
                "tally": asdict(c.tally),
                "sections": [asdict(s) | {"frame": s.frame} for s in c.sections],
                "statements": [asdict(s) for s in c.statements],
            }
            for c in self.chapters
        ]
        return plain({"quick": self.quick, "summary": self.summary(), "chapters": chapters})

    def write(self, folder: str | Path) -> Path:
        """Write report.html, report.md with its pictures, and report.json, all of them or none.

        An earlier report in the folder is replaced.

        Args:
          folder: A new or empty folder, or one with an earlier report and nothing else.

        Raises:
          WaferError: As for ``check_report_folder``, or the disk refuses.

        Returns:
          The HTML page.
        """
        with atomic_folder(folder, _is_ours) as temporary:
            for c in self.chapters:
                if c.picture is not None:
                    (temporary / f"{c.name}.png").write_bytes(c.picture)
            for name, text in zip(PAGES, self._pages(), strict=True):
                (temporary / name).write_text(text, encoding="utf-8")
        return Path(folder) / PAGES[0]

    def _pages(self) -> tuple[str, str, str]:
        """Texts of PAGES."""
        summary = self.summary()
        record = json.dumps({**provenance(), **self.record()}, indent=2, allow_nan=False)
        return (
            reproduction_page.html(self.chapters, summary, self.quick),
            reproduction_page.markdown(self.chapters, summary),
            record + "\n",
        )


def check_report_folder(folder: str | Path) -> None:
    """Refuse a folder that a report could not be written to, before it is done.

    Raises:
      WaferError: A file in its place, a folder with other files, no permission.
    """
    check_output_folder(folder, _is_ours)


def reproduce(*, quick: bool = False, progress: Progress | None = None) -> Reproduction:
    """Do every experiment again, compare the published measurements, measure the audit's tables.

    An experiment that fails is reported, and the others are done all the same.

    Args:
      quick: Run little on the fabric, and leave the audit out.
      progress: Called with what is done next.

    Raises:
      WaferError: matplotlib is missing.
    """
    new_figure((1, 1))
    say = progress or (lambda _: None)
    tasks = list(_tasks(quick))
    chapters = []
    for number, (name, title, command, do) in enumerate(tasks, start=1):
        where = f"{number} of {len(tasks)}, {name}"
        say(where)
        try:
            chapters.append(do(lambda words, where=where: say(f"{where}: {words}")))
        except Exception as error:  # reported on the page, whatever it is
            what = (
                str(error) if isinstance(error, WaferError) else f"{type(error).__name__}: {error}"
            )
            line = " ".join(what.split())
            chapters.append(Chapter(name=name, title=title, command=command, error=line))
    return Reproduction(chapters=tuple(chapters), quick=quick)


_Task = tuple[str, str, str, Callable[[Progress], Chapter]]


def _tasks(quick: bool) -> Iterator[_Task]:
    option = " --quick" if quick else ""
    for name, summary in experiments.experiment_names().items():
        command = f"wafer-jax experiment {name}{option}"

        def do(say: Progress, name: str = name, command: str = command) -> Chapter:
            return _chapter(experiments.experiment(name, quick=quick, progress=say), command)

        yield name, summary, command, do
    for name, title, command, sections in (validated(), *(() if quick else audited())):

        def show(say: Progress, name=name, title=title, command=command, sections=sections):
            return Chapter(name=name, title=title, command=command, **sections(say))

        yield name, title, command, show


def _chapter(done: Experiment, command: str) -> Chapter:
    return Chapter(
        name=done.name,
        title=done.title,
        command=command,
        origin=done.origin,
        sections=done.sections,
        statements=done.statements,
        tally=tally(s.frame for s in done.sections),
        picture=done.png(),
    )


def _level(chapter: Chapter) -> str:
    whole = chapter.origin["level"] if chapter.origin else None
    return whole or ", ".join(chapter.tally.levels)


def _missed_rows(sections: Iterable[Section]) -> Iterator[dict]:
    for section in sections:
        paper = paper_column(section.frame)
        if paper is None or "met" not in section.frame:
            continue
        names = list(section.frame.columns)
        for row in section.frame.to_dict("records"):
            if row["met"] is False:
                words = [str(row[name]) for name in names[: names.index(paper)] if row[name] != ""]
                yield row | {"row": ", ".join(words), "paper": row[paper],
                             "ours": row[paper.replace("paper", "ours")]}  # fmt: skip


def _is_ours(name: str) -> bool:
    pictures = {f"{known}.png" for known in (*experiments.experiment_names(), "validation")}
    return name in PAGES or name in pictures
