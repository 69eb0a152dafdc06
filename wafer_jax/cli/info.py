"""``wafer-jax info``: what a machine has, or what a model needs."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wafer_jax.cli.inputs import check_context, checked_config, device, machine
from wafer_jax.cli.options import Dtype, ExpertGrid, Json, LayersPerRegion, Preset, parse_mesh
from wafer_jax.cli.output import Output
from wafer_jax.hardware import HardwareSpec, configs_dir, hardware, load_spec, preset_names

if TYPE_CHECKING:
    from wafer_jax.models.config import DecoderConfig
    from wafer_jax.models.placement import Placement


def info(
    what: Annotated[
        str | None,
        typer.Argument(help="A preset, its YAML file, or a model; without it, list the presets."),
    ] = None,
    mesh: Annotated[
        str | None,
        typer.Option(
            "--mesh",
            metavar="YxX",
            help="PEs of a region of layers; by default 24x24, or the smallest square that fits.",
        ),
    ] = None,
    preset: Preset = "wse2",
    context: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tokens of a model's KV caches; by default 128, or its context if less."
        ),
    ] = None,
    dtype: Dtype = "float32",
    layers_per_region: LayersPerRegion = 1,
    expert_grid: ExpertGrid = "1x1",
    json: Json = False,
) -> None:
    """Show a preset's capacities with their sources, or a model's regions and what fits.

    The options other than --json are for a model.
    """
    out = Output(json)
    if what is None:
        _list(out)
    elif what in preset_names():
        _machine(out, hardware(what))
    elif Path(what).suffix in (".yaml", ".yml"):
        _machine(out, load_spec(what))
    else:
        layout = {
            "dtype": dtype,
            "layers_per_region": layers_per_region,
            "expert_grid": parse_mesh(expert_grid, "--expert-grid"),
        }
        hw = device(preset) if mesh is None else machine(preset, mesh)
        _model(out, what, hw, mesh is None, context, layout)


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
    frame, models = pd.DataFrame(rows), pd.DataFrame(_models())
    out.show(table(frame), "", "One in full, with sources: [bold]wafer-jax info wse2[/]")
    out.text(f"Their files: {folder}")
    out.show("", "Models that need no weights to be placed:", "", table(models))
    out.show("", "One on a wafer: [bold]wafer-jax info llama3-8b --mesh 360x360[/]")
    out.finish("info", provenance(), {"folder": folder, "presets": frame, "models": models})


def _models() -> Iterator[dict[str, Any]]:
    from wafer_jax.models.model_configs import model_config, model_names
    from wafer_jax.models.parameters import num_parameters

    for name in model_names():
        config = model_config(name)
        yield {
            "model": name,
            "family": config.family,
            "parameters_millions": round(num_parameters(config) / 1e6),
            "layers": config.num_layers,
            "width": config.hidden_size,
            "heads": config.num_heads,
            "kv_heads": config.num_kv_heads,
            "context": config.max_position_embeddings,
        }


def _machine(out: Output, hw: HardwareSpec) -> None:
    from wafer_jax.report.capacities import capacities
    from wafer_jax.report.frames import table
    from wafer_jax.report.provenance import provenance

    frame = capacities(hw)
    out.show(f"[bold]{hw.name}[/]", "", table(frame))
    out.finish("info", provenance(hw), {"capacities": frame})


def _model(
    out: Output,
    source: str,
    hw: HardwareSpec,
    any_mesh: bool,
    context: int | None,
    layout: dict[str, Any],
) -> None:
    from wafer_jax.models.capacity import what_fits
    from wafer_jax.models.parameters import num_parameters
    from wafer_jax.models.placement import place
    from wafer_jax.models.storage import storage_of
    from wafer_jax.report.frames import table
    from wafer_jax.report.provenance import provenance

    storage_of(layout["dtype"])
    name, config = checked_config(out, source)
    context = context or min(128, config.max_position_embeddings)
    check_context(name, config, context)
    if any_mesh:
        hw = _smallest(config, hw, context, layout)
    placement = place(config, hw, context=context, **layout)
    parameters, fits = num_parameters(config), what_fits(config, hw, layout["expert_grid"])
    frame = placement.summary
    height, width = hw.mesh
    layers = placement.layers_per_region
    layers = "a layer" if layers == 1 else f"{layers} layers"
    wafers = f"{placement.wafers} wafer{'s' if placement.wafers > 1 else ''}"
    out.show(
        f"[bold]{name}[/]: {parameters / 1e6:,.1f} M parameters, "
        f"{config.num_layers} layers, width {config.hidden_size}, {config.num_heads} heads "
        f"({config.num_kv_heads} of keys), vocabulary {config.vocab_size:,}, context "
        f"{config.max_position_embeddings:,}",
        "",
        f"Placed on {hw.name} in {placement.dtype}, {layers} on {height}x{width} PEs, KV caches of "
        f"{context:,} tokens: {placement.num_pes:,} PEs on {wafers}. Bytes of one PE:",
        "",
        table(frame),
        "",
        _program_note(placement),
        "",
        f"One layer by dtype: smallest square region, and tokens that {height}x{width} PEs hold:",
        "",
        table(fits),
    )
    out.finish(
        "info",
        provenance(hw),
        {
            "source": source,
            "name": name,
            "config": asdict(config),
            "parameters": parameters,
            "context": context,
            **layout,
            "pes": placement.num_pes,
            "wafers": placement.wafers,
            "regions": frame,
            "what_fits": fits,
        },
    )


def _smallest(
    config: "DecoderConfig", hw: HardwareSpec, context: int, layout: dict[str, Any]
) -> HardwareSpec:
    """24x24 PEs, or if they do not hold a region of layers, the smallest square that does."""
    from wafer_jax.models.placement import smallest_side

    least = smallest_side(config, hw, context=context, **layout)
    side = min(max(least or 1, 24), *hw.device_mesh)
    return hw.replace(mesh=(side, side))


def _program_note(placement: "Placement") -> str:
    """What the program is known to take, and whether there is room for it."""
    from wafer_jax.models.program_image import image_bytes

    hw = placement.hw
    program = image_bytes(hw)
    if program == hw.reserved_bytes:
        return "Reserved is for the program; nothing more is known of its size."
    data = max(region.memory.used_bytes for region in placement.regions if region.layers)
    note = (
        f"Program is an estimate, the {program:,} bytes of WaferLLM's decode; used counts the "
        f"{hw.reserved_bytes:,} of them that every program has. "
    )
    if data + program <= hw.sram_bytes:
        return note + "All of it fits beside the layers."
    return note + (
        f"Beside the layers it does not fit as a whole ({data + program:,} of {hw.sram_bytes:,} "
        "bytes): it would be loaded in parts, or take a region that 'wafer-jax tune' chooses."
    )
