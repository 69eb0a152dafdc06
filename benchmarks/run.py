"""`make bench`: speed, compile time and memory, as a table and as JSON with the machine's facts.

Every case runs in a process of its own, so that its peak memory is its own and nothing is warm.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import jax
from rich.console import Console
from tables import (
    decode_table,
    fabric_table,
    memory_table,
    packets_table,
    replicas_table,
    rows_table,
    traffic_table,
)

import wafer_jax

HERE = Path(__file__).parent
FABRIC_CASES = [
    (kind, height, width, words, values)
    for height, width, words in ((64, 64, 256), (256, 256, 256), (512, 512, 128), (762, 1172, 64))
    for kind in ("four streams", "chain reduce")
    for values in (False, True)
]
FABRIC_CASES += [("MeshGEMV", 64, 64, 64, values) for values in (False, True)]


def machine_facts() -> dict:
    """What a reader needs in order to compare figures."""
    model = "unknown"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":")[1].strip()
                break
    except OSError:
        pass
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "wafer_jax": wafer_jax.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def case(script: str, *arguments: object) -> dict:
    """Run one case and read the JSON of its last line."""
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    print(" ".join(["benchmarks/" + script, *command[2:]]), file=sys.stderr)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def fabric_rows(cases: list[tuple]) -> list[dict]:
    """Large meshes run once, a run of them is long enough."""
    return [
        case("fabric.py", kind, height, width, words, *flags(values),
             "--repeats", 1 if height > 512 else 3)
        for kind, height, width, words, values in cases
    ]  # fmt: skip


def flags(values: bool) -> list[str]:
    """Of a case with or without values."""
    return ["--values"] if values else []


def measured(quick: bool) -> dict:
    """All cases, by table."""
    side = 8 if quick else 16
    return {
        "fabric": fabric_rows(FABRIC_CASES[:4] if quick else FABRIC_CASES),
        "traffic": [
            case("traffic.py", side, 256, *flags(values))
            for side in ((32,) if quick else (32, 64))
            for values in (False, True)
        ],
        "replicas": [case("replicas.py", side, *flags(values)) for values in (False, True)],
        "rows": case("rows.py", *((256, 750) if quick else (992, 750)), "--repeats", 1),
        "packets": [
            case("packets.py", "chain reduce", 1, 512, 4096),
            case("packets.py", "MeshGEMV", 64, 64, 64),
        ],
        "decode": case("decode.py"),
    }


def main() -> None:
    """Run the cases, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/bench.json"))
    parser.add_argument("--quick", action="store_true", help="the smallest meshes only")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    found = measured(arguments.quick)
    console.print(fabric_table(found["fabric"]))
    console.print(memory_table([row for row in found["fabric"] if row["values"]]))
    console.print(traffic_table(found["traffic"]))
    console.print(replicas_table(found["replicas"]))
    console.print(rows_table(found["rows"]))
    console.print(packets_table(found["packets"]))
    console.print(decode_table(found["decode"]))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"machine": machine_facts()} | found, indent=1) + "\n")
    console.print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
