"""Reduces over a line of PEs, run on the fabric.

Chain and two-phase reduce of Luczynski et al., HPDC'24, on the vendor's WSE-2 simulator; published
until the root is done (SpMM_Cerebras, mpi_collectives).
"""

import re

from wafer_jax.collectives import reduce_chain, reduce_two_phase
from wafer_jax.execute import run
from wafer_jax.report.published import Bar, Family, NotExpressible, Ours, PublishedPoint


def _ours(point: PublishedPoint) -> Ours:
    hw, words = point.machine(), point.number("B")
    if hw.mesh[0] != 1:
        raise NotExpressible(f"a line of PEs has mesh_h = 1, not {hw.mesh[0]}")
    group = re.fullmatch(r"reduce1d_twophase_step([1-9]\d{0,5})", point.experiment)
    if group is not None:
        program = reduce_two_phase.program(hw, words, int(group[1]))
    elif point.experiment == "reduce1d_chain":
        program = reduce_chain.program(hw, words)
    else:
        raise NotExpressible(f"no reduce {point.experiment!r}: chain and twophase_stepN are known")
    return Ours(value=run(program, values="none").raise_on_fault().cycles, level="fabric")


FAMILY = Family(
    name="reduce",
    experiments=r"reduce1d_.*",
    ours=_ours,
    bar=Bar(worst=2.0),
)
