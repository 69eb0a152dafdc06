"""Cycles of compute-shift steps, from the machine's constants and the words of a block.

Stream i of a PE (1: A out, 2: A in, 3: B out, 4: B in) is launched in cycle ``i l`` of a step, l
the launch's cycles, and moves its first word a set-up s later. The product begins after the last
launch; it takes longer by the words that move meanwhile. After the last stream and the product the
core takes in so many signals, and goes on a task later. So with n streams, A and B words each way,

    step = max(n l + product + shared + n, e + 3) + task
    e    = max(n l + s + B + d, 2 l + s + A + B + d) - 1

where e is the cycle of the last word that comes in: B's, which had to wait for A's if they are
many, since both come in over one RAMP. d counts signals that take the slot from that stream: of a
sender that is done, and of streams that the core takes in before the last word.

A round of the alignment moves one operand, w words each way, whose streams take the slot in turns
once both run: ``e = 2 l + s + w + max(0, w - l)``.

Exact where the product bounds a step and l is at least 13, so that the control's 12 events are over
when the streams begin. Residuals, held by tests: in alignment rounds and in steps that a transfer
bounds, streams and signals want the slot in one cycle (up to 3 cycles a step); with shorter
launches the control does, too (up to 14).
"""

from collections.abc import Sequence

from wafer_jax.collectives.kernels import copy_cycles
from wafer_jax.collectives.loops import loop_rounds
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.hardware import HardwareSpec

CONTROL_CYCLES = 3
"""Cycles between the events by which the control lets one stream, and the next, begin."""


def launched(hw: HardwareSpec, stream: int) -> int:
    """Cycle of a step in which its stream number 1, 2, ... has been launched."""
    return stream * max(hw.launch_cycles, CONTROL_CYCLES + 1)


def shared_cycles(hw: HardwareSpec, words: Sequence[int]) -> int:
    """Cycles that the streams take from a product: the words that move after the last launch."""
    if len(words) < 2:
        return sum(words)
    head_start = launched(hw, 2) - hw.stream_setup_cycles
    return max(0, words[0] - head_start) + words[1]


def step_cycles(hw: HardwareSpec, words: Sequence[int], product_cycles: int) -> int:
    """Cycles of a step.

    Args:
      hw: The machine.
      words: Of a block of each operand that moves, each way.
      product_cycles: Of the product of two blocks alone.
    """
    streams = 2 * len(words)
    if not streams:
        return product_cycles
    product_end = launched(hw, streams) + product_cycles + shared_cycles(hw, words)
    last_word = _last_word(hw, words)
    if product_end <= last_word:
        last_word += streams - 1
    return max(product_end + streams, last_word + 3) + hw.task_cycles


def _last_word(hw: HardwareSpec, words: Sequence[int]) -> int:
    setup, last = hw.stream_setup_cycles, launched(hw, 2 * len(words))
    signal = words[-1] > launched(hw, 1)
    end = last + setup + words[-1] - 1 + signal
    if len(words) == 2:
        end = max(end, launched(hw, 2) + setup + sum(words) - 1 + signal)
    return end


def arrival_cycles(hw: HardwareSpec, stream: int, words: int, hops: int = 1) -> int:
    """Cycles of a step that only waits for the words of one sender.

    Args:
      hw: The machine.
      stream: Number of the sender's stream.
      words: Of the block, and of those behind it that share the RAMP.
      hops: From the sender.
    """
    first = launched(hw, stream) + hw.stream_setup_cycles + pass_cycles(hw, hops)
    return first + words - 1 + 3 + hw.task_cycles


def align_cycles(hw: HardwareSpec, words: int, elements: int, dtype: str) -> int:
    """Cycles of an alignment round: a transfer of a whole PE tile, then a masked copy.

    Args:
      hw: The machine.
      words: Of the tile; 0 if there is no PE to exchange with.
      elements: Of the tile.
      dtype: Element type.
    """
    copy = copy_cycles(hw, elements, dtype)
    if not words:
        return copy
    behind = words - launched(hw, 1)
    last = launched(hw, 2) + hw.stream_setup_cycles + words - 1 + max(0, behind + 1)
    return max(launched(hw, 2) + 2, last + 3) + hw.task_cycles + copy


def looped(step: int, period: int, count: int) -> int:
    """Cycles of ``count`` steps of which those ``period`` apart are equal: loops take one more."""
    return step * count + loop_rounds(period, count)
