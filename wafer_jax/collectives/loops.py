"""Steps that come again after a period, as loops of several threads at once."""

from collections.abc import Callable, Sequence

from wafer_jax.builder import ThreadBuilder


def repeat(
    threads: Sequence[ThreadBuilder], period: int, count: int, emit: Callable[[int], object]
) -> None:
    """Emit steps 0 .. count - 1, of which those ``period`` apart are equal, to some threads.

    Two rounds or more of ``period`` steps become a loop in every thread.
    """
    rounds = loop_rounds(period, count)
    if rounds:
        _looped(list(threads), rounds, lambda: [emit(step) for step in range(period)])
    for step in range(rounds * period, count):
        emit(step)


def loop_rounds(period: int, count: int) -> int:
    """Rounds of the loop that `repeat` makes, 0 if it makes none."""
    return count // period if count >= 2 * period else 0


def _looped(threads: list[ThreadBuilder], rounds: int, body: Callable[[], object]) -> None:
    if not threads:
        body()
        return
    with threads[0].loop(rounds):
        _looped(threads[1:], rounds, body)
