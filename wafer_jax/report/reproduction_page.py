"""A reproduction as one page: HTML that needs no other file, and Markdown with pictures beside."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import jinja2
import pandas as pd

from wafer_jax.report.experiment import Section, markdown_body, markdown_table
from wafer_jax.report.frames import heading, is_number, texts
from wafer_jax.report.provenance import provenance, provenance_line
from wafer_jax.report.reproduction_chapter import Chapter

TITLE = "Published figures done again"
INTRODUCTION = (
    "Nobody here has a wafer: every figure of ours comes from the emulator. Its level says how. "
    "Fabric: every wavelet and cycle was run. Bulk: values of the same algorithm on arrays. Cost: "
    "a closed form. Formula: the paper's own arithmetic, done again on published figures. "
    "Roofline: the most that bandwidth or arithmetic of a GPU allows.",
    "An error is ours over the published figure, less one. A row misses if the size of its error "
    "exceeds its bar; rows without a bar inform. In the summary, median and worst are over the "
    "sizes of all errors of a part, rows count a figure of the emulator beside a published one, "
    "with bar every row that has one, rooflines and the paper's own arithmetic, too; yes, partly "
    "and no count what the papers state in words.",
)
_FAILED = "This part failed, and is missing here:"
_MARKS = {"met": {True: "met", False: "misses", None: ""}}


@dataclass(frozen=True)
class _Table:
    """A frame as cells.

    Attributes:
      heads: Lines of each heading.
      numbers: Whether each column is one of numbers.
      rows: Texts, and whether the row misses its bar.
    """

    heads: list[list[str]]
    numbers: list[bool]
    rows: list[tuple[list[str], bool]]


def html(chapters: Sequence[Chapter], summary: pd.DataFrame, quick: bool) -> str:
    """One file: style, tables and pictures within."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("wafer_jax.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("reproduction.html").render(
        title=TITLE,
        introduction=INTRODUCTION,
        versions=provenance_line(provenance()),
        failed=_FAILED,
        quick=quick,
        summary=_table(summary),
        chapters=[_html_chapter(c) for c in chapters],
    )


def _html_chapter(chapter: Chapter) -> dict:
    picture = chapter.picture
    return {
        "chapter": chapter,
        "origin": "" if chapter.origin is None else provenance_line(chapter.origin),
        "picture": "" if picture is None else b64encode(picture).decode("ascii"),
        "sections": [(s.title, _table(s.frame), s.note) for s in chapter.sections],
    }


def _table(frame: pd.DataFrame) -> _Table:
    marked, missed = _marked(frame), _missed(frame)
    return _Table(
        heads=[heading(str(name)).split("\n") for name in frame.columns],
        numbers=[is_number(marked[name]) for name in frame.columns],
        rows=list(zip(texts(marked), missed, strict=True)),
    )


def _marked(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with words in place of met's yes and no, which do not say what is meant."""
    if "met" not in frame:
        return frame
    words = [_MARKS["met"][None if pd.isna(v) else bool(v)] for v in frame["met"]]
    return frame.assign(met=words)


def _missed(frame: pd.DataFrame) -> list[bool]:
    """Whether each row misses its bar, failed, or disagrees with a claim."""
    if "met" in frame:
        return [v is False or v == False for v in frame["met"]]  # noqa: E712
    if "missed" in frame:
        failed = frame["level"] == "failed" if "level" in frame else False
        return list((frame["missed"] > 0) | failed)
    if "agrees" in frame:
        return list(frame["agrees"] == "no")
    return [False] * len(frame)


def markdown(chapters: Sequence[Chapter], summary: pd.DataFrame) -> str:
    """The same as Markdown; pictures are files named after their part."""
    parts = [f"# {TITLE}", provenance_line(provenance()), *INTRODUCTION]
    parts += ["## Summary", markdown_table(summary)]
    for chapter in chapters:
        parts += [f"## {chapter.name}", chapter.title, f"Alone: `{chapter.command}`"]
        if chapter.error:
            parts += [f"**{_FAILED}**", f"```text\n{chapter.error}\n```"]
            continue
        parts += [provenance_line(chapter.origin)] if chapter.origin else []
        if chapter.picture is not None:
            parts += [f"![{chapter.title}]({chapter.name}.png)"]
        parts += markdown_body(_bold(chapter.sections), chapter.statements, "###")
    return "\n\n".join(parts) + "\n"


def _bold(sections: Iterable[Section]) -> Iterable[Section]:
    """Sections whose rows that miss say so in bold."""
    for section in sections:
        frame = _marked(section.frame)
        if "met" in frame:
            frame = frame.assign(met=frame["met"].replace("misses", "**misses**"))
        yield Section(section.title, frame, section.note)
