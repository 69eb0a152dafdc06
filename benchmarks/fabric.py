"""One fabric case in a process of its own: rate, compile time, bytes per PE, peak memory."""

import argparse
import json
import resource
import time

import jax
import jax.numpy as jnp
import numpy as np
from programs import chain_reduce, four_streams

from wafer_jax.lowering import lower
from wafer_jax.mesh_state import initial_state
from wafer_jax.step import NEVER, advance

BUILDERS = {"four streams": four_streams, "chain reduce": chain_reduce}


def measure(kind: str, height: int, width: int, words: int, values: bool, repeats: int) -> dict:
    """Run the program ``repeats`` times; the rate is that of the fastest run."""
    program = BUILDERS[kind](height, width, words)
    rng = np.random.default_rng(0)
    shape = (words, height, width)
    tiles = {"x": rng.standard_normal(shape, np.float32)} if values else None
    spec, code = lower(program, values=values)
    state = initial_state(program, tiles, values=values)
    leaves = jax.tree.leaves((code, state))
    memory = jax.tree.leaves(state.memory)
    control_bytes = sum(a.nbytes for a in leaves) - sum(a.nbytes for a in memory)
    limits = (jnp.int32(NEVER), jnp.int32(NEVER))
    began = time.perf_counter()
    run = advance.lower(spec, code, state, *limits).compile()
    compile_s = time.perf_counter() - began
    seconds = []
    for _ in range(repeats):
        state = jax.block_until_ready(initial_state(program, tiles, values=values))
        began = time.perf_counter()
        state = jax.block_until_ready(run(code, state, *limits))
        seconds.append(time.perf_counter() - began)
    cycles = int(state.now)
    assert bool(state.stuck)
    assert not np.asarray(state.fault).any()
    return {
        "program": program.name if kind == "four streams" else f"{kind}, {words} words",
        "mesh": [height, width],
        "values": values,
        "cycles": cycles,
        "pe_cycles_per_s": height * width * cycles / min(seconds),
        "run_s": min(seconds),
        "compile_s": compile_s,
        "control_bytes_per_pe": control_bytes / (height * width),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(BUILDERS))
    parser.add_argument("height", type=int)
    parser.add_argument("width", type=int)
    parser.add_argument("words", type=int)
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--repeats", type=int, default=2)
    a = parser.parse_args()
    print(json.dumps(measure(a.kind, a.height, a.width, a.words, a.values, a.repeats)))
