"""Streams that go from core to core along a line, in both directions at once.

A PE cannot receive and send on one colour, so hops alternate two: four colours serve a line of any
length. Each direction has a thread of its own, and both share the PE's issue slot.
"""

from collections.abc import Iterator
from typing import NamedTuple

from wafer_jax.collectives.lines import Lines
from wafer_jax.hardware import RAMP

COLORS = 4
"""Two each way."""


class Relay(NamedTuple):
    """What one direction is to one position of a line.

    Attributes:
      thread: Its thread.
      receive: Colour of the words that come, or None at the start of the line.
      send: Colour of the words that leave, or None at its end.
      sources: Positions behind, whose words come, nearest first.
      targets: Positions ahead, nearest first.
    """

    thread: int
    receive: int | None
    send: int | None
    sources: range
    targets: range


def paint(lines: Lines) -> None:
    """Route both directions, hop by hop."""
    for i in range(lines.length - 1):
        for color, start, ahead, behind in (
            (i % 2, i, lines.forward, lines.back),
            (2 + (i + 1) % 2, i + 1, lines.back, lines.forward),
        ):
            end = 2 * i + 1 - start
            lines.route(color, [start], RAMP, ahead)
            lines.route(color, [end], behind, RAMP)


def relays(position: int, length: int) -> Iterator[Relay]:
    """Both directions of a position, forward first."""
    lower, upper = range(position - 1, -1, -1), range(position + 1, length)
    for thread, behind, ahead, step in ((1, lower, upper, 1), (2, upper, lower, -1)):
        first = 0 if step == 1 else 2
        yield Relay(
            thread=thread,
            receive=first + (position - step) % 2 if behind else None,
            send=first + position % 2 if ahead else None,
            sources=behind,
            targets=ahead,
        )
