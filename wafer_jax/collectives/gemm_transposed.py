"""Transposed MeshGEMM: C = A B^T, without a transpose and without alignment.

WaferLLM (OSDI'25), section 5.4 (dist-GEMM-T), used for Q K^T: A and B lie alike, rows along y and
the contracted columns along x. B's tiles go round the interleaved ring of their column, two hops at
most per step. After each of Y steps a PE multiplies its tile of A by the B tile it has now, and
chains along x sum the partial products into the column where that part of C belongs, so the root
moves with B's tile (the paper says "reduce-add"; that its root rotates is read from the authors'
code).

Bulk level and cost only: the program is not written yet.
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wafer_jax.collectives.gemm_cost import transfer_cycles
from wafer_jax.collectives.gemm_layout import block_words, cut, join
from wafer_jax.collectives.interleave import order, position
from wafer_jax.collectives.kernels import gemm, gemm_cycles
from wafer_jax.collectives.tiles import tile_matrix, tile_size
from wafer_jax.collectives.tree import whole
from wafer_jax.collectives.tree_cost import tree_cycles
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec


def tile_operands(a: jax.Array, b: jax.Array, mesh: tuple[int, int]) -> tuple[jax.Array, jax.Array]:
    """Cut dense matrices into tiles that the transposed MeshGEMM takes, padded with zeros.

    Args:
      a: [M, K].
      b: [N, K].
      mesh: (Y, X).

    Returns:
      a [m, k, Y, X] and b [n, k, Y, X] with n Y a multiple of lcm(Y, X).

    Raises:
      WaferError: Matrices that do not fit each other.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise WaferError(f"transposed MeshGEMM: cannot multiply {a.shape} by {b.shape} transposed")
    b = jnp.pad(b, ((0, -b.shape[0] % math.lcm(*mesh)), (0, 0)))
    return tile_matrix(a, mesh), tile_matrix(b, mesh)


def apply(
    a: jax.Array, b: jax.Array, *, values: Literal["rounds", "dense"] = "rounds"
) -> jax.Array:
    """Bulk level of C = A B^T.

    Args:
      a: [..., m, k, Y, X] tiles of A.
      b: [..., n, k, Y, X] tiles of B, the same leading axes; X divides n Y.
      values: "rounds" sums as the fabric would: over a PE's own columns first, then along the
        chains into the root. "dense" is one dense product: faster, another order of additions.

    Returns:
      [..., m, n Y / X, Y, X] float32: C's columns, which are B's rows, cut along x.

    Raises:
      WaferError: Tiles that do not fit each other; unknown ``values``.
    """
    rows, width = b.shape[-4] * b.shape[-2], b.shape[-1]
    if a.shape[-3:] != b.shape[-3:] or rows % width:
        raise WaferError(
            f"transposed MeshGEMM: a {a.shape} and b {b.shape} must agree in the last three axes, "
            f"and b's {rows} rows divide into {width} columns: cut them with tile_operands"
        )
    if values == "dense":
        return cut(_matmul(join(a), join(b)), (a.shape[-2], a.shape[-1]))
    if values != "rounds":
        raise WaferError(f'values={values!r}: choose "rounds" or "dense"')
    function = _rounds
    for _ in range(a.ndim - 4):
        function = jax.vmap(function)
    return function(a, b)


def _matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    b = jnp.swapaxes(b, -1, -2)
    return jnp.matmul(a, b, precision="highest", preferred_element_type=jnp.float32)


def _rounds(a: jax.Array, b: jax.Array) -> jax.Array:
    (m, _, height, width), n = a.shape, b.shape[0]
    tiles = jnp.asarray(_tile_numbers(height))
    steps = math.lcm(height, width)
    per_column, per_tile = steps // width, steps // height
    part = jnp.arange(steps, dtype=jnp.int32).reshape(width, per_column).T[:, None]  # [q, 1, X]

    def step(s: jax.Array, c: jax.Array) -> jax.Array:
        b_now = jnp.swapaxes(jnp.take(b, tiles[s], axis=2), 0, 1)
        product = gemm(jnp.zeros((m, n, height, width), jnp.float32), a, b_now)
        total = _sum_to_every_root(product).reshape(m, per_tile, -1, height, width)
        for i in range(per_tile):
            here = part == (tiles[s] * per_tile + i)[None, :, None]  # [q, Y, X]
            c = jnp.where(here[None, :, None], total[:, i, None], c)
        return c

    c = jnp.zeros((m, per_column, n * height // steps, height, width), jnp.float32)
    return lax.fori_loop(0, height, step, c).reshape(m, -1, height, width)


def _tile_numbers(height: int) -> np.ndarray:
    """[Y, Y] int32: which tile of B each row holds in each step."""
    place = position(height) - np.arange(height)[:, None]
    return order(height)[place % height].astype(np.int32)


def _sum_to_every_root(parts: jax.Array) -> jax.Array:
    """[..., X] to [..., X]: what the chains along x would sum into each column as the root.

    The root adds the shorter half-chain first, as `tree` does; words run from the far ends inwards.
    """
    width = parts.shape[-1]
    if width == 1:
        return parts
    line = jnp.moveaxis(parts, -1, 0)
    west, east = _running_sums(line), _running_sums(line[::-1])[::-1]
    nothing = jnp.zeros_like(line[:1])
    west = jnp.concatenate([nothing, west[:-1]])
    east = jnp.concatenate([east[1:], nothing])
    at = lambda mask: mask.reshape(-1, *[1] * (line.ndim - 1))
    root = np.arange(width)
    west_first = at(2 * root <= width - 1)
    near, far = jnp.where(west_first, west, east), jnp.where(west_first, east, west)
    has_near = at((root > 0) & (root < width - 1))
    total = jnp.where(has_near, line + near, line) + far
    return jnp.moveaxis(total, 0, -1)


def _running_sums(line: jax.Array) -> jax.Array:
    """[X, ...]: sums of the first 1, 2, ... entries, one after another."""

    def add(word: jax.Array, own: jax.Array) -> tuple[jax.Array, jax.Array]:
        word = own + word
        return word, word

    return jnp.concatenate([line[:1], lax.scan(add, line[0], line[1:])[1]])


def cost(hw: HardwareSpec, m: int, k: int, n: int, *, dtype: str = "float32") -> int:
    """Cycles of C = A B^T for A [m, k] and B [n, k]: an estimate, no program to compare with yet.

    Every step takes the larger of its local product with the chains behind it, and the transfer of
    B's tile (two cycles of the issue slot per word), plus control as in `gemm_cost`. Rows have
    their slow steps (a root at the end of the row) at different times and wait for each other only
    to hand tiles on, so a row's own sum over all roots counts, not the slowest root in every step.
    """
    height, width = hw.mesh
    steps = math.lcm(height, width)
    tile_m, tile_k, part_n = tile_size(m, height), tile_size(k, width), tile_size(n, steps)
    per_tile = steps // height
    product = gemm_cycles(hw, tile_m, tile_k, part_n * per_tile, dtype)
    words = block_words(part_n * per_tile * tile_k, dtype)
    around = max(6, 5 + hw.stream_setup_cycles) + 4
    transfer = around + transfer_cycles(hw, [words], False) if height > 1 else 0
    sums = [_chains_cycles(hw, tile, part_n * tile_m) for tile in range(height)]
    return sum(max(product + chains + 3, transfer) for chains in sums)


def _chains_cycles(hw: HardwareSpec, tile: int, words: int) -> int:
    """Cycles to sum the partial products with one tile of B, ``words`` for each part of it.

    Parts that belong to several columns follow each other down the chains: the longest chain's
    latency counts once, the others' words and set-up come on top.
    """
    height, width = hw.mesh
    if width == 1:
        return 0
    steps = math.lcm(height, width)
    per_tile, per_column = steps // height, steps // width
    parts = np.arange(tile * per_tile, (tile + 1) * per_tile) // per_column
    roots, counts = np.unique(parts, return_counts=True)
    sizes = [(int(root), int(count) * words) for root, count in zip(roots, counts, strict=True)]
    each = [(tree_cycles(hw, whole(width, root), width, size), size) for root, size in sizes]
    *others, (longest, _) = sorted(each)
    return longest + sum(hw.stream_setup_cycles + size for _, size in others)
