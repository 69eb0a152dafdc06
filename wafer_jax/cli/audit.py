"""``wafer-jax audit``: the PLMR properties of an algorithm or of a program file."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wafer_jax.cli.inputs import machine
from wafer_jax.cli.options import Json, Preset
from wafer_jax.cli.output import Output
from wafer_jax.errors import WaferError

if TYPE_CHECKING:
    from wafer_jax.hardware import HardwareSpec

TABLES = ("gemm-table", "gemv-table")
_OWN = ("what", "sizes", "hw", "mesh", "progress")
"""Parameters of `wafer_jax.audit` itself."""


def audit(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="An algorithm ('gemm', 'allreduce.ktree', ...), a file of wj.save_program, or "
            "'gemm-table' and 'gemv-table': WaferLLM's tables, measured.",
        ),
    ],
    sizes: Annotated[
        str | None,
        typer.Option("--sizes", metavar="4,8,16", help="N of each program, increasing."),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE",
                     help="A parameter of the algorithm, such as words=64; repeat for more."),
    ] = None,
    mesh: Annotated[
        str | None,
        typer.Option("--mesh", metavar="line|square",
                     help="1 x N or N x N PEs; by default what suits the algorithm."),
    ] = None,
    preset: Preset = "wse2",
    json: Json = False,
) -> None:  # fmt: skip
    """Measure PLMR (parallelism, latency, memory, routes) from programs, over sizes N.

    Budgets of colours, queues and SRAM are lifted for building, and marked where they break.
    """
    from wafer_jax.report.audit import audit as measure
    from wafer_jax.runtime.algorithms import ALGORITHMS

    out = Output(json)
    numbers, chosen = _sizes(sizes), _parameters(parameters or [])
    hw = machine(preset, "1x1")
    if what in TABLES:
        if chosen or mesh:
            raise WaferError(f"audit {what}: takes no --set and no --mesh")
        _table(out, what, numbers, hw)
        return
    subject: Any = what
    if what not in ALGORITHMS:
        if not Path(what).exists():
            raise WaferError(
                f"{what!r} is no algorithm ({', '.join(ALGORITHMS)}), no table "
                f"({', '.join(TABLES)}), and no file"
            )
        if numbers or chosen or mesh:
            raise WaferError(f"audit {what}: a program file takes no --sizes, --set and --mesh")
        subject = _program(Path(what))
        hw = subject.hw
    with out.progress(f"auditing {what}") as report:
        found = measure(subject, numbers, hw=hw, mesh=mesh, progress=report, **chosen)  # pyright: ignore[reportArgumentType]
    out.show(*found.tables())
    _finish(out, hw, found.record())


def _table(out: Output, what: str, sizes: list[int] | None, hw: "HardwareSpec") -> None:
    from wafer_jax.report.audit_subject import LINE_SIZES
    from wafer_jax.report.audit_tables import gemm_table, gemv_table, ktree_table

    with out.progress(f"auditing {what}") as report:
        if what == "gemm-table":
            found = [gemm_table(hw, sizes, report)]
        else:
            largest = (sizes or LINE_SIZES)[-1]
            found = [gemv_table(hw, sizes, report), ktree_table(hw, largest, report)]
    for one in found:
        out.show(*one.tables(), "")
    _finish(out, hw, {"tables": [one.record() for one in found]})


def _finish(out: Output, hw: "HardwareSpec", record: dict[str, Any]) -> None:
    from wafer_jax.report.provenance import provenance

    origin = provenance(hw, level="fabric")
    out.finish("audit", origin | {"mesh": None}, record)


def _program(file: Path):
    from wafer_jax.collectives.kernels import GEMM, GEMV
    from wafer_jax.program_file import load_program

    return load_program(file, kernels=[GEMV, GEMM])[0]


def _sizes(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d{1,6}", part, re.ASCII) for part in parts):
        raise WaferError(f"--sizes {text[:40]!r}: expected numbers with commas, such as 4,8,16")
    return [int(part) for part in parts]


def _parameters(texts: list[str]) -> dict[str, Any]:
    """NAME=VALUE as whole numbers, true and false, lists of whole numbers, or texts."""
    chosen = {}
    for text in texts:
        match = re.fullmatch(r"([a-z_]\w{0,30})=(.{1,100})", text, re.ASCII)
        if match is None:
            raise WaferError(f"--set {text[:40]!r}: expected NAME=VALUE, such as words=64")
        name, value = match.groups()
        if name in chosen:
            raise WaferError(f"--set {name}: given twice")
        if name in _OWN:
            raise WaferError(f"--set {name}: is no parameter of an algorithm")
        chosen[name] = _value(value)
    return chosen


def _value(text: str) -> int | bool | str | tuple[int, ...]:
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d{1,9}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"\d{1,9}(,\d{1,9})*,?", text, re.ASCII):
        return tuple(int(part) for part in text.split(",") if part)
    return text
