"""The state as plain arrays over [Y, X], in the terms of docs/semantics.md."""

from typing import Any

import numpy as np

from wafer_jax.events import Register, event_words, receive_color, send_color
from wafer_jax.mesh_state import WaferState, lowered
from wafer_jax.program import Program
from wafer_jax.step_spec import StepSpec, from_lanes


def snapshot(program: Program, state: WaferState) -> dict[str, Any]:
    """The state as plain arrays over [Y, X], in the terms of docs/semantics.md.

    Counts of ready words are those of cycle ``now`` after its delay lines advanced.
    """
    spec, _ = lowered(program, state)
    fifo, mesh = spec.fifo, program.hw.mesh

    def grid(planes, count: int | None = None, dtype=np.int64) -> np.ndarray:
        if not planes:
            return np.zeros((count or 0, *mesh), dtype)
        return from_lanes(np.stack([np.asarray(p) for p in planes]), mesh).astype(dtype)

    def counts(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = (1 << fifo.count_bits) - 1
        due = planes >> fifo.line_shift & 1
        return (planes & count) + due, planes >> fifo.count_bits & count

    def spread(planes, colors: tuple[int, ...]) -> np.ndarray:
        out = np.zeros((spec.colors, *mesh), np.int64)
        if colors:
            out[list(colors)] = grid(planes)
        return out

    router_ready, router_total = counts(grid(state.router))
    input_ready, input_total = counts(spread(state.input, spec.delivered))
    pc, left = grid(state.pc), grid(state.left)
    sent, received = spread(state.sent, spec.sending), spread(state.received, spec.delivered)
    length = grid(state.length) if state.length else None
    packet_words = 1 if state.packet_words is None else int(state.packet_words)
    _add_current_events(program, pc, left, length, packet_words, sent, received)
    halted = (grid(state.need_in) & spec.halt_bit) != 0
    zero = np.zeros(mesh, np.int64)
    rx, tx, position = _current_routes(program, spec, state)
    out = {
        "now": int(state.now),
        "router_ready": router_ready,
        "router_total": router_total,
        "input_ready": input_ready,
        "input_total": input_total,
        "rx": rx,
        "tx": tx,
        "position": position,
        "segment": zero if state.segment is None else grid([state.segment])[0],
        "color_pointer": grid([state.color_pointer])[0] if spec.arbitrates else zero,
        "thread_pointer": grid([state.thread_pointer])[0] if spec.threads > 1 else zero,
        "pc": pc,
        "left": left,
        "ready_at": grid(state.ready_at),
        "halted": halted,
        "semaphores": grid(state.semaphores, spec.semaphores),
        "loop_counters": np.array([grid(c) for c in state.loop_counters]).reshape(
            spec.levels, spec.threads, *mesh
        ),
        "registers": np.zeros((0, *mesh), np.int64)
        if state.registers is None
        else grid(list(state.registers)),
        "sent": sent,
        "received": received,
        "faults": grid([state.fault])[0],
        "fault_cycle": grid([state.fault_cycle])[0],
    }
    if state.memory is not None:
        out["sram"] = sram_grid(program, state)
    return out


def _current_routes(
    program: Program, spec: StepSpec, state: WaferState
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[C, Y, X] int64 each: receive directions, transmit sets, positions."""
    rx, tx = program.rx.astype(np.int64), program.tx.astype(np.int64)
    position = np.zeros_like(rx)
    for k, c in enumerate(spec.dynamic):
        routes = from_lanes(np.asarray(state.routes[k]), program.hw.mesh).astype(np.int64)
        rx[c], tx[c] = (routes >> 5 & 7) - 1, routes & 31
        position[c] = from_lanes(np.asarray(state.position[k]), program.hw.mesh)
    return rx, tx, position


def sram_grid(program: Program, state: WaferState) -> np.ndarray:
    """SRAM as [words, Y, X] uint32."""
    assert state.memory is not None
    lanes = np.asarray(state.memory.sram).reshape(max(program.sram_words, 1), -1)
    return from_lanes(lanes, program.hw.mesh)[: program.sram_words]


def _add_current_events(
    program: Program,
    pc: np.ndarray,
    left: np.ndarray,
    length: np.ndarray | None,
    packet_words: int,
    sent: np.ndarray,
    received: np.ndarray,
) -> None:
    """Add the words that each thread's unfinished stream event has moved so far."""
    for role, mask in zip(program.roles, program.role_masks, strict=True):
        for t, events in enumerate(role.threads):
            for e in np.unique(pc[t][mask]):
                event = events[e]
                here = mask & (pc[t] == e)
                words = event_words(event)
                if isinstance(words, Register):
                    assert length is not None
                    words = length[t]
                else:
                    words = -(-words // packet_words)
                moved = np.where(here, words - left[t], 0)
                for counts, color in ((sent, send_color(event)), (received, receive_color(event))):
                    if color is not None:
                        counts[program.colors.index(color)] += moved
