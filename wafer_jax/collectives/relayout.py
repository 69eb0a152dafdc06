"""Re-layout of weights and KV cache between prefill and decode.

WaferLLM (OSDI'25), sections 4.2 and 4.4: prefill has a weight's rows along y (MeshGEMM), decode has
those of W_O and W_out along x, so that one matrix-vector product after the other needs no
transpose; and it has the KV cache balanced over the rows. The paper moves both over the NoC.

The costs assume that words go along x first, then along y, and that the busiest link never idles:
set-up, the latency of the longest way, and the words of that link. They are estimates, and low
ones: no program with so few colours is written yet.

Axes: R rows and C columns of a matrix, r and c of a tile, S slots, T tokens, Y and X of the mesh.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from wafer_jax.collectives.gemm_layout import block_words
from wafer_jax.collectives.kv_shift import held
from wafer_jax.collectives.tiles import Axis, axis_index, tile_matrix, tile_size, untile_matrix
from wafer_jax.collectives.tree_cost import pass_cycles
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec


def apply(
    tiles: jax.Array,
    shape: tuple[int, int],
    *,
    source: Axis = "y",
    target: Axis = "x",
    mesh: tuple[int, int] | None = None,
) -> jax.Array:
    """Cut a tiled matrix anew.

    Args:
      tiles: [..., r, c, Y, X] of a matrix whose rows lie along ``source``.
      shape: (R, C) without padding.
      source: Axis of the mesh along which the rows lie.
      target: Axis along which they shall lie.
      mesh: (Y, X) of the region that takes the tiles, by default the same.

    Returns:
      [..., r', c', Y', X'].

    Raises:
      WaferError: An unknown axis.
    """
    height, width = tiles.shape[-2:]
    function = partial(_cut_anew, shape, source, target, mesh or (height, width))
    for _ in range(tiles.ndim - 4):
        function = jax.vmap(function)
    return function(tiles)


def _cut_anew(
    shape: tuple[int, int], source: Axis, target: Axis, mesh: tuple[int, int], tiles: jax.Array
) -> jax.Array:
    return tile_matrix(untile_matrix(tiles, shape, source), mesh, target)


def balance(tiles: jax.Array, length: jax.Array | int, slots: int, slot_axis: int = 0) -> jax.Array:
    """Spread the KV cache of a prompt over the rows as `kv_shift` keeps it.

    Args:
      tiles: [..., Y, X] as prefill leaves it: token t in row t // l, at place t mod l of the l
        places on ``slot_axis``.
      length: Tokens that are real, at most ``slots`` Y.
      slots: S, places per row of the result.
      slot_axis: Axis of the places.

    Returns:
      The same axes with S places per row, zero where no token is.
    """
    return take_tokens(tiles, held(length, slots, tiles.shape[-2]), slot_axis)


def take_tokens(tiles: jax.Array, number: jax.Array, slot_axis: int = 0) -> jax.Array:
    """Put the tokens of a prompt where a KV cache has them.

    Args:
      tiles: As for `balance`.
      number: [S, Y] int32, the token of every place, negative where there is none.
      slot_axis: Axis of the places.

    Returns:
      The same axes with S places per row, zero where no token is.

    Raises:
      WaferError: An axis of the mesh.
    """
    places = tiles.shape[slot_axis]
    axis = slot_axis % tiles.ndim
    if axis >= tiles.ndim - 2:
        raise WaferError(f"slot_axis {slot_axis} is an axis of the mesh in {tiles.shape}")
    token = jnp.maximum(number, 0)
    where: list = [slice(None)] * tiles.ndim
    where[axis], where[-2] = token % places, token // places
    taken = jnp.where(
        jnp.expand_dims(number >= 0, range(2, tiles.ndim)), tiles[tuple(where)], 0
    )  # [S, Y, ..., X]
    return jnp.moveaxis(jnp.moveaxis(taken, 1, -2), 0, axis)


def cost(
    hw: HardwareSpec,
    rows: int,
    cols: int,
    *,
    source: Axis = "y",
    target: Axis = "x",
    dtype: str = "float32",
) -> int:
    """Cycles to turn a matrix [rows, cols] on its mesh, 0 if it does not turn.

    A mesh row has the matrix rows that one mesh column shall have, so all its tiles but one run
    into that column and from there to all rows. In the first and the last row they come from one
    side: X - 1 tiles over one link; likewise Y - 1 tiles leave along the first and last column.
    """
    if axis_index(source) == axis_index(target) or hw.num_pes == 1:
        return 0
    height, width = hw.mesh if source == "y" else hw.mesh[::-1]
    words = block_words(tile_size(rows, height) * tile_size(cols, width), dtype)
    return stream_cycles(hw, words * (max(hw.mesh) - 1), sum(hw.mesh) - 2)


def balance_cost(
    hw: HardwareSpec, places: int, length: int, elements: int, *, dtype: str = "float32"
) -> int:
    """Cycles of `balance`.

    Both layouts have the tokens in order, so as many cross the border between two rows as the
    layouts differ there in tokens above it.

    Args:
      hw: The machine.
      places: l, tokens per row in prefill.
      length: Tokens that are real.
      elements: Elements of one token's keys and values on one PE.
      dtype: Their type.
    """
    rows = hw.mesh[0]
    border = np.arange(1, rows)
    before = np.minimum(border * places, length)
    after = border * (length // rows) + np.maximum(border - (rows - length % rows), 0)
    crossing = int(np.abs(before - after).max(initial=0))
    if crossing == 0:
        return 0
    token = np.arange(length)
    row = np.searchsorted(after, token, side="right")
    hops = int(np.abs(token // places - row).max())
    return stream_cycles(hw, crossing * block_words(elements, dtype), hops)


def stream_cycles(hw: HardwareSpec, words: int, hops: int) -> int:
    """Cycles until ``words`` have passed the busiest link of ways of up to ``hops`` links."""
    return hw.stream_setup_cycles + pass_cycles(hw, hops) + words
