"""Asynchrony on purpose, from docs/semantics.md, section 6, in Python integers."""

from typing import Protocol

WORD = 1 << 32


class Jitter(Protocol):
    """How much a run is disturbed; ``wafer_jax.jitter.Jitter`` is one."""

    @property
    def key(self) -> int: ...
    @property
    def start_cycles(self) -> int: ...
    @property
    def event_cycles(self) -> int: ...


def start_stall(jitter: Jitter | None, pe: int) -> int:
    """Cycles by which all threads of a PE begin later."""
    return 0 if jitter is None else _stall(jitter.key, pe, 255, 0, jitter.start_cycles)


def event_stall(jitter: Jitter | None, pe: int, thread: int, ordinal: int) -> int:
    """Cycles by which a thread's event number ``ordinal`` may issue later."""
    return 0 if jitter is None else _stall(jitter.key, pe, thread, ordinal, jitter.event_cycles)


def _stall(key: int, pe: int, thread: int, ordinal: int, limit: int) -> int:
    h = key + pe * 0x9E3779B1 + thread * 0x85EBCA6B + ordinal * 0xC2B2AE35
    return _mix(h % WORD) % (limit + 1)


def _mix(h: int) -> int:
    h ^= h >> 16
    h = h * 0x85EBCA6B % WORD
    h ^= h >> 13
    h = h * 0xC2B2AE35 % WORD
    return h ^ h >> 16
