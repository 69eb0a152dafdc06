"""A batch of jittered replicas beside one program on as many PEs: cost per PE and cycle.

Both are K-tree allreduces along the rows with the same stalls; the rows of PEs between replicas
count as cost, not as PEs. The two run in turn, so that other load on the machine meets both.

python benchmarks/replicas.py SIDE [--values] [--repeats N]      SIDE**2 replicas of SIDE x SIDE
"""

import argparse
import json

import numpy as np
from measure import Case
from programs import machine

import wafer_jax as wj

WORDS = 16
JITTER = wj.Jitter(1, start_cycles=20, event_cycles=10)


def allreduce(side: int) -> wj.Program:
    """K-tree allreduce on SIDE x SIDE PEs."""
    return wj.allreduce.ktree(machine(side, side), words=WORDS, k=2)


def case(program: wj.Program, values: bool) -> Case:
    """Small whole numbers, so that sums are exact in any order."""
    shape = (WORDS, *program.hw.mesh)
    x = np.random.default_rng(0).integers(0, 9, shape).astype(np.float32)
    return Case(program, {"x": x} if values else None, JITTER)


def timed(case: Case) -> int:
    """Cycles of one more run, in which every row with routes has its own sum."""
    result = case.run()
    if case.tiles is not None:
        x = case.tiles["x"]
        sums = np.broadcast_to(x.sum(axis=2, keepdims=True), x.shape)
        routed = (case.program.tx[:, :, 0] != 0).any(axis=0)
        np.testing.assert_array_equal(result.values[:, routed], sums[:, routed])
    return result.cycles


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("side", type=int)
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    a = parser.parse_args()
    batch = case(wj.replicate(allreduce(a.side), a.side**2), a.values)
    whole = case(allreduce(a.side**2), a.values)
    for _ in range(a.repeats):
        batch_cycles, whole_cycles = timed(batch), timed(whole)
    pes = a.side**4
    batch_s, whole_s = (
        min(found.run_s) / (pes * cycles)
        for found, cycles in ((batch, batch_cycles), (whole, whole_cycles))
    )
    print(
        json.dumps(
            {
                "replicas": a.side**2,
                "mesh": [a.side, a.side],
                "values": a.values,
                "batch_cycles": batch_cycles,
                "whole_cycles": whole_cycles,
                "batch_s_per_pe_cycle": batch_s,
                "whole_s_per_pe_cycle": whole_s,
                "ratio": batch_s / whole_s,
                "compile_s": [batch.compile_s, whole.compile_s],
            }
        )
    )


if __name__ == "__main__":
    main()
