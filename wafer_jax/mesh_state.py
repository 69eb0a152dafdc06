"""The state of a wafer as one pytree, and its views.

Axes: C colours, D delivered colours, T threads, S semaphores, L loop levels, n lanes (see
lowering.py), Y rows, X columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.blocks import row_lanes
from wafer_jax.errors import WaferError
from wafer_jax.events import Tile
from wafer_jax.hardware import DTYPE_BYTES
from wafer_jax.jitter import START_THREAD, Jitter, pe_of_lane, stall
from wafer_jax.lowering import lower
from wafer_jax.program import Program
from wafer_jax.step_spec import Code, StepSpec

FIRST_FAULT_SHIFT = 20
POISON = 0x7FBD7FBD
"""Unwritten SRAM: a NaN as one float32 and as two float16 or bfloat16."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class WaferState:
    """Everything that changes in a run. Fields that a program does not need are None or empty.

    Attributes:
      now: [] int32, the cycle about to happen.
      stuck: [] bool, nothing can happen any more.
      router: C arrays [n], packed router FIFOs.
      input: D arrays [n], packed input queues.
      routes: Per dynamic colour [n], the current routes, packed as `Code.routes`.
      position: Per dynamic colour [n] uint8, position of the switch, or TORN_DOWN.
      marks: Per dynamic colour [slots, n] uint8, what each word in the router FIFO is: the
        segment that it was sent under, and a command's code << COMMAND_SHIFT; the head first.
      passed: 5 arrays [n] int32, words of dynamic colours that left in each direction.
      segment: [n] uint8, the PE's segment, if any PE may change it.
      color_pointer: [n] int16, arbitration pointer.
      thread_pointer: [n] int16, issue slot pointer.
      pc: T arrays [n] int32, event index.
      left: T arrays [n] int32, issues still to do of the event.
      length: T arrays [n] int32, issues of the event in all, if registers may hold them.
      ready_at: T arrays [n] int32, first cycle in which the event may issue.
      need_in: T arrays [n], colours and semaphores that the event pops.
      need_out: T arrays [n], colours and semaphores that the event pushes.
      control: T arrays [n] uint8, command's code of the event, if any has one.
      since: T arrays [n] int32, cycle after the thread's last issue, with a watchdog.
      watchdog: [] int32, cycles that a thread may be blocked, or None.
      packet_words: [] int32, words of a packet, or None without packets.
      link_free: Per direction [n] int32, cycle from which the link is free, with packets.
      slot_free: [n] int32, the same of the issue slot, or None.
      starved: [] bool, some thread was blocked for longer, or None.
      semaphores: S arrays [n] int32.
      loop_counters: L tuples of T arrays [n] int32.
      registers: [G, n] int32, or None.
      jitter: [3] uint32, key and limits of the stalls, or None.
      loads: T arrays [n] int32, events loaded so far, if stalls depend on them.
      sent: arrays [n] int32 per sending colour, words of finished events.
      received: D arrays [n] int32, words of finished events.
      compute_cycles: [n] int32, cycles of kernels started.
      fault: [n] int32, bits of `Fault`.
      fault_cycle: [n] int32, cycle of the first fault, or -1.
      fault_where: [n] int32, its colour, or thread << 16 | event; its bits << FIRST_FAULT_SHIFT.
      memory: Present when values are.
    """

    now: jax.Array
    stuck: jax.Array
    router: tuple[jax.Array, ...]
    input: tuple[jax.Array, ...]
    routes: tuple[jax.Array, ...]
    position: tuple[jax.Array, ...]
    marks: tuple[jax.Array, ...]
    passed: tuple[jax.Array, ...]
    segment: jax.Array | None
    color_pointer: jax.Array | None
    thread_pointer: jax.Array | None
    pc: tuple[jax.Array, ...]
    left: tuple[jax.Array, ...]
    length: tuple[jax.Array, ...]
    ready_at: tuple[jax.Array, ...]
    need_in: tuple[jax.Array, ...]
    need_out: tuple[jax.Array, ...]
    control: tuple[jax.Array, ...]
    since: tuple[jax.Array, ...]
    watchdog: jax.Array | None
    starved: jax.Array | None
    packet_words: jax.Array | None
    link_free: tuple[jax.Array, ...]
    slot_free: jax.Array | None
    semaphores: tuple[jax.Array, ...]
    loop_counters: tuple[tuple[jax.Array, ...], ...]
    registers: jax.Array | None
    jitter: jax.Array | None
    loads: tuple[jax.Array, ...]
    sent: tuple[jax.Array, ...]
    received: tuple[jax.Array, ...]
    compute_cycles: jax.Array | None
    fault: jax.Array
    fault_cycle: jax.Array
    fault_where: jax.Array
    memory: "MemoryState | None"


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class MemoryState:
    """SRAM, payloads in flight, and each thread's place in them.

    Attributes:
      sram: [words * n] uint32, word-major.
      log: [log words + n] uint32, payloads of sent words; the last n take what is not sent.
      router_words: Per carried colour [slots, n] uint32, payloads in the router FIFO.
      input_words: Per carried and delivered colour [slots, n] uint32, payloads in the input queue.
      address: T arrays [n] int32, word that the event touches next.
      stride: T arrays [n] int32.
      mode: T arrays [n] int32, reads / writes / combine.
      read_at: T arrays [n] int32, place in the log of the next word to pop.
      read_mask: T arrays [n] int32, size of that ring less one.
      write_at: T arrays [n] int32, place in the log of the next word to push.
      write_mask: T arrays [n] int32.
      running: [n] int32 per kernel thread, the kernel instance.
      running_until: [n] int32 per kernel thread, its completion.
    """

    sram: jax.Array
    log: jax.Array
    router_words: tuple[jax.Array, ...]
    input_words: tuple[jax.Array, ...]
    address: tuple[jax.Array, ...]
    stride: tuple[jax.Array, ...]
    mode: tuple[jax.Array, ...]
    read_at: tuple[jax.Array, ...]
    read_mask: tuple[jax.Array, ...]
    write_at: tuple[jax.Array, ...]
    write_mask: tuple[jax.Array, ...]
    running: tuple[jax.Array, ...]
    running_until: tuple[jax.Array, ...]


def initial_state(
    program: Program,
    tiles: Mapping[str, np.ndarray] | None = None,
    *,
    values: bool = True,
    jitter: Jitter | None = None,
    watchdog_cycles: int = 0,
    packet_words: int = 1,
    carry_all: bool = False,
) -> WaferState:
    """State before cycle 0, the given tiles loaded.

    Args:
      program: A validated program.
      tiles: Per tile name [*shape, Y, X]; PEs whose role lacks the tile ignore it.
      values: Without them there is no SRAM, and no tiles.
      jitter: Start skew and stalls, if any.
      watchdog_cycles: End the run when a thread was blocked for so long; 0 for never.
      packet_words: Words that travel as one; more than 1 only without values.
      carry_all: Payloads of all colours travel with their words (see `lower`).

    Raises:
      WaferError: A tile that no role has, or of another shape.
    """
    spec, code = lower(
        program,
        values=values,
        jitter=jitter is not None,
        watchdog=watchdog_cycles > 0,
        packets=packet_words > 1,
        carry_all=carry_all,
    )
    n, threads = spec.lanes, range(spec.threads)
    start = [code.role + t * spec.events for t in threads]

    def field(name: str, dtype=jnp.int32) -> tuple[jax.Array, ...]:
        return tuple(code.table[name][at].astype(dtype) for at in start)

    def zeros(count: int, dtype=jnp.int32) -> tuple[jax.Array, ...]:
        return tuple(jnp.zeros(n, dtype) for _ in range(count))

    empty = [jnp.zeros(n, bool) for _ in threads]
    if spec.dynamic_lengths:
        empty = [words_from >= 0 for words_from in field("words_from")]
    left = tuple(
        jnp.where(e, 1, -(-f // packet_words)) for e, f in zip(empty, field("words"), strict=True)
    )

    def unless_empty(name: str, dtype) -> tuple[jax.Array, ...]:
        return tuple(jnp.where(e, 0, f) for e, f in zip(empty, field(name, dtype), strict=True))

    return WaferState(
        now=jnp.int32(0),
        stuck=jnp.bool_(False),
        router=zeros(spec.colors, spec.fifo.dtype),
        input=zeros(len(spec.delivered), spec.fifo.dtype),
        routes=tuple(jnp.copy(code.routes[c]) for c in spec.dynamic),
        position=zeros(len(spec.dynamic), jnp.uint8),
        marks=tuple(jnp.zeros((spec.router_slots[c], n), jnp.uint8) for c in spec.dynamic),
        passed=zeros(5) if spec.dynamic else (),
        segment=zeros(1, jnp.uint8)[0] if spec.segments > 1 else None,
        color_pointer=zeros(1, jnp.int16)[0] if spec.arbitrates else None,
        thread_pointer=zeros(1, jnp.int16)[0] if spec.threads > 1 else None,
        pc=zeros(spec.threads),
        left=left,
        length=tuple(jnp.copy(words) for words in left) if spec.dynamic_lengths else (),
        ready_at=_first_ready(spec, field("setup"), field("need_in"), jitter),
        need_in=unless_empty("need_in", spec.mask_dtype),
        need_out=unless_empty("need_out", spec.mask_dtype),
        control=field("control", jnp.uint8) if spec.controls else (),
        since=zeros(spec.threads) if spec.watchdog else (),
        watchdog=jnp.int32(watchdog_cycles) if spec.watchdog else None,
        starved=jnp.bool_(False) if spec.watchdog else None,
        packet_words=jnp.int32(packet_words) if spec.packets else None,
        link_free=zeros(5) if spec.packets else (),
        slot_free=zeros(1)[0] if spec.packets else None,
        semaphores=zeros(spec.semaphores),
        loop_counters=tuple(zeros(spec.threads) for _ in range(spec.levels)),
        registers=jnp.zeros((spec.registers, n), jnp.int32) if spec.registers else None,
        jitter=None if jitter is None else jitter.as_array(),
        loads=tuple(jnp.ones(n, jnp.int32) for _ in threads) if spec.jitter else (),
        sent=zeros(len(spec.sending)),
        received=zeros(len(spec.delivered)),
        compute_cycles=zeros(1)[0] if spec.computes else None,
        fault=zeros(1)[0],
        fault_cycle=jnp.full(n, -1, jnp.int32),
        fault_where=zeros(1)[0],
        memory=_initial_memory(program, spec, code, start, empty, tiles or {})
        if spec.values
        else None,
    )


def lowered(program: Program, state: WaferState) -> tuple[StepSpec, Code]:
    """What a state of the program runs on."""
    return lower(
        program,
        values=state.memory is not None,
        jitter=state.jitter is not None,
        watchdog=state.watchdog is not None,
        packets=state.packet_words is not None,
        carry_all=carries_all(program, state),
    )


def carries_all(program: Program, state: WaferState) -> bool:
    """Whether payloads of all colours travel with their words."""
    memory = state.memory
    return memory is not None and len(memory.router_words) == len(program.colors)


def _first_ready(
    spec: StepSpec, setup: tuple, need_in: tuple, jitter: Jitter | None
) -> tuple[jax.Array, ...]:
    """T arrays [n] int32: when each thread's event 0 may issue."""
    if jitter is None:
        return setup
    key, start_cycles, event_cycles = jitter.as_array()
    pe = pe_of_lane(spec.mesh)
    skew = stall(key, pe, jnp.int32(START_THREAD), jnp.int32(0), start_cycles)
    return tuple(
        jnp.where(
            needs & spec.halt_bit != 0,
            0,
            ready_at + skew + stall(key, pe, jnp.int32(t), jnp.int32(0), event_cycles),
        )
        for t, (ready_at, needs) in enumerate(zip(setup, need_in, strict=True))
    )


def _initial_memory(
    program: Program,
    spec: StepSpec,
    code: Code,
    start: list,
    empty: list,
    tiles: Mapping[str, np.ndarray],
) -> MemoryState:
    assert code.ring_in is not None
    assert code.ring_out is not None
    n = spec.lanes
    lane = jnp.arange(n)

    def field(name: str) -> list[jax.Array]:
        return [code.table[name][at] for at in start]

    def ring(rings: jax.Array, colors: list[jax.Array], part: int) -> tuple[jax.Array, ...]:
        if not spec.colors:
            return tuple(jnp.zeros(n, jnp.int32) for _ in colors)
        return tuple(rings[part].reshape(-1)[c * n + lane] for c in colors)

    idle = [jnp.zeros(n, jnp.int32) for _ in spec.kernel_threads]
    return MemoryState(
        sram=jnp.asarray(pack(program, tiles).reshape(-1)),
        log=jnp.zeros(spec.log_words + n, jnp.uint32),
        router_words=tuple(jnp.zeros((spec.router_slots[c], n), jnp.uint32) for c in spec.carried),
        input_words=tuple(
            jnp.zeros((spec.input_slots[c], n), jnp.uint32) for c in spec.carried_inputs
        ),
        address=tuple(field("offset")),
        stride=tuple(field("stride")),
        mode=tuple(jnp.where(e, 0, f) for e, f in zip(empty, field("mode"), strict=True)),
        read_at=ring(code.ring_in, field("color_in"), 0),
        read_mask=ring(code.ring_in, field("color_in"), 1),
        write_at=ring(code.ring_out, field("color_out"), 0),
        write_mask=ring(code.ring_out, field("color_out"), 1),
        running=tuple(idle),
        running_until=tuple(jnp.zeros_like(p) for p in idle),
    )


def pack(program: Program, tiles: Mapping[str, np.ndarray]) -> np.ndarray:
    """Tiles [*shape, Y, X] by name to the fabric's SRAM, [words, n] uint32; the rest is poison.

    Raises:
      WaferError: A tile that no role has, or of another shape.
    """
    height, width = program.hw.mesh
    # With the ghosts from the start: no second copy of what may be most of the memory.
    shape = (max(program.sram_words, 1), height, row_lanes(width))
    padded = np.full(shape, POISON, np.uint32)
    sram = padded[..., :width]
    for name, value in tiles.items():
        owners = [(r, m) for r, m in _owners(program) if name in r.tiles]
        if not owners:
            raise WaferError(f"{program.name}: no role has a tile {name!r}")
        for role, mask in owners:
            tile = role.tiles[name]
            expected = (*tile.shape, height, width)
            if np.shape(value) != expected:
                raise WaferError(
                    f"{program.name}: tile {name!r} has shape {np.shape(value)}, not {expected}"
                )
            if np.iscomplexobj(value):
                raise WaferError(f"{program.name}: tile {name!r} is complex, not {tile.dtype}")
            block = sram[tile.offset : tile.offset + tile.words]
            np.copyto(block, _to_words(np.asarray(value), tile), where=mask)
    return padded.reshape(len(padded), -1)


def unpack(program: Program, sram: np.ndarray, name: str) -> np.ndarray:
    """One tile from SRAM [words, Y, X] uint32 as [*shape, Y, X]; NaN where a role lacks it."""
    out: np.ndarray | None = None
    for role, mask in _owners(program):
        if name not in role.tiles:
            continue
        tile = role.tiles[name]
        value = _from_words(sram[tile.offset : tile.offset + tile.words], tile)
        if out is None:
            out = np.full(value.shape, np.nan, value.dtype)
        np.copyto(out, value, where=mask)
    if out is None:
        raise WaferError(f"{program.name}: no role has a tile {name!r}")
    return out


def _owners(program: Program):
    return zip(program.roles, program.role_masks, strict=True)


def _to_words(value: np.ndarray, tile: Tile) -> np.ndarray:
    """[*shape, Y, X] to [words, Y, X] uint32; the second 16-bit element in the high half."""
    flat = value.reshape(tile.size, *value.shape[-2:]).astype(jnp.dtype(tile.dtype))
    if DTYPE_BYTES[tile.dtype] == 4:
        return flat.view(np.uint32)
    halves = np.zeros((2 * tile.words, *flat.shape[1:]), np.uint32)
    halves[: tile.size] = flat.view(np.uint16)
    return halves[0::2] | halves[1::2] << np.uint32(16)


def _from_words(words: np.ndarray, tile: Tile) -> np.ndarray:
    shape = (*tile.shape, *words.shape[1:])
    if DTYPE_BYTES[tile.dtype] == 4:
        return words.view(np.float32).reshape(shape)
    halves = np.stack([words & 0xFFFF, words >> 16], axis=1).astype(np.uint16)
    flat = halves.reshape(2 * tile.words, *words.shape[1:])[: tile.size]
    return flat.view(jnp.dtype(tile.dtype)).reshape(shape)
