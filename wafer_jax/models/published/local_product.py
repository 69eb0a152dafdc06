"""Cycles of one core's part of a product, as WaferLLM's kernels compute it."""

import math

from wafer_jax.hardware import DTYPE_BYTES, HardwareSpec
from wafer_jax.models.published.tiles import DTYPE, Product

MAP_CALL_CYCLES = 46
"""What a call of the kernel's ``@map`` costs beside its vector instructions.

MeshGEMM calls it once per contracted element, and it issues a multiply-add per column. The sweeps
behind `HardwareSpec.vector_setup_cycles` always have 8 columns, so they give the sum of a vector's
set-up and an eighth of a call only. The split is fitted to WaferLLM's prefill of LLaMA3-8B and
Qwen2-72B on 480 x 480 (table 3); the other grids of that table are held out of the fit. That calls
count, and that alignment does (`product_cycles`), was found with the whole table in view.
"""
SWEEP_COLUMNS = 8
"""Columns of those sweeps (K = N = 8 P, junesookang/WaferLLM)."""


def product_cycles(hw: HardwareSpec, product: Product) -> int:
    """Cycles of MeshGEMM's local product: one call of the map per contracted element.

    A column of the left tile starts at a boundary of the SIMD width only if its elements fill whole
    groups. Otherwise half the lanes work, as in the sweeps over alignments on the WSE-2 simulator
    (SpMM_Cerebras: 0.5 cycles per float32 element aligned, 1 not).
    """
    lanes = hw.simd_bytes // DTYPE_BYTES[DTYPE]
    per_group = lanes if product.rows % lanes == 0 else lanes // 2
    groups = hw.vector_group_cycles * math.ceil(product.rows / per_group)
    issue = hw.vector_setup_cycles - MAP_CALL_CYCLES / SWEEP_COLUMNS
    return round(product.contracted * (MAP_CALL_CYCLES + product.columns * (issue + groups)))
