"""Published figures that ours stand beside for information only, without a bar."""

import re

from wafer_jax.collectives import broadcast, gemv
from wafer_jax.errors import WaferError
from wafer_jax.execute import run
from wafer_jax.hardware import HardwareSpec
from wafer_jax.report.published import Family, NotExpressible, Ours, PublishedPoint
from wafer_jax.report.validation_p2p import latency, message
from wafer_jax.report.validation_vector import local_product_cycles

GRIDS = (60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 660, 720, 750)
"""Sides of the square grids of WaferLLM's evaluation, and those between."""
PHASES = (1, 2, 3)


def best_product_cycles(hw: HardwareSpec, rows: int, cols: int) -> int:
    """Fewest cycles of a float16 MeshGEMV over grids and phases of its K-tree.

    The source gives neither the grid nor the element type.
    """
    found = []
    for side in GRIDS:
        for k in PHASES:
            try:
                at = hw.replace(mesh=(side, side))
                found.append(gemv.cost(at, rows, cols, k=k, broadcast=False, dtype="float16"))
            except WaferError:
                continue
    if not found:
        raise NotExpressible(f"no grid of {hw.name} takes the matrix")
    return min(found)


def _product(point: PublishedPoint) -> Ours:
    matrix = re.fullmatch(r"GEMV \[1,(\d{1,6}K?)\]x\[\1,(\d{1,6}K?)\]", point.experiment)
    if matrix is None or point.unit != "ms" or point.dtype not in ("", "fp16"):
        raise NotExpressible("of a GEMV, float16 times in ms of [1,K]x[K,N] are known")
    rows, cols = (
        int(size.removesuffix("K")) << 10 * size.endswith("K") for size in matrix.groups()
    )
    hw = point.machine((1, 1))
    cycles = best_product_cycles(hw, rows, cols)
    return Ours(value=1e3 * hw.seconds(cycles), level="cost")


def _summa(point: PublishedPoint) -> Ours:
    """Every step broadcasts a block along the rows and one along the columns, then multiplies."""
    if point.metric != "compute_4_steps":
        raise NotExpressible("includes the host's traffic, which is not emulated")
    hw, tile = point.machine(), point.number("Nt")
    words, steps = tile * tile, hw.mesh[0]
    spread = broadcast.cost(hw, words, "x") + broadcast.cost(hw, words, "y")
    return Ours(value=steps * (spread + local_product_cycles(hw, words, tile)), level="cost")


def _per_wavelet(point: PublishedPoint) -> Ours:
    hw = point.machine((1, 2))
    long, short = (latency(hw, "west", 1, words) for words in (65, 1))
    return Ours(value=(long - short) / 64, level="fabric")


def _turn(point: PublishedPoint) -> Ours:
    """What a corner adds to a path of four hops."""
    hw = point.machine((3, 5))
    ends = ((0, 4), (2, 2))
    straight, bent = (
        run(message(hw, ((0, 0), end), 1, core=False), values="none").cycles for end in ends
    )
    return Ours(value=bent - straight, level="fabric")


MODELS = {
    r"GEMV \[.*": _product,
    r"SUMMA_manual_4x4": _summa,
    r"per_wavelet": _per_wavelet,
    r"turn_cost": _turn,
}


def _ours(point: PublishedPoint) -> Ours:
    model = next(m for pattern, m in MODELS.items() if re.fullmatch(pattern, point.experiment))
    return model(point)


FAMILY = Family(name="informational", experiments="|".join(MODELS), ours=_ours)
