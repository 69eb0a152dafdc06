"""Words in packets: seconds and cycles beside those of single words, values off.

python benchmarks/packets.py KIND HEIGHT WIDTH WORDS [--repeats N]
"""

import argparse
import json

from measure import Case, measure
from programs import chain_reduce, matrix_vector

BUILDERS = {"chain reduce": chain_reduce, "MeshGEMV": matrix_vector}
PACKET_WORDS = (1, 4, 16, 64)


def main() -> None:
    """Print one JSON object with a row per packet size."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=sorted(BUILDERS))
    parser.add_argument("height", type=int)
    parser.add_argument("width", type=int)
    parser.add_argument("words", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    a = parser.parse_args()
    program = BUILDERS[a.kind](a.height, a.width, a.words)
    rows = []
    for packet_words in PACKET_WORDS:
        _, report = measure(Case(program, packet_words=packet_words), a.repeats)
        row = {name: report[name] for name in ("cycles", "run_s", "compile_s")}
        rows.append({"packet_words": packet_words} | row)
    exact = rows[0]
    for row in rows:
        row["speedup"] = exact["run_s"] / row["run_s"]
        row["cycles_difference"] = row["cycles"] / exact["cycles"] - 1
    head = {"program": f"{a.kind}, {a.words} words", "mesh": [a.height, a.width]}
    print(json.dumps(head | {"packets": rows}))


if __name__ == "__main__":
    main()
