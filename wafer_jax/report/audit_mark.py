"""The mark of a chain of dependences."""

from typing import NamedTuple


class Mark(NamedTuple):
    """A chain, ordered by its cycles.

    Attributes:
      cycles: ``alpha hops + beta stages``.
      hops: Links.
      stages: Messages.
    """

    cycles: int
    hops: int
    stages: int


START = Mark(0, 0, 0)
