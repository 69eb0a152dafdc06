"""What the oracle's streams and kernels do to SRAM and registers (docs/semantics.md, 2.3 and 3)."""

from typing import TYPE_CHECKING

import numpy as np
from oracle_state import (
    POISON,
    Pe,
    Running,
    Thread,
    addresses,
    combine_words,
    read_tile,
    signed,
    write_tile,
)

from wafer_jax.events import Compute, Forward, Receive, Register, Send, Tile, event_slice
from wafer_jax.faults import Fault

if TYPE_CHECKING:
    from oracle import Oracle

Stream = Send | Receive | Forward


def touch(oracle: "Oracle", pe: Pe, thread: Thread, event: Stream, arrived: int) -> int:
    """The word that a stream makes of its next word in memory and the one that arrived."""
    how = "copy" if isinstance(event, Send) else event.combine
    reads, writes = isinstance(event, Send) or how != "copy", isinstance(event, Receive)
    if not reads and not writes:
        return arrived
    piece = event_slice(event)
    assert piece is not None
    address = piece.offset + piece.stride * (thread.words - thread.left)
    inside = 0 <= address < oracle.program.sram_words
    if not inside:
        oracle.fault(pe, Fault.SRAM_OUT_OF_BOUNDS)
    _check_race(oracle, pe, address, reads=reads, writes=writes)
    word = arrived
    if reads:
        memory = _read(oracle, pe, address) if inside else POISON
        word = memory if how == "copy" else combine_words(how, memory, arrived, piece.dtype)
        oracle.seen[how] += 1
    if writes and inside:
        pe.sram[address] = word
    return word


def _read(oracle: "Oracle", pe: Pe, address: int) -> int:
    word = int(pe.sram[address])
    if word == POISON:
        oracle.fault(pe, Fault.UNWRITTEN_READ)
    return word


def _check_race(oracle: "Oracle", pe: Pe, address: int, *, reads: bool, writes: bool) -> None:
    for kernel in pe.running:
        touched = (writes and address in kernel.inputs | kernel.outputs) or (
            reads and address in kernel.outputs
        )
        if touched and kernel.first <= oracle.now <= kernel.last:
            oracle.fault(pe, Fault.KERNEL_RACE)


def compute(oracle: "Oracle", pe: Pe, event: Compute, cycles: int) -> None:
    """Reads and writes at the issue; the race fault covers every other moment."""
    inputs = [tile for tile in event.inputs if isinstance(tile, Tile)]
    pe.running.append(
        Running(
            first=oracle.now + 1,
            last=oracle.now + cycles - 1,
            inputs={i for tile in inputs for i in addresses(tile)},
            outputs={i for t in event.outputs if isinstance(t, Tile) for i in addresses(t)},
        )
    )
    oracle.seen["cycles"] += isinstance(event.cycles, Register)
    if not oracle.values:
        return
    for tile in inputs:
        for address in addresses(tile):
            _read(oracle, pe, address)
    operands = [
        read_tile(pe.sram, i) if isinstance(i, Tile) else np.int32(pe.registers[i.index])
        for i in event.inputs
    ]
    with np.errstate(all="ignore"):
        results = event.kernel.fn(*operands)
    results = results if isinstance(results, tuple) else (results,)
    for output, result in zip(event.outputs, results, strict=True):
        if isinstance(output, Tile):
            write_tile(pe.sram, output, np.asarray(result))
        else:
            pe.registers[output.index] = signed(int(result))
            oracle.seen["kernel_register"] += 1
