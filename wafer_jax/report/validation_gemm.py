"""MeshGEMM of WaferLLM's code on the vendor's WSE-3 simulator, by the closed form of `gemm`.

A public fork (junesookang/WaferLLM) swept P x P PEs with K = N = 8 P: mean cycles per repeat, with
the product of two blocks made L = 0, 1 or 2 times a step. As in that code A is aligned on chip and
B by the host, and the last step shifts, too. A repeat also runs tasks outside of the steps, which
start it, zero the result and take the time.
"""

import re

from wafer_jax.collectives import gemm
from wafer_jax.collectives.kernels import gemm_cycles
from wafer_jax.report.published import Bar, Family, NotExpressible, Ours, PublishedPoint

REPEAT_TASKS = 8
"""Tasks per repeat outside of the steps, fitted to the points with L = 0 and one row per PE."""


def _ours(point: PublishedPoint) -> Ours:
    variant = re.fullmatch(r"MeshGEMM_colmajor_L(\d)_C1", point.experiment)
    if variant is None:
        raise NotExpressible("MeshGEMM_colmajor_Ln_C1 is known: the streams cannot be switched off")
    if point.dtype != "fp16":
        raise NotExpressible(f"MeshGEMM is known for fp16, not {point.dtype!r}")
    hw, products = point.machine(), int(variant[1])
    m, k, n = (point.number(name) for name in "MKN")
    layout = gemm.layout_of(hw.mesh, m, k, n)
    product = gemm_cycles(hw, layout.tile_m, layout.block_k, layout.tile_n, "float16")
    cycles = gemm.cost(
        hw, m, k, n, align="left", dtype="float16", product_cycles=products * product, home=True
    )
    fitted = "vector_setup_cycles" if products else "repeat tasks"
    return Ours(
        value=cycles + REPEAT_TASKS * hw.task_cycles,
        level="cost",
        calibrated=fitted if layout.tile_m == 1 else "",
    )


FAMILY = Family(
    name="gemm",
    experiments=r"MeshGEMM_colmajor_.*",
    ours=_ours,
    bar=Bar(median=5.0, worst=12.0),
)
