"""A part of the report: an experiment, the validation, or a table of the audit."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, get_args

from wafer_jax.report.experiment import Section, Statement, Verdict
from wafer_jax.report.experiment_rows import Tally, tally

NOTHING = tally(())


@dataclass(frozen=True, kw_only=True, eq=False)
class Chapter:
    """One part of the report, done or failed.

    Attributes:
      name: Of the experiment, or "validation", or of the audit's table.
      title: What it compares.
      command: That does it alone.
      origin: From ``report.provenance``; None if it failed.
      sections: Its tables.
      statements: What a paper states, with ours.
      tally: How close its rows are.
      picture: The plot as a PNG file's content, or None.
      error: Why it failed, in one line, or empty.
    """

    name: str
    title: str
    command: str
    origin: dict[str, Any] | None = None
    sections: tuple[Section, ...] = ()
    statements: tuple[Statement, ...] = ()
    tally: Tally = NOTHING
    picture: bytes | None = None
    error: str = ""

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """How many readings of the statements have which verdict."""
        found = Counter(r.verdict for s in self.statements for r in s.readings)
        return {verdict: found[verdict] for verdict in get_args(Verdict)}
