"""``wafer-jax info``: what a machine has, or what a model needs."""

from pathlib import Path
from typing import Annotated

import typer

from wafer_jax.cli.options import Json
from wafer_jax.cli.output import Output
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec, configs_dir, hardware, load_spec, preset_names


def info(
    what: Annotated[
        str | None,
        typer.Argument(help="A preset, its YAML file, or a model; without it, list the presets."),
    ] = None,
    json: Json = False,
) -> None:
    """Show a preset's capacities with their sources, or a model's regions and what fits."""
    out = Output(json)
    if what is None:
        _list(out)
    elif what in preset_names():
        _machine(out, hardware(what))
    elif Path(what).suffix in (".yaml", ".yml"):
        _machine(out, load_spec(what))
    else:
        raise WaferError(f"{what!r} is no preset; the presets are {', '.join(preset_names())}")


def _list(out: Output) -> None:
    import pandas as pd

    from wafer_jax.report.frames import table
    from wafer_jax.report.provenance import provenance

    rows = [
        {
            "preset": name,
            "rows": hw.device_mesh[0],
            "columns": hw.device_mesh[1],
            "clock_ghz": hw.clock_hz / 1e9,
            "sram_per_pe_bytes": hw.sram_bytes,
            "colors": hw.colors,
            "preset_hash": hw.hash,
        }
        for name, hw in ((name, hardware(name)) for name in preset_names())
    ]
    folder = str(configs_dir() / "hardware")
    frame = pd.DataFrame(rows)
    out.show(table(frame), "", "One in full, with sources: [bold]wafer-jax info wse2[/]")
    out.text(f"Their files: {folder}")
    out.json({"command": "info", **provenance(), "folder": folder, "presets": frame})


def _machine(out: Output, hw: HardwareSpec) -> None:
    from wafer_jax.report.capacities import capacities
    from wafer_jax.report.frames import table
    from wafer_jax.report.provenance import provenance

    frame = capacities(hw)
    out.show(f"[bold]{hw.name}[/]  (spec {hw.hash})", "", table(frame))
    out.json({"command": "info", **provenance(hw), "capacities": frame})
