"""Static facts of a program's routes: capacities, shared links, dead ends, sources.

Axes: G segments, P switch positions, C colours, Y rows, X columns.
"""

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.events import Reconfigure, SendControl, send_color
from wafer_jax.hardware import OPPOSITE, RAMP, STEP_YX
from wafer_jax.program import NO_ROUTE, Program


def all_routes(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """Receive directions and transmit sets in every segment and position.

    Returns:
      [G, P, C, Y, X] int8 and uint8; positions that a pair lacks repeat its position 0.
    """
    positions = max(len(segment.rx) for segment in program.segments)

    def stack(name: str) -> np.ndarray:
        out = []
        for segment in program.segments:
            routes = getattr(segment, name)
            lacking = np.arange(1, positions)[:, None, None, None] >= segment.positions
            more = np.zeros((positions - len(routes), *routes.shape[1:]), routes.dtype)
            later = np.where(lacking, routes[0], np.concatenate([routes[1:], more]))
            out.append(np.concatenate([routes[:1], later]))
        return np.stack(out)

    return stack("rx"), stack("tx")


def dynamic_colors(program: Program) -> tuple[int, ...]:
    """Indices of colours whose routes may change in a run, or that carry control wavelets."""
    dynamic = {program.colors.index(e.color) for e in program.events if isinstance(e, SendControl)}
    if any(isinstance(e, Reconfigure) for e in program.events):
        first, *others = range(len(program.segments))
        for c in range(len(program.colors)):
            queues = [program.queue_depths(g) for g in (first, *others)]
            if any(
                not same_routes(program, first, g)[c].all()
                or any((queues[g][end][c] != queues[first][end][c]).any() for end in (0, 1))
                for g in others
            ):
                dynamic.add(c)
    return tuple(sorted(dynamic))


def same_routes(program: Program, one: int, other: int) -> np.ndarray:
    """[C, Y, X] bool: a pair has the same routes in two segments, in all positions."""
    a, b = program.segments[one], program.segments[other]
    same = (a.positions == b.positions) & ((a.ring == b.ring) | (a.positions == 1))
    for p in range(max(len(a.rx), len(b.rx))):
        both = (a.positions > p) & (b.positions > p)
        if p < min(len(a.rx), len(b.rx)):
            same &= ~both | ((a.rx[p] == b.rx[p]) & (a.tx[p] == b.tx[p]))
    return same


def capacities(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """Capacities of router FIFOs and input queues (docs/semantics.md, section 1).

    Returns:
      [G, P, C, Y, X] int32 each.
    """
    hw = program.hw
    rx, tx = all_routes(program)
    depths = [program.queue_depths(g) for g in range(len(program.segments))]
    output = np.stack([output for output, _ in depths])[:, None]
    input_ = np.stack([input_ for _, input_ in depths])[:, None]
    capacity = np.where(
        rx == RAMP, hw.router_depth + output + 1 + hw.ramp_cycles, hw.router_depth + hw.hop_cycles
    )
    capacity = np.where(rx == NO_ROUTE, 0, capacity)
    return capacity, np.where(tx >> RAMP & 1 == 1, input_ + hw.ramp_cycles, 0)


def neighbour(grid: np.ndarray, direction: int, fill) -> np.ndarray:
    """[..., Y, X]: the value at each PE's neighbour in a direction, ``fill`` off the mesh."""
    dy, dx = STEP_YX[direction]
    height, width = grid.shape[-2:]
    padded = np.pad(grid, [(0, 0)] * (grid.ndim - 2) + [(1, 1), (1, 1)], constant_values=fill)
    return padded[..., 1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]


def links(program: Program) -> tuple[tuple[int, ...], ...]:
    """Per colour, the directions in which some PE may transmit it."""
    _, tx = all_routes(program)
    ever = np.bitwise_or.reduce(tx, axis=(0, 1))
    return tuple(tuple(d for d in range(5) if (sets >> d & 1).any()) for sets in ever)


def unrouted_heads(rx: np.ndarray, tx: np.ndarray) -> np.ndarray:
    """[C, Y, X] bool: with these routes a head here has no way on."""
    out = (rx != NO_ROUTE) & (tx == 0)
    for d in range(4):
        deaf = neighbour(rx, d, NO_ROUTE) == NO_ROUTE
        out |= (rx != NO_ROUTE) & (tx >> d & 1 == 1) & deaf
    return out


def share_links(program: Program) -> bool:
    """Whether some PE has two colours that may want the same link."""
    taken = np.zeros(program.hw.mesh, np.uint8)
    rx, tx = all_routes(program)
    wants = np.bitwise_or.reduce(np.where(rx != NO_ROUTE, tx, 0).astype(np.uint8), axis=(0, 1))
    for want in wants:
        if (taken & want).any():
            return True
        taken |= want
    return False


def sources(rx: np.ndarray, tx: np.ndarray, capacity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the words at each (colour, PE) come from, and how many fit in between.

    Args:
      rx: [C, Y, X] receive directions, followed upstream by doubling the distance in every round.
      tx: [C, Y, X] transmit sets.
      capacity: [C, Y, X] words per router FIFO (or any count to be summed along the way).

    Returns:
      source: [C, Y, X] int64, flat PE index of the source, or -1 where nothing arrives.
      path: [C, Y, X] int64, the sum of ``capacity`` from the source to here, both included.
    """
    shape = rx.shape
    colors, height, width = shape
    flat = (colors, height * width)
    here = np.arange(height * width).reshape(height, width)
    parent = np.where(rx == RAMP, here, -1)
    for d in range(4):
        feeds = neighbour(tx, d, 0) >> OPPOSITE[d] & 1 == 1
        parent = np.where((rx == d) & feeds, neighbour(here, d, -1), parent)
    at_ramp = (rx == RAMP).reshape(flat)
    capacity = capacity.reshape(flat).astype(np.int64)
    parent, path = parent.reshape(flat), np.where(at_ramp, 0, capacity)
    for _ in range(int(height * width).bit_length()):
        path = path + np.where(parent >= 0, _at(path, parent), 0)
        parent = np.where(parent >= 0, _at(parent, parent), -1)
    source = np.where((parent >= 0) & _at(at_ramp, parent), parent, -1)
    return source.reshape(shape), (path + _at(capacity, source)).reshape(shape)


def _at(values: np.ndarray, pe: np.ndarray) -> np.ndarray:
    """[C, PEs]: per colour the values at flat PE indices; any value where the index is -1."""
    return np.take_along_axis(values, np.maximum(pe, 0), 1)


def payload_rings(
    program: Program,
    capacity: np.ndarray,
    input_capacity: np.ndarray,
    carried: tuple[int, ...] = (),
) -> tuple[np.ndarray, np.ndarray, int]:
    """Rings of the payload log: a sender writes its k-th word at ``first + (k & (size - 1))``.

    With one receive direction per (PE, colour) the source of a word is a fact of the routes, so
    a payload need not travel: the receiver reads it where the source wrote it. A ring that holds
    as many words as the FIFOs on the longest way to a receiver can never be overrun.

    Args:
      program: What is run.
      capacity: [C, Y, X] of router FIFOs.
      input_capacity: [C, Y, X] of input queues.
      carried: Indices of colours whose payloads travel, and that need no ring.

    Returns:
      ring_in: [2, C, Y, X] int32, (first, size - 1) of the ring that feeds (colour, PE).
      ring_out: [2, C, Y, X] int32, of the ring that (colour, PE) writes.
      words: Size of the log.

    Raises:
      WaferError: The log would not be addressable with 31 bits.
    """
    source, path = sources(program.rx, program.tx, capacity)
    size = _ring_sizes(program, source, path + input_capacity)
    size[list(carried)] = 0
    # Largest first: then every ring is aligned to its size, and stepping in it is two masks.
    order = np.argsort(-size, axis=None, kind="stable")
    first = np.zeros(size.size, np.int64)
    first[order] = np.cumsum(size.reshape(-1)[order]) - size.reshape(-1)[order]
    words = round_up(int(size.sum()))
    if words >= 1 << 31:
        raise WaferError(
            f"{program.name}: the payload log needs {words} words: run with values='none'"
        )
    first, last = first.reshape(size.shape), np.maximum(size - 1, 0)
    feeder = source.reshape(size.shape)
    shape = (2, *source.shape)
    ring_in = np.stack([np.where(feeder >= 0, _at(a, feeder), 0) for a in (first, last)])
    ring_out = np.stack([first, last])
    return ring_in.reshape(shape).astype(np.int32), ring_out.reshape(shape).astype(np.int32), words


def round_up(words: int) -> int:
    """To three significant bits, so that programs of nearly one size share a compiled step."""
    unit = 1 << max(words.bit_length() - 3, 0)
    return -(-words // unit) * unit


def _ring_sizes(program: Program, source: np.ndarray, fit: np.ndarray) -> np.ndarray:
    """[C, PEs] int64: a power of two for every (colour, PE) that sends, else 0."""
    flat = (len(program.colors), program.hw.num_pes)
    delivers = (program.tx >> RAMP & 1 == 1) & (source >= 0)
    size = np.ones(flat, np.int64)
    for sizes, where, feeder, words in zip(
        size, delivers.reshape(flat), source.reshape(flat), fit.reshape(flat), strict=True
    ):
        np.maximum.at(sizes, feeder[where], words[where])
    sends = np.zeros(program.rx.shape, bool)
    for role, mask in zip(program.roles, program.role_masks, strict=True):
        for color in {send_color(e) for t in role.threads for e in t} - {None}:
            sends[program.colors.index(color)][mask] = True
    return np.where(sends.reshape(flat), 1 << np.ceil(np.log2(size)).astype(np.int64), 0)
