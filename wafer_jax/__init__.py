"""wafer_jax: a JAX emulator of wafer-scale mesh accelerators.

    import wafer_jax as wj
    hw = wj.hardware("wse2", mesh=(64, 64))
    res = wj.run(wj.allreduce.ktree(hw, words=256, k=2), x)

See docs/design.md for the concepts and docs/semantics.md for the machine.
"""

import importlib
from typing import TYPE_CHECKING

from wafer_jax import _quiet_xla, step  # noqa: F401 (first: it counts before jax is imported)
from wafer_jax._version import __version__
from wafer_jax.builder import ProgramBuilder
from wafer_jax.collectives import (
    allgather,
    allreduce,
    alltoall,
    broadcast,
    gather,
    gemv,
    kv,
    reduce,
    scatter,
    stencil,
    transpose,
)
from wafer_jax.collectives import gemms as gemm
from wafer_jax.errors import WaferError
from wafer_jax.events import Kernel, Register, Slice, Tile
from wafer_jax.execute import Estimate, estimate, run
from wafer_jax.faults import Fault, FaultError
from wafer_jax.hardware import RAMP, E, HardwareSpec, N, S, W, hardware, load_spec, preset_names
from wafer_jax.jitter import Jitter, replicate
from wafer_jax.mesh_state import WaferState, initial_state
from wafer_jax.plmr import PLMR, plmr
from wafer_jax.program import Program
from wafer_jax.program_file import load_program, save_program
from wafer_jax.report.deadlock import deadlock_sentence, plot_deadlock
from wafer_jax.report.debugger import Debugger
from wafer_jax.report.recorder import record
from wafer_jax.report.recording import Recording
from wafer_jax.report.route_map import plot_routes
from wafer_jax.report.stall_pictures import plot_compare
from wafer_jax.report.stalls import compare
from wafer_jax.report.validation import validate
from wafer_jax.result import Result
from wafer_jax.snapshot import snapshot
from wafer_jax.views import queues, threads

if TYPE_CHECKING:
    from wafer_jax import models, runtime
    from wafer_jax.report.audit import audit
    from wafer_jax.report.audit_result import Audit
    from wafer_jax.report.experiments import experiment
    from wafer_jax.report.reproduction import reproduce
    from wafer_jax.runtime.sweep import sweep

__all__ = [
    "PLMR",
    "RAMP",
    "Audit",
    "Debugger",
    "E",
    "Estimate",
    "Fault",
    "FaultError",
    "HardwareSpec",
    "Jitter",
    "Kernel",
    "N",
    "Program",
    "ProgramBuilder",
    "Recording",
    "Register",
    "Result",
    "S",
    "Slice",
    "Tile",
    "W",
    "WaferError",
    "WaferState",
    "__version__",
    "allgather",
    "allreduce",
    "alltoall",
    "audit",
    "broadcast",
    "compare",
    "deadlock_sentence",
    "estimate",
    "experiment",
    "gather",
    "gemm",
    "gemv",
    "hardware",
    "initial_state",
    "kv",
    "load_program",
    "load_spec",
    "models",
    "plmr",
    "plot_compare",
    "plot_deadlock",
    "plot_routes",
    "preset_names",
    "queues",
    "record",
    "reduce",
    "replicate",
    "reproduce",
    "run",
    "runtime",
    "save_program",
    "scatter",
    "snapshot",
    "stencil",
    "step",
    "sweep",
    "threads",
    "transpose",
    "validate",
]


def __getattr__(name: str):
    """Import these on first use: models bring flax and the tokenizers along, tables pandas."""
    if name in ("models", "runtime"):
        return importlib.import_module(f"wafer_jax.{name}")
    if name in ("Audit", "audit"):
        return getattr(importlib.import_module("wafer_jax.report.audit"), name)
    if name == "experiment":
        return importlib.import_module("wafer_jax.report.experiments").experiment
    if name == "reproduce":
        return importlib.import_module("wafer_jax.report.reproduction").reproduce
    if name == "sweep":
        return importlib.import_module("wafer_jax.runtime.sweep").sweep
    raise AttributeError(f"module 'wafer_jax' has no attribute {name!r}")
