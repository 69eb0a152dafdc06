"""Where a command writes: results on stdout, progress on stderr, with --json one JSON object."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType

PIPE_WIDTH = 120
"""Columns of tables that do not go to a terminal."""


class Output:
    """The two streams of one command.

    Attributes:
      as_json: Whether stdout carries one JSON object and nothing else.
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        width = None if sys.stdout.isatty() else PIPE_WIDTH
        self._out = Console(width=width, highlight=False)
        self._err = Console(stderr=True, highlight=False)

    def show(self, *parts: RenderableType) -> None:
        """Print for people, texts unwrapped and with rich's markup; nothing with --json."""
        if not self.as_json:
            for part in parts:
                self._out.print(part, soft_wrap=isinstance(part, str))

    def text(self, text: str) -> None:
        """Print text as it is, without markup; nothing with --json."""
        if not self.as_json:
            self._out.print(text, markup=False, soft_wrap=True)

    def section(self, title: str) -> None:
        """Start a part of the report."""
        self.show("", f"[bold cyan]{title}[/]")

    def finish(self, command: str, origin: dict[str, Any], record: dict[str, Any]) -> None:
        """End the report: a line that says where it comes from, or the JSON object.

        Args:
          command: Which one ran.
          origin: From ``report.provenance``.
          record: Everything else of the JSON object.
        """
        from wafer_jax.report.frames import plain
        from wafer_jax.report.provenance import provenance_line

        if self.as_json:
            whole = {"command": command, **origin, **record}
            print(json.dumps(plain(whole), indent=2, allow_nan=False))
        else:
            self.show("", f"[dim]{provenance_line(origin)}[/]")

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[str], None]]:
        """Say on stderr what is being done if it takes over a second.

        Args:
          what: Such as "loading the weights".

        Yields:
          A function that replaces the words; only a terminal shows its changes.
        """
        if self._err.is_terminal:
            with self._err.status(what) as status:
                yield status.update
            return
        notice = threading.Timer(1.0, lambda: print(f"{what} ...", file=sys.stderr, flush=True))
        notice.daemon = True
        notice.start()
        try:
            yield lambda _: None
        finally:
            notice.cancel()
