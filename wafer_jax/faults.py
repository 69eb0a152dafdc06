"""Faults as data: one bit per failure, per PE (docs/semantics.md, section 3)."""

from enum import IntFlag


class Fault(IntFlag):
    """Bits of the per-PE fault mask."""

    UNROUTED = 1
    UNWRITTEN_READ = 2
    KERNEL_RACE = 4
    UNDELIVERED = 8
    DEADLOCK = 16
    SRAM_OUT_OF_BOUNDS = 32
    MIXED_SEGMENT = 64
    NO_SUCH_SEGMENT = 128
    STARVED = 256


REMEDY = {
    Fault.UNROUTED: "let the neighbour receive from this side, or deliver to the RAMP",
    Fault.UNWRITTEN_READ: "load the tile, or order the read after the write (SIGNAL and WAIT)",
    Fault.KERNEL_RACE: "let the other thread WAIT for the kernel, or give it a second buffer",
    Fault.UNDELIVERED: "let some thread receive as many words as are sent on this colour",
    Fault.SRAM_OUT_OF_BOUNDS: "keep the length that the register holds within the tile",
    Fault.MIXED_SEGMENT: "let the PE RECONFIGURE only after the last word of the old segment has "
    "passed it, and the sender send in the new one only after that",
    Fault.NO_SUCH_SEGMENT: "keep the number that the register holds within the program's segments",
    Fault.STARVED: "see whom it waits for, or allow more watchdog_cycles",
    Fault.DEADLOCK: "give every receive its send, and break cycles of PEs that wait for each other",
}
"""What to do about each fault, as a clause that follows its description."""


class FaultError(RuntimeError):
    """A run ended with faults; the message names PE, colour or event, cycle and remedy."""
