"""A chain reduce down the columns with and without leaving out the rows that have no activity.

A first run of each compiles and is not counted; then the two run in turn.

python benchmarks/rows.py [HEIGHT WIDTH] [--repeats N]
"""

import argparse
import json

import jax
from programs import machine

import wafer_jax as wj
from wafer_jax import windows

WORDS = 16
MIN_LANES = {"with": windows.MIN_LANES, "without": 1 << 31}


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("height", type=int, nargs="?", default=992)
    parser.add_argument("width", type=int, nargs="?", default=750)
    parser.add_argument("--repeats", type=int, default=2)
    a = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    program = wj.reduce.chain(machine(a.height, a.width), words=WORDS, axis="y")
    first_s: dict[str, float] = {}
    run_s: dict[str, list[float]] = {name: [] for name in MIN_LANES}
    cycles = set()
    for _ in range(a.repeats + 1):
        for name, windows.MIN_LANES in MIN_LANES.items():
            result = wj.run(program, values="none").raise_on_fault()
            cycles.add(result.cycles)
            if name in first_s:
                run_s[name].append(result.run_s)
            else:
                first_s[name] = result.compile_s + result.run_s
    (cycles,) = cycles
    best = {name: min(seconds) for name, seconds in run_s.items()}
    print(
        json.dumps(
            {
                "program": program.name,
                "mesh": [a.height, a.width],
                "cycles": cycles,
                "with_s": best["with"],
                "without_s": best["without"],
                "ratio": best["without"] / best["with"],
                "compile_s": first_s["with"] - best["with"],
            }
        )
    )


if __name__ == "__main__":
    main()
