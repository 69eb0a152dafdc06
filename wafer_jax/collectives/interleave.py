"""INTERLEAVE: a ring over a line of PEs in which no neighbour is more than two hops away.

A ring on a line has a long way home if its order is the order of the PEs. Here even PEs pass to
the next even one on one way out, odd PEs to the next odd one on the way back:

    0 -> 2 -> 4 -> ... -> 5 -> 3 -> 1 -> 0

WaferLLM (OSDI'25), Algorithm 1 and section 5.2, which also shows that two hops are the least
possible. The algorithm is stated for N >= 3; the same formulas serve N = 2, and N = 1 has nothing
to send.

On the fabric every PE sends to one PE, receives from another and lets the words of a third pass.
Number each connection by the PE in its middle (at the ends of the line, where only one hop is left,
by the end PE): then every PE has three connections with three successive numbers, so three colours,
number mod 3, serve any length.
"""

from dataclasses import dataclass

import numpy as np

from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives.tiles import Axis
from wafer_jax.errors import WaferError
from wafer_jax.hardware import OPPOSITE, RAMP, E, N, S, W

COLORS = 3
"""Colours of one ring along one axis."""


def send_to(length: int) -> np.ndarray:
    """[length] int64: the PE to which each PE of a line passes its tile."""
    pe = _line(length)
    target = np.where(pe % 2 == 0, np.minimum(pe + 2, length - 1), np.maximum(pe - 2, 0))
    if length % 2 == 1 and length > 1:
        target[-1] = length - 2
    return target


def receive_from(length: int) -> np.ndarray:
    """[length] int64: the PE from which each PE of a line gets its next tile."""
    pe = _line(length)
    source = np.where(pe % 2 == 0, np.maximum(pe - 2, 0), np.minimum(pe + 2, length - 1))
    if length > 1:
        source[0] = 1
    if length % 2 == 0:
        source[-1] = length - 2
    return source


def position(length: int) -> np.ndarray:
    """[length] int64: place of each PE on the ring; PE 0 has place 0, the PE it sends to 1."""
    pe = _line(length)
    return np.where(pe % 2 == 0, pe // 2, length - (pe + 1) // 2)


def order(length: int) -> np.ndarray:
    """[length] int64: the PE at each place of the ring, the inverse of `position`."""
    return np.argsort(position(length))


def middle(length: int) -> np.ndarray:
    """[length] int64: number of the connection on which each PE sends (see the module)."""
    pe = _line(length)
    return np.where(pe % 2 == 0, np.minimum(pe + 1, length - 1), pe - 1)


@dataclass(frozen=True)
class Ring:
    """The two ends that each PE of a line has in a ring, as indices 0..2 of the ring's colours.

    Attributes:
      send: [length] colour index on which each PE sends.
      receive: [length] colour index on which it receives.
    """

    send: np.ndarray
    receive: np.ndarray


def ring(length: int) -> Ring:
    """Colour indices of the forward ring; the reverse ring swaps ``send`` and ``receive``."""
    number = middle(length) % COLORS
    return Ring(send=number, receive=number[receive_from(length)])


def paint(
    builder: ProgramBuilder,
    axis: Axis,
    colors: range,
    *,
    reverse: bool = False,
    lines: slice = slice(None),
) -> None:
    """Route a ring along an axis of the mesh.

    Args:
      builder: The program under construction.
      axis: "x": a ring in every row; "y": a ring in every column.
      colors: The three colours.
      reverse: Let the words run the other way round.
      lines: Rows (columns) that get the ring.
    """
    length = builder.hw.mesh[1 if axis == "x" else 0]
    if length == 1:
        return
    if len(colors) != COLORS:
        raise WaferError(f"a ring needs {COLORS} colours, got {len(colors)}")
    ahead, back = (E, W) if axis == "x" else (S, N)
    target, number = send_to(length), middle(length)
    for pe in range(length):
        start, end = int(pe), int(target[pe])
        if reverse:
            start, end = end, start
        color, step = colors[int(number[pe]) % COLORS], ahead if end > start else back
        for at in range(start, end, 1 if end > start else -1):
            rx = RAMP if at == start else OPPOSITE[step]
            _route(builder, color, axis, at, lines, rx, step)
        _route(builder, color, axis, end, lines, OPPOSITE[step], RAMP)


def _route(
    builder: ProgramBuilder, color: int, axis: Axis, at: int, lines: slice, rx: int, tx: int
) -> None:
    ys, xs = (lines, at) if axis == "x" else (at, lines)
    builder.route(color, ys, xs, rx, tx)


def _line(length: int) -> np.ndarray:
    if length < 1:
        raise WaferError(f"a ring of {length} PEs: at least 1 is needed")
    return np.arange(length)
