"""One fabric case in a process of its own: rate, compile time, bytes per PE, peak memory.

python benchmarks/fabric.py KIND HEIGHT WIDTH WORDS [--values] [--repeats N]
"""

import argparse
import json

import numpy as np
from measure import Case, measure
from programs import chain_reduce, four_streams, matrix_vector

from wafer_jax import Program

BUILDERS = {
    "four streams": four_streams,
    "chain reduce": chain_reduce,
    "MeshGEMV": matrix_vector,
}


def random_tiles(program: Program) -> dict[str, np.ndarray]:
    """[*shape, Y, X] normal numbers for every input."""
    rng = np.random.default_rng(0)
    shapes = {name: program.roles[0].tiles[name].shape for name in program.inputs}
    return {
        name: rng.standard_normal((*shape, *program.hw.mesh), np.float32)
        for name, shape in shapes.items()
    }


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(BUILDERS))
    parser.add_argument("height", type=int)
    parser.add_argument("width", type=int)
    parser.add_argument("words", type=int)
    parser.add_argument("--values", action="store_true")
    parser.add_argument("--repeats", type=int, default=2)
    a = parser.parse_args()
    program = BUILDERS[a.kind](a.height, a.width, a.words)
    case = Case(program, random_tiles(program) if a.values else None)
    _, report = measure(case, a.repeats)
    print(json.dumps(report | {"program": f"{a.kind}, {a.words} words"}))


if __name__ == "__main__":
    main()
