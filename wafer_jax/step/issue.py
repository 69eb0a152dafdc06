"""Who issues in a cycle: the outcome of the threads' decision."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Issue:
    """The thread that issues on each PE in a cycle (or, `together`, the two wide ones).

    Attributes:
      wins: T arrays [n] bool, at most one of them holds per lane.
      pops: [n] mask of the colours and semaphores popped.
      pushes: [n] mask of those pushed.
      issued: [n] bool.
      finished: [n] bool, the issue was the event's last.
      pointer: [n] int16, next issue slot pointer, or None.
    """

    wins: list[jax.Array]
    pops: jax.Array
    pushes: jax.Array
    issued: jax.Array
    finished: jax.Array
    pointer: jax.Array | None


def together(first: Issue, second: Issue | None) -> Issue:
    """What both issue, for all that looks at threads, colours and semaphores one by one."""
    if second is None:
        return first
    return replace(
        second,
        wins=[a | b for a, b in zip(first.wins, second.wins, strict=True)],
        pops=first.pops | second.pops,
        pushes=first.pushes | second.pushes,
        issued=first.issued | second.issued,
        finished=first.finished | second.finished,
    )


def select(wins: list[jax.Array], planes: tuple[jax.Array, ...]) -> jax.Array:
    """[n]: the winner's value, 0 where nobody issues."""
    out = jnp.where(wins[0], planes[0], 0)
    for win, plane in zip(wins[1:], planes[1:], strict=True):
        out = jnp.where(win, plane, out)
    return out
