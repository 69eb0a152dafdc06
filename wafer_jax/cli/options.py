"""Options that several commands share, and the texts they are given as."""

import re
from pathlib import Path
from typing import Annotated

import typer

from wafer_jax.errors import WaferError

MAX_SEED = 2**32 - 1

Dtype = Annotated[
    str,
    typer.Option(
        "--dtype",
        help="How weights are stored: float32, float16, bfloat16, or packed, such as q4_1 or fp8.",
    ),
]
Accumulate = Annotated[
    str,
    typer.Option("--accumulate", help="What decode's products are summed in: float32 or float16."),
]
ExpertGrid = Annotated[
    str,
    typer.Option(
        "--expert-grid",
        metavar="YxX",
        help="Rows and columns of regions for experts within a layer's; 1x1 tiles every expert "
        "over all of it.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
LayersPerRegion = Annotated[
    int,
    typer.Option("--layers-per-region", min=1, help="Consecutive layers that share a region."),
]
Mesh = Annotated[
    str, typer.Option("--mesh", metavar="YxX", help="PEs of one layer's region, rows x columns.")
]
Preset = Annotated[
    str, typer.Option("--preset", help="Hardware preset, or the path of a YAML file like one.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=MAX_SEED, help="Seed of all randomness.")]
Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="'smollm2', a Hugging Face folder, a .gguf file, or a hub id 'org/name'.",
    ),
]
Prompt = Annotated[str | None, typer.Option("--prompt", help="Text to continue.")]
Ids = Annotated[
    str | None,
    typer.Option("--ids", metavar="1,2,3", help="Token ids in place of a prompt."),
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE.png", help="Draw the cycles per operator."),
]


def parse_mesh(text: str, option: str = "--mesh") -> tuple[int, int]:
    """Read an option's ``YxX``, such as "24x32".

    Raises:
      WaferError: Anything but two positive numbers with an x between.
    """
    match = re.fullmatch(r"(\d{1,9})[xX](\d{1,9})", text.strip(), re.ASCII)
    mesh = tuple(map(int, match.groups())) if match else ()
    if len(mesh) != 2 or min(mesh) < 1:
        raise WaferError(
            f"{option} {text[:40]!r}: expected rows x columns, both at least 1, such as 24x32"
        )
    return mesh


def parse_ids(text: str) -> list[int]:
    """Read token ids, such as "504,3575,282".

    Raises:
      WaferError: Anything but numbers with commas between.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d{1,9}", part, re.ASCII) for part in parts):
        raise WaferError(f"--ids {text[:40]!r}: expected token ids with commas, such as 504,3575")
    return [int(part) for part in parts]
