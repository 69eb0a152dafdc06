"""Collectives and matrix products: one file per algorithm, each with program, apply and cost.

The namespaces here build programs: ``allreduce.ktree(hw, words=256, k=2)``.
"""

from types import SimpleNamespace

from wafer_jax.collectives import (
    allgather,
    allgather_relayed,
    allreduce_2d,
    allreduce_ktree,
    allreduce_pipeline,
    allreduce_ring,
    alltoall,
    broadcast,
    broadcast_2d,
    gather,
    gemm,
    gemm_allgather,
    gemm_cannon,
    gemm_summa,
    gemm_summa_segments,
    gemm_transposed,
    gemv,
    gemv_pipeline,
    gemv_ring,
    interleave,
    kv_concat,
    kv_shift,
    reduce_2d,
    reduce_auto_gen,
    reduce_binary_tree,
    reduce_chain,
    reduce_snake,
    reduce_star,
    reduce_two_phase,
    relayout,
    scatter,
    stencil,
    transpose,
)

reduce = SimpleNamespace(
    auto_gen=reduce_auto_gen.program,
    binary_tree=reduce_binary_tree.program,
    chain=reduce_chain.program,
    rows_then_columns=reduce_2d.program,
    snake=reduce_snake.program,
    star=reduce_star.program,
    two_phase=reduce_two_phase.program,
)
allreduce = SimpleNamespace(
    ktree=allreduce_ktree.program,
    pipeline=allreduce_pipeline.program,
    ring=allreduce_ring.program,
    rows_then_columns=allreduce_2d.program,
)
gemms = SimpleNamespace(
    **{name: getattr(gemm, name) for name in gemm.__all__},
    allgather=gemm_allgather.program,
    cannon=gemm_cannon.program,
    summa=gemm_summa.program,
    summa_segments=gemm_summa_segments.program,
    transposed=gemm_transposed.program,
)
"""What the package exports as ``gemm``: MeshGEMM's functions, and the other products' programs."""
kv = SimpleNamespace(concat=kv_concat.program, shift=kv_shift.program)

__all__ = [
    "allgather",
    "allgather_relayed",
    "allreduce",
    "allreduce_2d",
    "allreduce_ktree",
    "allreduce_pipeline",
    "allreduce_ring",
    "alltoall",
    "broadcast",
    "broadcast_2d",
    "gather",
    "gemm",
    "gemm_allgather",
    "gemm_cannon",
    "gemm_summa",
    "gemm_summa_segments",
    "gemm_transposed",
    "gemms",
    "gemv",
    "gemv_pipeline",
    "gemv_ring",
    "interleave",
    "kv",
    "kv_concat",
    "kv_shift",
    "reduce",
    "reduce_2d",
    "reduce_auto_gen",
    "reduce_binary_tree",
    "reduce_chain",
    "reduce_snake",
    "reduce_star",
    "reduce_two_phase",
    "relayout",
    "scatter",
    "stencil",
    "transpose",
]
