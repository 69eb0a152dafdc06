"""What WaferLLM's PLMR model asks of a program, measured from the program itself.

Axes: C colours, Y rows, X columns, G segments.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wafer_jax.events import Compute, Event, Forward, Halt, Receive, send_color
from wafer_jax.hardware import WORD_BYTES
from wafer_jax.program import NO_ROUTE, Program
from wafer_jax.report.audit_chain import (
    Execution,
    distances,
    execute,
    followable,
    switched_colors,
)
from wafer_jax.routes import all_routes, sources


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One program's figures; counts are the largest over the PEs unless they say otherwise.

    Attributes:
      pes: PEs of the mesh.
      working_share: P, part of the PEs that compute: with a kernel, or a stream op that combines.
      busy_share: P, part of the PEs that do anything at all.
      trip_hops: L, links between a sender and the farthest PE that its words are delivered to.
      chain_hops: L, links of the longest chain of dependences through the program; None where
        kernels decide what follows what.
      chain_stages: L, software stages (messages) of that chain.
      sram_bytes: M, SRAM of the tiles.
      routes: R, colours that have a route.
      routes_mean: R, the same as the mean over the PEs.
      paths: R, pairs of a colour and a sender whose words pass or reach the PE, over all segments:
        routes that are installed one after the other count each.
      receive_paths: R, those of them that are delivered to the PE.
      colors: Colours of the program, up to the highest number in use.
      input_queues: Queues in.
      output_queues: Queues out.
    """

    pes: int
    working_share: float
    busy_share: float
    trip_hops: int
    chain_hops: int | None
    chain_stages: int | None
    sram_bytes: int
    routes: int
    routes_mean: float
    paths: int
    receive_paths: int
    colors: int
    input_queues: int
    output_queues: int


def measure(program: Program, progress: Callable[[int], None] | None = None) -> Measure:
    """Measure a program.

    Args:
      program: Validated.
      progress: See `execute`.

    Raises:
      WaferError: The program cannot end, or has too many events.
    """
    rx, _ = all_routes(program)
    routes = (rx != NO_ROUTE).any(axis=(0, 1)).sum(axis=0)
    run = execute(program, progress) if followable(program) else None
    queues = [role.bound(g) for role in program.roles for g in range(len(program.segments))]
    return Measure(
        pes=program.hw.num_pes,
        working_share=_share(program, _computes),
        busy_share=_share(program, lambda event: not isinstance(event, Halt)),
        trip_hops=longest_trip(program, run),
        chain_hops=None if run is None else run.chain.hops,
        chain_stages=None if run is None else run.chain.stages,
        sram_bytes=program.sram_words * WORD_BYTES,
        routes=int(routes.max()),
        routes_mean=float(routes.mean()),
        paths=int(paths(program, run).max()),
        receive_paths=int(paths(program, run, delivered=True).max()),
        colors=max(program.colors, default=-1) + 1,
        input_queues=max((len(q.input) for q in queues), default=0),
        output_queues=max((len(q.output) for q in queues), default=0),
    )


def longest_trip(program: Program, run: Execution | None = None) -> int:
    """Links between a PE that sends on a colour and the farthest PE that gets its words.

    Args:
      program: Whose routes.
      run: Its execution, for colours that switches route; without it, by their first positions.
    """
    sends = np.zeros((len(program.colors), program.hw.num_pes), bool)
    for role, mask in zip(program.roles, program.role_masks, strict=True):
        for color in {send_color(e) for thread in role.threads for e in thread} - {None}:
            sends[program.colors.index(color), mask.reshape(-1)] = True
    longest = 0 if run is None else run.switches.longest_trip
    sends[_executed(program, run)] = False
    for segment in range(len(program.segments)):
        source, hops = distances(program, segment)
        flat = source.reshape(sends.shape)
        used = (flat >= 0) & np.take_along_axis(sends, np.maximum(flat, 0), axis=1)
        longest = max(longest, int(hops.reshape(sends.shape)[used].max(initial=0)))
    return longest


def paths(program: Program, run: Execution | None = None, *, delivered: bool = False) -> np.ndarray:
    """[Y, X] int64: different (colour, sender) pairs whose words pass, or reach, each PE.

    Args:
      program: Whose routes.
      run: Its execution, for colours that switches route; without it, by their first positions.
      delivered: Count only those that the router delivers to its PE.
    """
    found = []
    for number, segment in enumerate(program.segments):
        if delivered:
            found.append(distances(program, number)[0])
        else:
            rx, tx = segment.rx[0], segment.tx[0]
            found.append(sources(rx, tx, np.ones(rx.shape, np.int64))[0])
    if not program.colors:
        return np.zeros(program.hw.mesh, np.int64)
    senders = np.sort(np.stack(found), axis=0)
    new = np.concatenate([np.ones((1, *senders.shape[1:]), bool), np.diff(senders, axis=0) > 0])
    counts = ((senders >= 0) & new).sum(axis=0)
    counts[_executed(program, run)] = 0
    total = counts.sum(axis=0)
    if run is not None:
        seen = run.switches.delivered if delivered else run.switches.passed
        for (pe, _), senders_here in seen.items():
            total.reshape(-1)[pe] += len(senders_here)
    return total


def _executed(program: Program, run: Execution | None) -> list[int]:
    """Indices of the colours whose words an execution moved from router to router."""
    return [] if run is None else sorted(switched_colors(program))


def _share(program: Program, of: Callable[[Event], bool]) -> float:
    """Part of the PEs whose role has such an event."""
    has = [any(of(e) for thread in role.threads for e in thread) for role in program.roles]
    return float(np.asarray(has)[program.role_of].mean())


def _computes(event: Event) -> bool:
    combines = isinstance(event, Receive | Forward) and event.combine != "copy"
    return combines or isinstance(event, Compute)
