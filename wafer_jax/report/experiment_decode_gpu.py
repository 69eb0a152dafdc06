"""WaferLLM's table 8: decode on a WSE-2 against A100s, speed and energy."""

import pandas as pd

from wafer_jax.report import experiment_models_gpu_claims as claims
from wafer_jax.report.experiment import Experiment, Progress, Statement
from wafer_jax.report.experiment_models_gpu import Table, compare

NAME = "waferllm-table-8"
SUMMARY = "Decode of LLaMA3-8B and QWen2-72B on a WSE-2 against A100s: speed and energy"


def experiment(quick: bool, progress: Progress) -> Experiment:
    """Do it; nothing runs on the fabric, so ``quick`` changes nothing."""
    return compare(_TABLE, quick, progress)


def _statements(speeds: pd.DataFrame, energies: pd.DataFrame) -> tuple[Statement, ...]:
    return (
        claims.faster_than_gpus(speeds),
        claims.less_energy(energies, speeds),
        claims.more_gpus(speeds, 3.3, 3.6),
        claims.two_machines(speeds),
    )


_TABLE = Table(
    name=NAME,
    title="Decode on a WSE-2 and on A100s (WaferLLM, table 8)",
    phase="decode",
    statements=_statements,
)
