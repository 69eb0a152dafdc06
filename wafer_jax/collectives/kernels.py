"""Per-PE kernels of the matrix products, and their cycle counts.

Fabric and bulk level call the same functions and must get the same bits. On the fabric a kernel
is vmapped over the PEs that run it; at the bulk level it is called once with the PE axes behind
its own. So every function here accepts any trailing axes "..." (none inside vmap, [Y, X] at the
bulk level) and works elementwise along them.

Products are summed one after another into a float32 accumulator, whatever the storage type. The
compiler contracts each multiply and add to one fused operation; a sum of two bare products could
be contracted either way, and so could a product that the caller adds to something. Hence the
accumulator is always carried by a loop of at least two trips, which leaves one way.

Axes: k contracted, m and n rows and columns of the result, all of one PE's tile.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from wafer_jax.events import Kernel
from wafer_jax.hardware import HardwareSpec

_UNROLLS = (4, 3, 2, 1)
"""Multiply-adds per trip of the loop, the first that leaves no remainder (which XLA would run
apart, at several times the cost) and at least two trips. More than 4 make nothing faster."""


def gemv(x: jax.Array, w: jax.Array) -> jax.Array:
    """Multiply one PE's part of a vector by its tile of the matrix, ``y = x @ w``.

    Args:
      x: [k, ...] part of the vector.
      w: [k, n, ...] tile of the matrix, the same dtype.

    Returns:
      [n, ...] in the dtype of ``x``.
    """
    k, n, *pes = w.shape
    x, w = x.reshape(k, -1), w.reshape(k, n, -1)

    def product(i: jax.Array) -> jax.Array:
        row = lax.dynamic_index_in_dim(w, i, 0, keepdims=False)
        return _f32(lax.dynamic_index_in_dim(x, i, 0)) * _f32(row)

    return accumulate(jnp.zeros(w.shape[1:], jnp.float32), k, product, x.dtype).reshape(n, *pes)


def gemm(c: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """Accumulate one PE's product of tiles, ``c + a @ b``.

    Args:
      c: [m, n, ...] accumulator.
      a: [m, k, ...] tile of the left matrix.
      b: [k, n, ...] tile of the right matrix.

    Returns:
      [m, n, ...] in the dtype of ``c``.
    """
    (m, n, *pes), k = c.shape, b.shape[0]
    a, b = a.reshape(m, k, -1), b.reshape(k, n, -1)

    def product(i: jax.Array) -> jax.Array:
        return _f32(lax.dynamic_index_in_dim(a, i, 1)) * _f32(lax.dynamic_index_in_dim(b, i, 0))

    return accumulate(_f32(c.reshape(m, n, -1)), k, product, c.dtype).reshape(m, n, *pes)


GEMV = Kernel(name="gemv", fn=gemv)
"""``Compute(GEMV, inputs=(x, w), outputs=(y,), ...)``."""

GEMM = Kernel(name="gemm", fn=gemm)
"""``Compute(GEMM, inputs=(c, a, b), outputs=(c,), ...)``."""


def gemv_cycles(hw: HardwareSpec, k: int, n: int, dtype: str = "float32") -> int:
    """Cycles of `gemv` on a [k, n] tile: clear y, then one vector FMAC of length n per row.

    The loop of WaferLLM's MeshGEMV kernel, with `HardwareSpec.vector_cycles` per instruction.
    """
    return math.ceil((1 + k) * hw.vector_cycles(n, dtype))


def gemm_cycles(hw: HardwareSpec, m: int, k: int, n: int, dtype: str = "float32") -> int:
    """Cycles of `gemm` on [m, k] x [k, n] tiles: k * n vector FMACs of length m.

    The loop of WaferLLM's MeshGEMM kernel (one weight times a column of the left matrix per
    instruction), with `HardwareSpec.vector_cycles` per instruction.
    """
    return math.ceil(k * n * hw.vector_cycles(m, dtype))


def clear_cycles(hw: HardwareSpec, elements: int, dtype: str = "float32") -> int:
    """Cycles of one vector instruction that zeroes a contiguous tile."""
    return copy_cycles(hw, elements, dtype)


def copy_cycles(hw: HardwareSpec, elements: int, dtype: str = "float32") -> int:
    """Cycles of one vector instruction that copies a contiguous tile."""
    return math.ceil(hw.copy_cycles(elements, dtype))


def _f32(x: jax.Array) -> jax.Array:
    return x.astype(jnp.float32)


def accumulate(
    acc: jax.Array, k: int, product: Callable[[jax.Array], jax.Array], dtype: jnp.dtype
) -> jax.Array:
    """Add ``product(i)`` for i = 0 .. k-1 to the accumulator, in this order."""

    def body(i: jax.Array, acc: jax.Array) -> jax.Array:
        if k > 1:
            return acc + product(i)
        # A loop of one trip would be inlined: make a second one that changes nothing.
        return jnp.where(i < k, acc + product(jnp.minimum(i, k - 1)), acc)

    trips = max(k, 2)
    unroll = next(u for u in _UNROLLS if trips % u == 0 and trips // u >= 2)
    return lax.fori_loop(0, trips, body, acc, unroll=unroll).astype(dtype)
