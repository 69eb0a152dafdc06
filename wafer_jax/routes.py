"""Static facts of a program's routes: capacities, shared links, dead ends, sources.

Axes: C colours, Y rows, X columns.
"""

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.events import send_color
from wafer_jax.hardware import OPPOSITE, RAMP, STEP_YX
from wafer_jax.program import NO_ROUTE, Program


def capacities(program: Program) -> tuple[np.ndarray, np.ndarray]:
    """[C, Y, X] capacities of router FIFOs and input queues (docs/semantics.md, section 1)."""
    hw = program.hw
    from_ramp = hw.router_depth + program.output_depths + 1 + hw.ramp_cycles
    capacity = np.where(program.rx == RAMP, from_ramp, hw.router_depth + hw.hop_cycles)
    capacity = np.where(program.rx == NO_ROUTE, 0, capacity)
    delivers = program.tx >> RAMP & 1 == 1
    return capacity, np.where(delivers, program.input_depths + hw.ramp_cycles, 0)


def neighbour(grid: np.ndarray, direction: int, fill) -> np.ndarray:
    """[..., Y, X]: the value at each PE's neighbour in a direction, ``fill`` off the mesh."""
    dy, dx = STEP_YX[direction]
    height, width = grid.shape[-2:]
    padded = np.pad(grid, [(0, 0)] * (grid.ndim - 2) + [(1, 1), (1, 1)], constant_values=fill)
    return padded[..., 1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]


def links(program: Program) -> tuple[tuple[int, ...], ...]:
    """Per colour, the directions in which some PE transmits it."""
    return tuple(
        tuple(d for d in range(5) if (tx >> d & 1).any()) for tx in program.tx.astype(np.uint8)
    )


def unrouted_heads(program: Program) -> np.ndarray:
    """[C, Y, X] bool: a head here has no way on."""
    out = (program.rx != NO_ROUTE) & (program.tx == 0)
    for d in range(4):
        deaf = neighbour(program.rx, d, NO_ROUTE) == NO_ROUTE
        out |= (program.rx != NO_ROUTE) & (program.tx >> d & 1 == 1) & deaf
    return out


def share_links(program: Program) -> bool:
    """Whether some PE has two colours that may want the same link."""
    taken = np.zeros(program.hw.mesh, np.uint8)
    for rx, tx in zip(program.rx, program.tx, strict=True):
        wants = np.where(rx != NO_ROUTE, tx, 0).astype(np.uint8)
        if (taken & wants).any():
            return True
        taken |= wants
    return False


def sources(program: Program, capacity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the words at each (colour, PE) come from, and how many fit in between.

    Args:
      program: Its routes are followed upstream, by doubling the distance in every round.
      capacity: [C, Y, X] words per router FIFO (or any count to be summed along the way).

    Returns:
      source: [C, Y, X] int64, flat PE index of the source, or -1 where nothing arrives.
      path: [C, Y, X] int64, the sum of ``capacity`` from the source to here, both included.
    """
    height, width = program.hw.mesh
    shape, flat = program.rx.shape, (len(program.colors), height * width)
    here = np.arange(height * width).reshape(height, width)
    parent = np.where(program.rx == RAMP, here, -1)
    for d in range(4):
        feeds = neighbour(program.tx, d, 0) >> OPPOSITE[d] & 1 == 1
        parent = np.where((program.rx == d) & feeds, neighbour(here, d, -1), parent)
    at_ramp = (program.rx == RAMP).reshape(flat)
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
    program: Program, capacity: np.ndarray, input_capacity: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """Rings of the payload log: a sender writes its k-th word at ``first + (k & (size - 1))``.

    With one receive direction per (PE, colour) the source of a word is a fact of the routes, so
    a payload need not travel: the receiver reads it where the source wrote it. A ring that holds
    as many words as the FIFOs on the longest way to a receiver can never be overrun.

    Returns:
      ring_in: [2, C, Y, X] int32, (first, size - 1) of the ring that feeds (colour, PE).
      ring_out: [2, C, Y, X] int32, of the ring that (colour, PE) writes.
      words: Size of the log.

    Raises:
      WaferError: The log would not be addressable with 31 bits.
    """
    source, path = sources(program, capacity)
    size = _ring_sizes(program, source, path + input_capacity)
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
