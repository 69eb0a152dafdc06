"""The products at the bulk level: densely, or block by block as the fabric adds them."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.collectives.gemm_layout import (
    Layout,
    columns_of_b,
    cut,
    join,
    layout_of_tiles,
    rows_of_a,
)
from wafer_jax.collectives.kernels import gemm
from wafer_jax.errors import WaferError

Values = Literal["rounds", "dense"]


def bulk_product(
    a: jax.Array,
    b: jax.Array,
    values: Values,
    rounds: Callable[[jax.Array, jax.Array, Layout], jax.Array],
) -> jax.Array:
    """C = A B by ``rounds`` mapped over the leading axes, or as one dense product.

    Args:
      a: [..., m, k, Y, X] tiles of A.
      b: [..., k', n, Y, X] tiles of B; the same leading axes.
      values: "rounds" or "dense".
      rounds: Of tiles without leading axes, and their layout.

    Returns:
      [..., m, n, Y, X] float32.

    Raises:
      WaferError: Tiles that do not fit each other; unknown ``values``.
    """
    layout = layout_of_tiles(a, b)
    if values not in ("rounds", "dense"):
        raise WaferError(f'values={values!r}: choose "rounds" or "dense"')
    if values == "dense":
        product = jnp.matmul(
            join(a), join(b), precision="highest", preferred_element_type=jnp.float32
        )
        return cut(product, layout.mesh)
    function = lambda a, b: rounds(a, b, layout)
    for _ in range(a.ndim - 4):
        function = jax.vmap(function)
    return function(a, b)


def sum_of_blocks(
    a: jax.Array, b: jax.Array, layout: Layout, number: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """One product of blocks per step, added up in the order of the steps.

    Args:
      a: [m, k, Y, X].
      b: [k', n, Y, X].
      layout: Of these tiles.
      number: From a step [] int32 to the blocks [Y, X] int32 that the PEs multiply in it.

    Returns:
      [m, n, Y, X] float32.
    """
    rows, cols = rows_of_a(a, layout), columns_of_b(b, layout)

    def step(s: jax.Array, c: jax.Array) -> jax.Array:
        here = number(s)[None, None]
        a_block = jnp.take_along_axis(rows, here, axis=-1, mode="promise_in_bounds")
        b_block = jnp.take_along_axis(cols, here, axis=-2, mode="promise_in_bounds")
        return gemm(c, a_block, b_block)

    c = jnp.zeros((layout.tile_m, layout.tile_n, *layout.mesh), jnp.float32)
    return lax.fori_loop(0, layout.steps, step, c)
