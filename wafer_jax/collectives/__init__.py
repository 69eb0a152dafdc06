"""Collectives and matrix products: one file per algorithm, each with program, apply and cost.

The namespaces here build programs: ``allreduce.ktree(hw, words=256, k=2)``.
"""

from types import SimpleNamespace

from wafer_jax.collectives import (
    allreduce_ktree,
    allreduce_pipeline,
    allreduce_ring,
    broadcast,
    gemm,
    gemm_transposed,
    gemv,
    gemv_pipeline,
    gemv_ring,
    interleave,
    kv_shift,
    reduce_chain,
    reduce_two_phase,
    relayout,
)

reduce = SimpleNamespace(chain=reduce_chain.program, two_phase=reduce_two_phase.program)
allreduce = SimpleNamespace(
    ktree=allreduce_ktree.program,
    pipeline=allreduce_pipeline.program,
    ring=allreduce_ring.program,
)

__all__ = [
    "allreduce",
    "allreduce_ktree",
    "allreduce_pipeline",
    "allreduce_ring",
    "broadcast",
    "gemm",
    "gemm_transposed",
    "gemv",
    "gemv_pipeline",
    "gemv_ring",
    "interleave",
    "kv_shift",
    "reduce",
    "reduce_chain",
    "reduce_two_phase",
    "relayout",
]
