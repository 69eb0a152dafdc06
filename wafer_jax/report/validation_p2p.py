"""Messages between two PEs and along a relay of PEs, run on the fabric.

The characterisation notes of the WSE-3 give three kinds of figures, and one model stands for all:

- *In the fabric* (instruction and wavelet traces of the simulator): from the dispatch of a send
  stream set-up, issue and ramp to the link, then the hops, ramp and issue into the receiving core.
  A task that waits for the last word is dispatched in the next cycle.
- *Between time stamps* (silicon): the instruction that reads the first stamp, the launch of the
  lone asynchronous send (``launch_cycles``), the fabric's part for one word (the payload of the
  published latencies is not stated), the entry of the completion task (``task_cycles``) until it
  reads the second stamp.
- *A relay* (simulator) passes on whole messages by blocking streams, without tasks: the launch of
  the first stream, then every stage is the fabric's part and the core's way to its next
  instruction (`NEXT_INSTRUCTION_CYCLES`).
"""

import re
from functools import cache

import numpy as np

from wafer_jax.builder import ProgramBuilder
from wafer_jax.execute import run
from wafer_jax.hardware import E, HardwareSpec
from wafer_jax.program import Program
from wafer_jax.report.core_time import spend
from wafer_jax.report.published import Bar, Family, NotExpressible, Ours, PublishedPoint

STAMP_CYCLES = 1
"""The instruction that reads the first time stamp; one is issued per cycle (WSE-3 notes)."""
NEXT_INSTRUCTION_CYCLES = 3 + 2
"""From the end of a blocking stream to the dispatch of the next: 3 cycles from decoding to
execution, 2 until a dependent operand is there (WSE-3 characterisation notes, pipeline)."""
STAGES, WORDS = (1, 2, 4, 8), (64, 512)
"""Of the relays that the published line was fitted to."""
_PATTERN = r"p2p_straight_latency_(west|east|north|south)(_\w+)?"


def message(
    hw: HardwareSpec, route: tuple[tuple[int, int], tuple[int, int]], words: int, core: bool
) -> Program:
    """One message from PE to PE; the program ends where the receiver's task begins.

    Args:
      hw: Machine and mesh.
      route: From (y, x) to (y, x), first along x.
      words: Of the message.
      core: Whether the time of the cores, between two time stamps, is part of it.
    """
    builder = ProgramBuilder(hw, f"{words} words from {route[0]} to {route[1]}")
    x = builder.tile("x", (words,))
    builder.path(0, *route)
    sender = builder.role("sender", at=route[0]).thread()
    receiver = builder.role("receiver", at=route[1]).thread()
    spend(sender, (STAMP_CYCLES + hw.launch_cycles) * core, x).send(0, x)
    spend(receiver.receive(0, x), hw.task_cycles * core, x)
    return builder.build(inputs=("x",), outputs=("x",))


def relay(hw: HardwareSpec, stages: int, words: int) -> Program:
    """A message stored and sent on from PE to PE along the first row, ``stages`` times."""
    builder = ProgramBuilder(hw, f"relay of {words} words over {stages} stages")
    x = builder.tile("x", (words,))
    for stage in range(stages):
        # Every other link has the same colour, so that a PE receives on one and sends on the other.
        builder.path(stage % 2, (0, stage), (0, stage + 1))
    first = builder.role("first", at=(0, 0)).thread()
    spend(first, STAMP_CYCLES + hw.launch_cycles, x).send(0, x)
    for color in (0, 1):
        if pes := range(1 + color, stages, 2):
            thread = builder.role(f"receives on {color}", at=(0, pes)).thread().receive(color, x)
            spend(thread, NEXT_INSTRUCTION_CYCLES, x).send(1 - color, x)
    last = builder.role("last", at=(0, stages)).thread().receive((stages - 1) % 2, x)
    spend(last, NEXT_INSTRUCTION_CYCLES, x)
    return builder.build(inputs=("x",), outputs=("x",))


def latency(hw: HardwareSpec, side: str, hops: int, words: int = 1) -> int:
    """Cycles between the time stamps of a message that goes ``hops`` straight to one side."""
    # Meshes of few sizes, since every size is compiled.
    length = max(17, 1 + (1 << (hops - 1).bit_length()))
    along_x = side in ("west", "east")
    length = max(min(length, hw.device_mesh[along_x]), hops + 1)
    hw = hw.replace(mesh=(1, length) if along_x else (length, 1))
    near, far = (0, 0), (0, hops) if along_x else (hops, 0)
    route = (far, near) if side in ("west", "north") else (near, far)
    return _cycles(message(hw, route, words, core=True))


@cache
def relay_line(hw: HardwareSpec) -> tuple[float, float, float]:
    """(a, b, c) of ``T = a N B + b N + c`` through relays of N stages and B words."""
    runs = [(n, b, relay_cycles(hw, n, b)) for n in STAGES for b in WORDS]
    matrix = np.array([(n * b, n, 1) for n, b, _ in runs], np.float64)
    line = np.linalg.lstsq(matrix, np.array([t for *_, t in runs], np.float64))[0]
    return tuple(float(round(value, 6)) for value in line)  # pyright: ignore[reportReturnType]


def relay_cycles(hw: HardwareSpec, stages: int, words: int) -> int:
    """Cycles of a relay."""
    return _cycles(relay(hw.replace(mesh=(1, max(9, stages + 1))), stages, words))


def cycle_of_word(hw: HardwareSpec, word: int, words: int) -> int:
    """Cycle in which the ``word``-th of so many words (from 1) goes onto the link to the east."""
    program = message(hw, ((0, 0), (0, 1)), words, core=False)
    until = next(
        cycle
        for cycle in range(1, _cycles(program))
        if run(program, values="none", max_cycles=cycle).link_words[E, 0, 0] >= word
    )
    return until - 1


def _cycles(program: Program) -> int:
    return run(program, values="none").raise_on_fault().cycles


def _traced(hw: HardwareSpec, experiment: str) -> Ours:
    pair = hw.replace(mesh=(1, 2))
    if experiment == "send_dispatch_to_first_wavelet_on_link":
        return Ours(
            value=cycle_of_word(pair, 1, 8), level="fabric", calibrated="stream_setup_cycles"
        )
    task = _cycles(message(pair, ((0, 0), (0, 1)), 8, core=False))
    if experiment == "send_dispatch_to_receive_task_8words_1hop":
        return Ours(value=task, level="fabric")
    arrival = cycle_of_word(pair, 8, 8) + hw.hop_cycles
    return Ours(value=task - arrival, level="fabric")


def _ours(point: PublishedPoint) -> Ours:
    straight = re.fullmatch(_PATTERN, point.experiment)
    hw = point.machine((1, 2))
    if straight is not None:
        hops, words = point.number("hops"), point.number("B", 1)
        return Ours(value=latency(hw, straight[1], hops, words), level="fabric")
    if point.experiment.startswith("hop_latency"):
        per_hop = (latency(hw, "west", 16) - latency(hw, "west", 1)) / 15
        return Ours(value=per_hop, level="fabric", calibrated="hop_cycles")
    if point.experiment in (names := ("relay_slope_NB", "relay_per_stage", "relay_const")):
        return Ours(value=relay_line(hw)[names.index(point.experiment)], level="fabric")
    if point.experiment.startswith("relay"):
        if point.unit != "cycles":
            raise NotExpressible("of a relay, cycles for N= stages and B= words are known")
        return Ours(value=relay_cycles(hw, point.number("N"), point.number("B")), level="fabric")
    return _traced(hw, point.experiment)


FAMILY = Family(
    name="point-to-point",
    experiments=rf"{_PATTERN}|hop_latency(_sim)?|relay\w*|send_dispatch_to_first_wavelet_on_link"
    r"|send_dispatch_to_receive_task_8words_1hop|last_wavelet_to_completion_task",
    ours=_ours,
    bar=Bar(worst=3.0, cycles=0.5),
)
