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
from rich.table import Table

import wafer_jax

HERE = Path(__file__).parent
FABRIC_CASES = [
    (kind, height, width, words, values)
    for height, width, words in ((64, 64, 256), (256, 256, 256), (512, 512, 128), (762, 1172, 64))
    for kind in ("four streams", "chain reduce")
    for values in (False, True)
]


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
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def fabric_table(rows: list[dict]) -> Table:
    """One row per fabric case."""
    table = Table(title="fabric level")
    for name in ("program", "mesh", "values", "cycles", "M PE-cycles/s", "compile s",
                 "control B/PE", "peak MiB"):  # fmt: skip
        table.add_column(name, justify="left" if name == "program" else "right")
    for r in rows:
        table.add_row(
            r["program"], "x".join(map(str, r["mesh"])), "on" if r["values"] else "off",
            f"{r['cycles']:,}", f"{r['pe_cycles_per_s'] / 1e6:.1f}", f"{r['compile_s']:.1f}",
            f"{r['control_bytes_per_pe']:.0f}", f"{r['peak_bytes'] / 2**20:,.0f}",
        )  # fmt: skip
    return table


def decode_table(r: dict) -> Table:
    """Bulk decode beside the dense reference."""
    table = Table(title=f"decode of {r['model']}, context {r['context']}, ms per token")
    for name in ("dense", f"mesh {r['mesh'][0]}x{r['mesh'][1]}", "ratio", "compile s (mesh)"):
        table.add_column(name, justify="right")
    table.add_row(
        f"{r['dense_ms']:.1f}", f"{r['mesh_ms']:.1f}", f"{r['mesh_ms'] / r['dense_ms']:.2f}",
        f"{r['compile_s']:.1f}",
    )  # fmt: skip
    return table


def main() -> None:
    """Run the cases, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/bench.json"))
    parser.add_argument("--quick", action="store_true", help="the smallest mesh only")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 110)
    cases = FABRIC_CASES[:4] if arguments.quick else FABRIC_CASES
    rows = []
    with console.status("") as status:
        for kind, height, width, words, values in cases:
            status.update(f"{kind} on {height}x{width}, values {'on' if values else 'off'}")
            flags = ["--values"] if values else []
            flags += ["--repeats", 1 if height > 512 else 3]
            rows.append(case("fabric.py", kind, height, width, words, *flags))
        status.update("decode")
        decode = case("decode.py")
    console.print(fabric_table(rows))
    console.print(decode_table(decode))
    report = {"machine": machine_facts(), "fabric": rows, "decode": decode}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    console.print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
