"""What a core spends outside streams, as an event of a program that is run for its timing only."""

from wafer_jax.events import Kernel, Tile
from wafer_jax.thread_builder import ThreadBuilder

_BUSY = Kernel(name="core", fn=lambda tile: tile)


def spend(thread: ThreadBuilder, cycles: int, tile: Tile) -> ThreadBuilder:
    """Keep the core busy for some cycles; with 0 nothing is added.

    Args:
      thread: Whose next event it is.
      cycles: Of the core.
      tile: Any of the role's; it keeps its values.
    """
    return thread.compute(_BUSY, (tile,), (tile,), cycles) if cycles else thread
