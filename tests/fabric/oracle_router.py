"""The oracle's routers: which heads leave in a cycle (docs/semantics.md, section 2.1)."""

from typing import TYPE_CHECKING

from oracle_state import Fifo, Pe

from wafer_jax.faults import Fault
from wafer_jax.hardware import OPPOSITE, RAMP, STEP_YX
from wafer_jax.program import NO_ROUTE

if TYPE_CHECKING:
    from oracle import Oracle


def arbitrate(oracle: "Oracle", pe: Pe) -> list[int]:
    """Colours whose head leaves this router in this cycle; moves the colour pointer."""
    num_colors = len(oracle.program.colors)
    order = [(pe.color_pointer + i) % num_colors for i in range(num_colors)]
    taken: set[int] = set()
    winners, losers = [], []
    for c in order:
        if not pe.router[c].has_head(oracle.now) or not _accepted(oracle, pe, c):
            continue
        links = set(pe.routes[c][1])
        if any(pe.link_free.get(d, 0) > oracle.now for d in links):
            oracle.seen["busy_link"] += 1
            continue
        if links & taken:
            losers.append(c)
        else:
            taken |= links
            winners.append(c)
    if losers:
        oracle.seen["lost_link"] += 1
        pe.color_pointer = losers[0]
    return winners


def targets(oracle: "Oracle", pe: Pe, c: int) -> list[Fifo]:
    """FIFOs into which the head of colour ``c`` goes; the RAMP swallows control wavelets."""
    (y, x), word = pe.at, pe.router[c].head
    return [
        pe.queue[c] if d == RAMP else oracle.pes[y + STEP_YX[d][0], x + STEP_YX[d][1]].router[c]
        for d in pe.routes[c][1]
        if d != RAMP or word.command is None
    ]


def _accepted(oracle: "Oracle", pe: Pe, c: int) -> bool:
    """Whether every target takes the ready head of colour ``c``."""
    links = pe.routes[c][1]
    listens = [_listens(oracle, pe, c, d) for d in links]
    if not links or NO_ROUTE in listens:
        oracle.fault(pe, Fault.UNROUTED)
        oracle.seen["unrouted_after_change"] += pe.segment > 0 or pe.positions[c] > 0
        return False
    if any(rx != OPPOSITE[d] for d, rx in zip(links, listens, strict=True)):
        oracle.seen["listens_elsewhere"] += 1
        return False
    return all(fifo.has_room() for fifo in targets(oracle, pe, c))


def _listens(oracle: "Oracle", pe: Pe, c: int, direction: int) -> int:
    """Where the target in a direction receives the colour from; off the mesh: nowhere."""
    if direction == RAMP:
        return RAMP
    dy, dx = STEP_YX[direction]
    neighbour = oracle.pes.get((pe.at[0] + dy, pe.at[1] + dx))
    return neighbour.routes[c][0] if neighbour else NO_ROUTE
