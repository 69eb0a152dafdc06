"""Vector instructions of one core, from the constants of the presets.

Loops of scalar code around them are not emulated: every instruction of such a loop counts as one
that stands alone (``launch_cycles``).
"""

import re
from collections.abc import Callable

from wafer_jax.hardware import HardwareSpec
from wafer_jax.report.published import Bar, Family, NotExpressible, Ours, PublishedPoint

ADD_LATENCY_CYCLES = 2
"""Until an addition's result is there (WSE-3 characterisation notes: dependent additions)."""
DTYPES = {"fp32": "float32", "fp16": "float16"}


def local_product_cycles(hw: HardwareSpec, instructions: int, elements: int) -> float:
    """A scalar loop of float32 multiply-adds on strided vectors, whose elements share a bank."""
    one = hw.launch_cycles + hw.vector_setup_cycles
    one += hw.bank_conflict_factor * hw.fma_cycles(elements)
    return instructions * one


def _local_product(hw: HardwareSpec, point: PublishedPoint) -> Ours:
    """Kt M multiply-adds of Nt elements: a tile [Nt, Kt] times [Kt, M]."""
    square = re.search(r"\(tile (\d{1,6})x(\d{1,6})\)", point.size)
    tall, deep = (
        map(int, square.groups()) if square else (point.number("Nt"), point.number("Kt"))
    )  # fmt: skip
    return _cost(local_product_cycles(hw, deep * point.number("M"), tall))


def _alignment(hw: HardwareSpec, point: PublishedPoint) -> Ours:
    """The nearest of three variants, which the source does not tell apart: operands in one bank,
    in different banks, or as wide as the memory's port.
    """
    n = point.number("extent")
    fma = hw.fma_cycles(n)
    variants = (
        hw.vector_setup_cycles + hw.bank_conflict_factor * fma,
        hw.vector_setup_cycles + fma,
        hw.copy_cycles(n),
    )
    constants = ("bank_conflict_factor", "fma32_cycles", "copy_bytes_per_cycle")
    nearest = min(range(3), key=lambda i: abs(variants[i] - point.value))
    return _cost(variants[nearest], constants[nearest])


def _rate(hw: HardwareSpec, point: PublishedPoint) -> Ours:
    """Elements per cycle of long vectors."""
    kind, dtype = point.experiment.split("_")[:2]
    n, dtype = 4096, DTYPES[dtype]
    if kind == "copy":
        cycles = hw.copy_cycles(n, dtype) - hw.vector_setup_cycles
        return _cost(n / cycles, "copy_bytes_per_cycle")
    if dtype == "float16":
        return _cost(n / hw.fma_cycles(n, dtype), "vector_group_cycles")
    # The alignment of the published figure is not stated: it is that of operands in one bank.
    return _cost(n / (hw.bank_conflict_factor * hw.fma_cycles(n)))


def _bank_conflict(hw: HardwareSpec, point: PublishedPoint) -> Ours:
    return _cost(hw.bank_conflict_factor, "bank_conflict_factor")


def _addition(hw: HardwareSpec, point: PublishedPoint) -> Ours:
    """From dispatch to the last element: the groups one after another, then one addition."""
    groups = hw.fma_cycles(point.number("n"), "float16")
    return _cost(ADD_LATENCY_CYCLES + groups, "vector_group_cycles")


def _lone_instruction(hw: HardwareSpec, point: PublishedPoint) -> Ours:
    return _cost(hw.launch_cycles + hw.fma_cycles(point.number("n"), "float16"))


def _cost(value: float, calibrated: str = "") -> Ours:
    return Ours(value=value, level="cost", calibrated=calibrated)


MODELS: dict[str, Callable[[HardwareSpec, PublishedPoint], Ours]] = {
    r"gemm_local_tile_fmacs": _local_product,
    r"dsd_vector_op_alignment_sweep": _alignment,
    r"(copy|fma)_fp(16|32)_rate(_sim)?": _rate,
    r"bank_conflict_penalty": _bank_conflict,
    r"dsd_add16_completion": _addition,
    r"dsd_fmach_single_dispatch": _lone_instruction,
}


def _ours(point: PublishedPoint) -> Ours:
    hw = point.machine((1, 1))
    for pattern, model in MODELS.items():
        if re.fullmatch(pattern, point.experiment):
            return model(hw, point)
    raise NotExpressible(f"no vector instruction {point.experiment!r}")


FAMILY = Family(
    name="vector",
    experiments="|".join(MODELS),
    ours=_ours,
    bar=Bar(median=5.0),
)
