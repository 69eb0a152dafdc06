"""Command lines run in this process."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from wafer_jax.cli import main


@dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of a refused command line."""
        assert self.code == 2, (self.code, self.err)
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        return lines[0].removeprefix("error: ")


@pytest.fixture
def wafer(capsys):
    """Run ``wafer-jax`` with the given arguments."""

    def run(*arguments: str) -> Outcome:
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
