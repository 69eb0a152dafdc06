"""`make bench-wafer`: a K-tree allreduce of one word over a whole wafer, values off.

Along the rows and back, then along the columns and back, so that every PE has the wafer's sum.

python benchmarks/wafer.py [HEIGHT WIDTH]
"""

import argparse
import json

import jax
from programs import machine

import wafer_jax as wj
from wafer_jax.collectives import allreduce_ktree


def main() -> None:
    """Print one JSON object: seconds and cycles of both, compile time apart."""
    parser = argparse.ArgumentParser()
    parser.add_argument("height", type=int, nargs="?", default=762)
    parser.add_argument("width", type=int, nargs="?", default=1172)
    a = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    hw = machine(a.height, a.width)
    found = {}
    for axis in ("x", "y"):
        program = allreduce_ktree.program(hw, words=1, axis=axis)
        result = wj.run(program, values="none").raise_on_fault()
        assert result.cycles == allreduce_ktree.cost(hw, words=1, axis=axis)
        found[axis] = {name: getattr(result, name) for name in ("cycles", "run_s", "compile_s")}
    total = {
        name: sum(row[name] for row in found.values()) for name in ("cycles", "run_s", "compile_s")
    }
    print(json.dumps({"mesh": [a.height, a.width], "axes": found, "total": total}))


if __name__ == "__main__":
    main()
