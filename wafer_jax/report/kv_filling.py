"""KV caches filled vector by vector until one is lost: capacities by a run, not by a formula.

Every vector is its own number, so that a cache shows where each one lies. A vector that moved up
leaves a stale copy behind: the topmost copy is the one that counts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.collectives import kv_concat, kv_shift
from wafer_jax.errors import WaferError
from wafer_jax.execute import run
from wafer_jax.hardware import HardwareSpec

Append = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
POLICIES = {"concat": kv_concat, "shift": kv_shift}
_EMPTY = -1
_ELEMENTS, _DTYPE = 2, "float16"
"""Of a vector on one PE of the fabric; float16 counts to 2,048."""


@dataclass(frozen=True)
class Filling:
    """What a mesh held when the next vector would have cost one.

    Attributes:
      vectors: All still there.
      spread: Largest difference between the fills of two rows, ever seen.
      hops: Most rows that a vector moved in one append, or None if not every append was looked at.
      in_order: Whether, from the top row down, the vectors were always in order of time.
      fabric_cycles: Of all appends, or None at the bulk level.
      cost_cycles: The same by the closed form.
    """

    vectors: int
    spread: int
    hops: int | None
    in_order: bool
    fabric_cycles: int | None = None
    cost_cycles: int | None = None


def fill(policy: str, rows: int, slots: int, *, every: bool) -> Filling:
    """Fill a mesh at the bulk level, where nothing refuses a vector: it overwrites or is dropped.

    Args:
      policy: "concat" or "shift".
      rows: Y of the mesh; its columns are alike, so one stands for all.
      slots: Of a row.
      every: Look at the cache after each append, not after each ``rows`` + 1 of them.
    """
    cache = jnp.full((slots, rows, 1), _EMPTY, jnp.int32)
    found = _Observed(rows)
    count = 1 if every else rows + 1
    while True:
        after = _appended(POLICIES[policy].apply, cache, found.vectors, count)
        if found.add(np.asarray(after)[..., 0], count):
            cache = after
        elif count == 1:
            return Filling(found.vectors, found.spread, found.hops if every else None, found.sorted)
        else:
            count = 1


@partial(jax.jit, static_argnums=0)
def _appended(apply: Append, cache: jax.Array, first: int, count: int) -> jax.Array:
    one = lambda i, cache: apply(cache, jnp.full(1, first + i), first + i)
    return jax.lax.fori_loop(0, count, one, cache)


def fill_fabric(policy: str, hw: HardwareSpec, slots: int) -> Filling:
    """Fill the mesh of a machine, an append a program, until none is built any more.

    Raises:
      WaferError: A program that failed, or that lost a vector.
    """
    module, (height, width) = POLICIES[policy], hw.mesh
    cache = np.zeros((slots, _ELEMENTS, height, width), _DTYPE)
    found, cycles, cost = _Observed(height), 0, 0
    while True:
        sizes = hw, _ELEMENTS, found.vectors, slots, _DTYPE
        try:
            program = module.program(*sizes)
        except WaferError as error:
            if "is full" in str(error):
                return Filling(found.vectors, found.spread, found.hops, found.sorted, cycles, cost)
            raise
        entry = np.full((_ELEMENTS, height, width), found.vectors + 1, _DTYPE)
        result = run(program, {"cache": cache, "entry": entry}).raise_on_fault()
        cache = np.nan_to_num(np.asarray(result.values))  # rows without a role have no values
        if not found.add(cache[:, 0, :, 0].astype(int) - 1, 1):
            raise WaferError(f"{policy} lost a vector of {found.vectors + 1} on {hw.mesh}")
        cycles, cost = cycles + result.cycles, cost + module.cost(*sizes)


class _Observed:
    """What the caches looked at so far have shown."""

    def __init__(self, rows: int) -> None:
        self.rows, self.vectors = rows, 0
        self.spread, self.hops, self.sorted = 0, 0, True
        self._row = np.zeros(0, int)

    def add(self, cache: np.ndarray, count: int) -> bool:
        """Look at a cache [S, Y] of numbers after ``count`` more vectors; False if one is lost."""
        total = self.vectors + count
        row = np.full(total, self.rows)
        there = (cache >= 0) & (cache < total)
        np.minimum.at(row, cache[there], np.nonzero(there)[1])
        if (row == self.rows).any():
            return False
        fills = np.bincount(row, minlength=self.rows)
        moved = self._row - row[: self.vectors]
        self.spread = max(self.spread, int(np.ptp(fills)))
        self.hops = max(self.hops, int(abs(moved).max(initial=0)))
        self.sorted = self.sorted and bool((np.diff(row) >= 0).all())
        self._row, self.vectors = row, total
        return True


def published_fills(rows: int, vectors: int) -> np.ndarray:
    """[rows] int: fills by WaferLLM's own trigger (section 4.3).

    A core that receives a vector while it holds as many as the core above passes its oldest one on.
    """
    fills = np.zeros(rows, int)
    for _ in range(vectors):
        y = rows - 1
        while y and fills[y] == fills[y - 1]:
            y -= 1
        fills[y] += 1
    return fills
