"""The oracle's whole state as named planes, PE axes last: what `step` must equal in every cycle."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from oracle_state import Fifo, Pe

from wafer_jax.events import Event, Loop, Signal, Wait, registers_of
from wafer_jax.program import Program

if TYPE_CHECKING:
    from oracle import Oracle


def snapshot(oracle: "Oracle") -> dict[str, Any]:
    """The state at the start of cycle ``now``, after its phase (a).

    Words sent include control wavelets; words received, which are data, do not.

    Axes: C colours, T threads, S semaphores, L loop levels, G registers, Y rows, X columns.
    """
    program, now = oracle.program, oracle.now
    colors, threads = range(len(program.colors)), range(program.num_threads)
    semaphores, levels, registers = _highest(program)

    def plane(value: Callable[[Pe], Any], dtype: Any = np.int64) -> np.ndarray:
        out = np.zeros(program.hw.mesh, dtype)
        for (y, x), pe in oracle.pes.items():
            out[y, x] = value(pe)
        return out

    def planes(indices: range, value: Callable[[Pe, int], Any], dtype: Any = np.int64):
        each = [plane(lambda pe, i=i: value(pe, i), dtype) for i in indices]
        return np.stack(each) if each else np.zeros((0, *program.hw.mesh), dtype)

    def measure(family: str, of: Callable[[Fifo], int]) -> np.ndarray:
        return planes(colors, lambda pe, c: of(getattr(pe, family)[c]))

    loop_counters = [
        planes(threads, lambda pe, t, n=n: pe.threads[t].loop_counters[n]) for n in range(levels)
    ]
    out = {
        "now": now,
        "router_ready": measure("router", lambda f: f.ready(now)),
        "router_total": measure("router", lambda f: len(f.words)),
        "input_ready": measure("queue", lambda f: f.ready(now)),
        "input_total": measure("queue", lambda f: len(f.words)),
        "rx": planes(colors, lambda pe, c: pe.routes[c][0]),
        "tx": planes(colors, lambda pe, c: sum(1 << d for d in pe.routes[c][1])),
        "segment": plane(lambda pe: pe.segment),
        "position": planes(colors, lambda pe, c: pe.positions[c]),
        "color_pointer": plane(lambda pe: pe.color_pointer),
        "thread_pointer": plane(lambda pe: pe.thread_pointer),
        "pc": planes(threads, lambda pe, t: pe.threads[t].pc),
        "left": planes(threads, lambda pe, t: pe.threads[t].left),
        "ready_at": planes(threads, lambda pe, t: pe.threads[t].ready_at),
        "halted": planes(threads, lambda pe, t: pe.threads[t].halted, bool),
        "semaphores": planes(range(semaphores), lambda pe, s: pe.semaphores[s]),
        "registers": planes(range(registers), lambda pe, g: pe.registers[g]),
        "loop_counters": np.array(loop_counters, np.int64).reshape(
            levels, len(threads), *program.hw.mesh
        ),
        "sent": planes(colors, lambda pe, c: pe.sent[c]),
        "received": planes(colors, lambda pe, c: pe.received[c]),
        "faults": plane(lambda pe: pe.faults),
        "fault_cycle": plane(lambda pe: pe.fault_cycle),
    }
    if oracle.values:
        out["sram"] = planes(range(program.sram_words), lambda pe, i: pe.sram[i], np.uint32)
    return out


def all_events(program: Program) -> list[Event]:
    """Every event of every role, played or not."""
    return [e for role in program.roles for thread in role.threads for e in thread]


@lru_cache(maxsize=1)
def _highest(program: Program) -> tuple[int, ...]:
    """Semaphores, loop levels and registers in use: the highest number of each, plus one."""
    events = all_events(program)
    semaphores = [e.semaphore for e in events if isinstance(e, Signal | Wait)]
    levels = [e.level for e in events if isinstance(e, Loop)]
    registers = [r for e in events for r in registers_of(e)]
    return tuple(max(used, default=-1) + 1 for used in (semaphores, levels, registers))
