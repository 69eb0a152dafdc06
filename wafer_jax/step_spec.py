"""What a lowered program consists of: a static `StepSpec` and arrays, `Code`.

Axes: C colours, D delivered colours, T threads, R roles, E events per thread, G segments, P switch
positions, n lanes: the PEs in row-major order, each row followed by inert ghosts (`row_lanes`), so
that a neighbour is a constant offset.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.blocks import Blocks, row_lanes

COMMAND_SHIFT, SEGMENT_MASK = 5, 31
"""Of a word's mark: where its command lies, and the bits of its segment."""
TORN_DOWN = 4
"""Position of a switch that was torn down."""
RING = 8
"""Bit of a switch that is a ring; its number of positions lies below."""
INPUT_OR_OUTPUT, OUTPUT = 1, 2
"""Bits of a kernel's footprint, per word of SRAM."""


@dataclass(frozen=True)
class FifoFormat:
    """A FIFO as one unsigned word: ready count, total count, and a delay line.

    Bit k of the delay line set: one word becomes ready in k + 1 cycles. No queue slot is copied
    and no timestamp kept; the 16-bit format serves capacities to 15 and latencies to 8.
    """

    bits: int
    count_bits: int

    @property
    def dtype(self):
        """Storage type of the packed word."""
        return jnp.uint16 if self.bits == 16 else jnp.uint32

    @property
    def line_shift(self) -> int:
        """Position of the delay line."""
        return 2 * self.count_bits


NARROW, WIDE = FifoFormat(16, 4), FifoFormat(32, 8)


Form = tuple[tuple[int, ...], str]
"""Shape and dtype of an operand; of a register () and REGISTER."""
REGISTER = "register"


def halt_bit(wide_masks: bool) -> int:
    """A need that is never met: the mark of a halted thread."""
    return 1 << (30 if wide_masks else 14)


def pair_bit(wide_masks: bool) -> int:
    """A need that is always met: the mark of a wide stream."""
    return halt_bit(wide_masks) >> 1


@dataclass(frozen=True)
class KernelKind:
    """A kernel body with the shapes it works on; instances differ only in offsets."""

    fn: Callable
    inputs: tuple[Form, ...]
    outputs: tuple[Form, ...]


@dataclass(frozen=True)
class StepSpec:
    """Everything that the compiled step is specialised on; hashable.

    Attributes:
      mesh: (Y, X).
      colors: C.
      links: Per colour, the directions in which some PE transmits it (RAMP included).
      sending: Indices of colours that threads send.
      delivered: Indices of colours that some router delivers to its PE.
      threads: T.
      semaphores: S.
      levels: Nesting depth of loops.
      events: E.
      fifo: Format of a packed FIFO word.
      wide_masks: Colour and semaphore masks need 32 bits instead of 16.
      hop_cycles: Latency of a link.
      ramp_cycles: Latency of the ramp.
      arbitrates: Some PE has two colours that may want the same link.
      can_be_unrouted: Some head of a colour with fixed routes may have no way on.
      dynamic: Indices of colours whose routes may change, or that carry control wavelets.
      segments: G, 1 if no thread reconfigures its PE.
      positions: P, most positions of a switch of these colours.
      controls: Threads send control wavelets.
      router_slots: Words that a router FIFO holds at most, per colour; 0 if none is marked or
        carries its payload.
      input_slots: The same for an input queue.
      computes: The program has kernels (their duration matters without values, too).
      registers: Registers in use.
      dynamic_lengths: Some stream takes its number of words from a register.
      pairs: Two wide streams of a PE may issue in one cycle.
      jitter: Threads start late and stall.
      watchdog: Threads that are blocked for long end the run.
      packets: Words travel in packets, so links and issue slots may be busy.
      values: SRAM and payloads exist.
      sram_words: Words of SRAM per PE.
      carried: Indices of colours whose payloads travel with their words.
      log_words: Words of the payload log, for the others.
      combines: Combine codes in use.
      kernels: Kernel bodies in use.
      kernel_threads: Threads that run kernels while other threads may touch their tiles.
      blocks: How the wafer is cut, if this is the step of one block; `mesh` is the block's then.
    """

    mesh: tuple[int, int]
    colors: int
    links: tuple[tuple[int, ...], ...]
    sending: tuple[int, ...]
    delivered: tuple[int, ...]
    threads: int
    semaphores: int
    levels: int
    events: int
    fifo: FifoFormat
    wide_masks: bool
    hop_cycles: int
    ramp_cycles: int
    arbitrates: bool
    can_be_unrouted: bool
    dynamic: tuple[int, ...]
    segments: int
    positions: int
    controls: bool
    router_slots: tuple[int, ...]
    input_slots: tuple[int, ...]
    computes: bool
    registers: int
    dynamic_lengths: bool
    pairs: bool
    jitter: bool
    watchdog: bool
    packets: bool
    values: bool
    sram_words: int = 0
    carried: tuple[int, ...] = ()
    log_words: int = 0
    combines: tuple[int, ...] = ()
    kernels: tuple[KernelKind, ...] = ()
    kernel_threads: tuple[int, ...] = ()
    blocks: Blocks | None = None

    @property
    def row(self) -> int:
        """Lanes of one mesh row, ghosts included."""
        return row_lanes(self.mesh[1]) if self.blocks is None else self.blocks.row

    @property
    def lanes(self) -> int:
        """Lanes of the mesh."""
        return self.mesh[0] * self.row

    @property
    def carried_inputs(self) -> tuple[int, ...]:
        """Indices of carried colours that are delivered."""
        return tuple(c for c in self.carried if c in self.delivered)

    @property
    def mask_dtype(self):
        """Type of masks over colours and semaphores."""
        return jnp.int32 if self.wide_masks else jnp.int16

    @property
    def halt_bit(self) -> int:
        """A need that is never met: the mark of a halted thread."""
        return halt_bit(self.wide_masks)

    @property
    def pair_bit(self) -> int:
        """A need that is always met: the mark of a wide stream."""
        return pair_bit(self.wide_masks)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Code:
    """The arrays of a lowered program.

    Attributes:
      routes: [C, n] packed: tx (5 bits), rx + 1 (3), capacity of router FIFO and input queue; at
        the start of the run.
      route_table: Per dynamic colour [G * P * n], routes by segment and position.
      switches: Per dynamic colour [G * n] uint8, positions by segment, and RING.
      route_classes: Per dynamic colour [G * n] uint8, equal where segments have the same routes.
      unrouted: [C, n] bool, of colours with fixed routes, or None.
      role: [n] int32, start of the PE's role in the table.
      table: Per field, [R * T * E] int32.
      ring_in: (first word, size - 1) of the log ring that feeds (colour, PE); [2, C, n] int32.
      ring_out: The same for the ring that (colour, PE) writes.
      kernel_kind: [K] int32, kind of each kernel instance.
      kernel_offsets: [K, operands] int32, offsets (or registers) of its inputs, then outputs.
      footprint: [K, words] uint8, which words an instance uses.
    """

    routes: jax.Array
    route_table: tuple[jax.Array, ...]
    switches: tuple[jax.Array, ...]
    route_classes: tuple[jax.Array, ...]
    unrouted: jax.Array | None
    role: jax.Array
    table: dict[str, jax.Array]
    ring_in: jax.Array | None = None
    ring_out: jax.Array | None = None
    kernel_kind: jax.Array | None = None
    kernel_offsets: jax.Array | None = None
    footprint: jax.Array | None = None


def to_lanes(grid: np.ndarray, fill=0) -> np.ndarray:
    """[..., Y, X] to [..., n]: append the ghosts and flatten."""
    pad = [(0, 0)] * (grid.ndim - 1) + [(0, row_lanes(grid.shape[-1]) - grid.shape[-1])]
    padded = np.pad(grid, pad, constant_values=fill)
    return padded.reshape(*grid.shape[:-2], padded.shape[-2] * padded.shape[-1])


def from_lanes(lanes: np.ndarray, mesh: tuple[int, int]) -> np.ndarray:
    """[..., n] to [..., Y, X]."""
    height, width = mesh
    return np.asarray(lanes).reshape(*lanes.shape[:-1], height, row_lanes(width))[..., :width]
