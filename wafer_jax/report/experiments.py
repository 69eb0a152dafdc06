"""The experiments by name."""

from importlib import import_module
from types import ModuleType

from wafer_jax.arguments import shown
from wafer_jax.errors import WaferError
from wafer_jax.report.experiment import Experiment, Progress

_MODULES = (
    "experiment_gemm",
    "experiment_gemv",
    "experiment_waferllm",
    "experiment_waferllm_prefill",
    "experiment_waferllm_decode",
    "experiment_kv",
    "experiment_gemv_gpu",
    "experiment_prefill_gpu",
    "experiment_decode_gpu",
    "experiment_coordination",
)


def experiment(name: str, *, quick: bool = False, progress: Progress | None = None) -> Experiment:
    """Do a published experiment again.

    Args:
      name: One of `experiment_names`.
      quick: Run little on the fabric; closed forms are evaluated all the same.
      progress: Called with what is done next.

    Returns:
      Its tables, plot and statements: print it, or ``write`` it to a folder.

    Raises:
      WaferError: An unknown name.
    """
    known = _known()
    if not isinstance(name, str) or name not in known:
        raise WaferError(f"unknown experiment {shown(name)}; known are {', '.join(known)}")
    return known[name].experiment(quick, progress or (lambda _: None))


def experiment_names() -> dict[str, str]:
    """Name of each experiment, and what it compares in one line."""
    return {name: module.SUMMARY for name, module in _known().items()}


def _known() -> dict[str, ModuleType]:
    modules = (import_module(f"wafer_jax.report.{name}") for name in _MODULES)
    return {module.NAME: module for module in modules}
