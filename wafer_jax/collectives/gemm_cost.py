"""Cycles of MeshGEMM: aligning, then L steps on the interleaved rings (see `compute_shift_cost`).

Two hops away or one, a block's first words are there before its stream in is launched, so rings of
all lengths take the same step, as long as a launch takes longer than the two hops.
"""

import math
from dataclasses import dataclass

from wafer_jax.arguments import shown
from wafer_jax.collectives.checked import checked
from wafer_jax.collectives.compute_shift_cost import align_cycles, looped, step_cycles
from wafer_jax.collectives.gemm_layout import Layout, aligned_on_chip, block_words, layout_of
from wafer_jax.collectives.kernels import clear_cycles, gemm_cycles
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec


@dataclass(frozen=True)
class Parts:
    """Where the cycles of a product go.

    Attributes:
      compute: Clearing C and multiplying.
      align: Skewing A and B on chip.
      exposed: Transfers that the products do not hide, launches and control.
    """

    compute: int
    align: int
    exposed: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.compute + self.align + self.exposed


@checked
def cost(
    hw: HardwareSpec,
    m: int,
    k: int,
    n: int,
    *,
    align: str = "chip",
    dtype: str = "float32",
    product_cycles: int | None = None,
    home: bool = False,
) -> int:
    """Cycles of ``gemm.program`` with the same arguments."""
    options = {"product_cycles": product_cycles, "home": home}
    return cost_parts(hw, m, k, n, align=align, dtype=dtype, **options).total


@checked
def cost_parts(
    hw: HardwareSpec,
    m: int,
    k: int,
    n: int,
    *,
    align: str = "chip",
    dtype: str = "float32",
    product_cycles: int | None = None,
    home: bool = False,
) -> Parts:
    """Cycles of ``gemm.program`` with the same arguments, by what they are for.

    Raises:
      WaferError: A size below 1, an unknown ``align``, negative ``product_cycles``.
    """
    layout = layout_of(hw.mesh, m, k, n)
    if product_cycles is None:
        product_cycles = gemm_cycles(hw, layout.tile_m, layout.block_k, layout.tile_n, dtype)
    if product_cycles < 0:
        raise WaferError(f"product_cycles={shown(product_cycles)}: choose at least 0")
    compute = clear_cycles(hw, layout.tile_m * layout.tile_n) + layout.steps * product_cycles
    aligning = align_rounds_cycles(hw, layout, align, dtype)
    shifts = layout.steps if home else layout.steps - 1
    steps = shifts_cycles(hw, layout, shifts, product_cycles, dtype)
    return Parts(compute, aligning, steps - shifts * product_cycles)


def shifts_cycles(
    hw: HardwareSpec, layout: Layout, shifts: int, product_cycles: int, dtype: str
) -> int:
    """Cycles of the steps that shift."""
    step = step_cycles(hw, moving_words(layout, dtype), product_cycles)
    return looped(step, period_of(layout), shifts)


def moving_words(layout: Layout, dtype: str) -> list[int]:
    """Words of a block of A and of B, of those that move."""
    return [
        block_words(size, dtype)
        for size, length in zip(block_sizes(layout), layout.mesh[::-1], strict=True)
        if length > 1
    ]


def period_of(layout: Layout) -> int:
    """Steps after which the buffers play the same parts again."""
    height, width = layout.mesh
    return math.lcm(layout.a_blocks + (width > 1), layout.b_blocks + (height > 1))


def align_rounds_cycles(hw: HardwareSpec, layout: Layout, align: str, dtype: str) -> int:
    """Cycles of the rounds on chip that move whole PE tiles, A's and then B's."""
    height, width = layout.mesh
    a_size, b_size = block_sizes(layout)
    total = 0
    plan = (
        (width, layout.a_rounds, layout.a_blocks, a_size),
        (height, layout.b_rounds, layout.b_blocks, b_size),
    )
    for on_chip, (length, rounds, blocks, size) in zip(aligned_on_chip(align), plan, strict=True):
        if not on_chip:
            continue
        words = blocks * block_words(size, dtype) if length > 1 else 0
        total += looped(align_cycles(hw, words, blocks * size, dtype), 1, rounds)
    return total


def block_sizes(layout: Layout) -> tuple[int, int]:
    """Elements of a block of A and of B."""
    return layout.tile_m * layout.block_k, layout.block_k * layout.tile_n
