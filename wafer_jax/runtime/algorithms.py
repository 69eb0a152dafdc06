"""Algorithms by name, as sweeps and configuration files call them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

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
    kv_concat,
    kv_shift,
    reduce_2d,
    reduce_auto_gen,
    reduce_binary_tree,
    reduce_chain,
    reduce_snake,
    reduce_star,
    reduce_two_phase,
    scatter,
    stencil,
    transpose,
)
from wafer_jax.errors import WaferError
from wafer_jax.program import Program

Level = Literal["fabric", "cost"]


@dataclass(frozen=True)
class Algorithm:
    """Two faces of one algorithm; both take the machine and then parameters by name.

    Attributes:
      program: Builds what the fabric runs.
      cost: Its closed form, in cycles.
    """

    program: Callable[..., Program]
    cost: Callable[..., int]

    def parameters(self, level: Level) -> dict[str, inspect.Parameter]:
        """What the face of a level takes after the machine."""
        face = self.program if level == "fabric" else self.cost
        return dict(list(inspect.signature(face).parameters.items())[1:])


ALGORITHMS = {
    "allgather.multicast": Algorithm(allgather.program, allgather.cost),
    "allgather.relayed": Algorithm(allgather_relayed.program, allgather_relayed.cost),
    "allreduce.ktree": Algorithm(allreduce_ktree.program, allreduce_ktree.cost),
    "allreduce.pipeline": Algorithm(allreduce_pipeline.program, allreduce_pipeline.cost),
    "allreduce.ring": Algorithm(allreduce_ring.program, allreduce_ring.cost),
    "allreduce.rows_then_columns": Algorithm(allreduce_2d.program, allreduce_2d.cost),
    "alltoall": Algorithm(alltoall.program, alltoall.cost),
    "broadcast": Algorithm(broadcast.program, broadcast.cost),
    "broadcast_2d": Algorithm(broadcast_2d.program, broadcast_2d.cost),
    "gather": Algorithm(gather.program, gather.cost),
    "gemm": Algorithm(gemm.program, gemm.cost),
    "gemm.allgather": Algorithm(gemm_allgather.program, gemm_allgather.cost),
    "gemm.cannon": Algorithm(gemm_cannon.program, gemm_cannon.cost),
    "gemm.summa": Algorithm(gemm_summa.program, gemm_summa.cost),
    "gemm.summa_segments": Algorithm(gemm_summa_segments.program, gemm_summa_segments.cost),
    "gemm.transposed": Algorithm(gemm_transposed.program, gemm_transposed.cost),
    "gemv": Algorithm(gemv.program, gemv.cost),
    "gemv.pipeline": Algorithm(gemv_pipeline.program, gemv_pipeline.cost),
    "gemv.ring": Algorithm(gemv_ring.program, gemv_ring.cost),
    "kv.concat": Algorithm(kv_concat.program, kv_concat.cost),
    "kv.shift": Algorithm(kv_shift.program, kv_shift.cost),
    "reduce.auto_gen": Algorithm(reduce_auto_gen.program, reduce_auto_gen.cost),
    "reduce.binary_tree": Algorithm(reduce_binary_tree.program, reduce_binary_tree.cost),
    "reduce.chain": Algorithm(reduce_chain.program, reduce_chain.cost),
    "reduce.rows_then_columns": Algorithm(reduce_2d.program, reduce_2d.cost),
    "reduce.snake": Algorithm(reduce_snake.program, reduce_snake.cost),
    "reduce.star": Algorithm(reduce_star.program, reduce_star.cost),
    "reduce.two_phase": Algorithm(reduce_two_phase.program, reduce_two_phase.cost),
    "scatter": Algorithm(scatter.program, scatter.cost),
    "stencil": Algorithm(stencil.program, stencil.cost),
    "transpose": Algorithm(transpose.program, transpose.cost),
}


def check_parameters(name: str, level: Level, values: dict[str, list[Any]]) -> None:
    """Refuse parameters that an algorithm does not take, lacks, or takes as another type.

    Args:
      name: Of the algorithm.
      level: Whose face is to be called.
      values: By parameter, all that it is to be.

    Raises:
      WaferError: Naming the parameter.
    """
    if name not in ALGORITHMS:
        raise WaferError(f"unknown algorithm {name!r}; known are {', '.join(ALGORITHMS)}")
    known = ALGORITHMS[name].parameters(level)
    if unknown := [p for p in values if p not in known]:
        raise WaferError(
            f"{name}: unknown parameter {unknown[0]!r} at level {level}; known are "
            f"{', '.join(known)}"
        )
    for parameter, what in known.items():
        required = what.default is inspect.Parameter.empty
        if required and parameter not in values:
            raise WaferError(f"{name}: parameter {parameter!r} is missing")
        kind = int if required else tuple if what.default is None else type(what.default)
        for value in values.get(parameter, []):
            if type(value) is not kind:
                raise WaferError(
                    f"{name}: {parameter} = {value!r} is not {_KINDS.get(kind, kind.__name__)}"
                )
            if required and value < 1:
                raise WaferError(f"{name}: {parameter} = {value}: a size is at least 1")


_KINDS = {int: "a whole number", str: "a text", bool: "true or false", tuple: "a list"}
