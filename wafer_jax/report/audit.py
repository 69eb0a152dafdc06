"""The PLMR audit: what an algorithm asks of a mesh, measured from the programs it builds.

Colours, queues, SRAM and the device's mesh are lifted for building, so that growth beyond them is
seen; where a size needs more than the machine has, the audit says so.
"""

from collections.abc import Callable, Sequence
from typing import Any

from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec, hardware
from wafer_jax.program import Program
from wafer_jax.report.audit_growth import growth
from wafer_jax.report.audit_measure import measure
from wafer_jax.report.audit_result import FITTED, Audit, Row
from wafer_jax.report.audit_subject import Mesh, Subject, algorithm, function

Progress = Callable[[str], None]

_LIFTED_COLORS, _LIFTED_QUEUES, _LIFTED_BYTES, _LIFTED_SIDE = 1 << 12, 1 << 10, 1 << 30, 1 << 14


def audit(
    what: str | Program | Callable[[HardwareSpec], Program],
    sizes: Sequence[int] | None = None,
    *,
    hw: HardwareSpec | None = None,
    mesh: Mesh | None = None,
    progress: Progress | None = None,
    **parameters: Any,
) -> Audit:
    """Measure PLMR (WaferLLM, OSDI'25, section 3) from programs.

    Args:
      what: The name of an algorithm, as sweeps call it; a function that builds a program for a
        machine; or one program, which is measured alone.
      sizes: N of each program, increasing; some powers of two by default.
      hw: Machine; WSE-2 by default. Its budgets are lifted for building, and marked.
      mesh: "square" (N x N PEs) or "line" (1 x N); by default what suits the algorithm.
      progress: Called with words about how far the audit is.
      parameters: For the algorithm. The problem stays the same over the sweep: sides of dense
        operands are 8 times the largest N unless given, words per PE the largest N.

    Raises:
      WaferError: Unknown names; sizes that are too large; a program that cannot end.
    """
    if isinstance(what, Program):
        if sizes is not None or mesh is not None or parameters:
            raise WaferError("audit: a program is measured as it is: give no sizes or parameters")
        row = Row(size=None, mesh=what.hw.mesh, measure=measure(what, _events(progress, what.name)))
        return Audit(
            name=what.name,
            hw=hw or what.hw,
            parameters={},
            operand_bytes=None,
            rows=(row,),
            growth={},
        )
    hw = hw or hardware()
    make = algorithm if isinstance(what, str) else function
    subject = make(what, sizes, mesh, parameters)  # pyright: ignore[reportArgumentType]
    rows = tuple(_row(subject, hw, size, progress) for size in subject.sizes)
    found = {name: [row.value(name) for row in rows] for name in FITTED}
    fits = {
        name: growth(subject.sizes, [v for v in values if v is not None])
        for name, values in found.items()
        if None not in values
    }
    return Audit(
        name=subject.name,
        hw=hw,
        parameters=subject.parameters,
        operand_bytes=subject.operand_bytes,
        rows=rows,
        growth={name: fit for name, fit in fits.items() if fit is not None},
    )


def lifted(hw: HardwareSpec, mesh: tuple[int, int]) -> HardwareSpec:
    """A machine without budgets of colours, queues, SRAM and PEs, for building alone."""
    many = lambda depths: depths * (_LIFTED_QUEUES // len(depths))
    return hw.replace(
        mesh=mesh,
        device_mesh=(_LIFTED_SIDE, _LIFTED_SIDE),
        colors=_LIFTED_COLORS,
        input_queue_depths=many(hw.input_queue_depths),
        output_queue_depths=many(hw.output_queue_depths),
        sram_bytes=_LIFTED_BYTES,
    )


def _row(subject: Subject, hw: HardwareSpec, size: int, progress: Progress | None) -> Row:
    free = lifted(hw, subject.shape(size))
    say = _events(progress, f"{subject.name}, N = {size}")
    aligned = subject.build_aligned
    try:
        return Row(
            size=size,
            mesh=free.mesh,
            measure=measure(subject.build(free, size), say),
            aligned=None if aligned is None else measure(aligned(free, size), say),
        )
    except WaferError as error:
        raise WaferError(f"audit of {subject.name} at N = {size}: {error}") from None


def _events(progress: Progress | None, what: str) -> Callable[[int], None] | None:
    if progress is None:
        return None
    progress(what)
    return lambda events: progress(f"{what}: {events:,} events")
