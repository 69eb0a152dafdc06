"""``wafer-jax tune``: the region, K-tree and layers per region with the least predicted time."""

import shlex
from typing import TYPE_CHECKING, Annotated, cast

import typer

from wafer_jax.cli.inputs import check_context, config_of, device, without_weights
from wafer_jax.cli.options import Dtype, Json, Preset
from wafer_jax.cli.output import Output

if TYPE_CHECKING:
    import pandas as pd

    from wafer_jax.models.tuning import Tuning
    from wafer_jax.models.tuning_task import Phase

_SHOWN = 12


def tune(
    model: Annotated[
        str,
        typer.Argument(
            help="A published model such as llama3-8b ('wafer-jax info' lists them), a folder with "
            "config.json, a .gguf file, a hub id, or 'smollm2'. Weights are not needed."
        ),
    ],
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prompt.")] = 1024,
    output: Annotated[int, typer.Option(min=1, help="Tokens to generate.")] = 128,
    context: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of the KV caches; prompt and output by default."),
    ] = None,
    phase: Annotated[
        str, typer.Option(help="What to make fast: prefill, decode, or both, a whole request.")
    ] = "both",
    preset: Preset = "wse2",
    dtype: Dtype = "float16",
    wafers: Annotated[
        int | None, typer.Option(min=1, help="The most wafers that it may take.")
    ] = None,
    resident_routes: Annotated[
        bool,
        typer.Option(
            "--resident-routes",
            help="All routes of a phase stay installed; otherwise operators share colours.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Choose how a model is laid out on a machine: region, layers per region, K-tree, wafers."""
    from wafer_jax.models.tuner import autotune
    from wafer_jax.report.provenance import provenance

    out = Output(json)
    hw = device(preset)
    name, config = config_of(out, model)
    check_context(name, config, context or prompt + output)
    with out.progress("tuning"):
        tuning = autotune(
            config,
            hw,
            phase=cast("Phase", phase),
            prompt=prompt,
            output=output,
            context=context,
            dtype=dtype,
            wafers=wafers,
            resident_routes=resident_routes,
        )
    commands = _next(model, preset, tuning)
    _show(out, name, tuning, commands)
    best = tuning.best
    record = {
        "source": model,
        "name": name,
        "phase": phase,
        "dtype": dtype,
        "context": tuning.context,
        "prompt": prompt,
        "output": output,
        "resident_routes": resident_routes,
        "program_bytes": tuning.program_bytes,
        "best": {
            "mesh": [best.side, best.side],
            "layers_per_region": best.layers_per_region,
            "expert_grid": best.shape.expert_grid,
            "k": best.k,
            "wafers": best.wafers,
            "pes": best.pes,
            "seconds": best.seconds,
        },
        "explanation": list(tuning.explanation),
        "next": commands,
        "candidates": tuning.frame,
    }
    out.finish("tune", {**provenance(tuning.hw), "level": tuning.level}, record)


def _next(model: str, preset: str, tuning: "Tuning") -> list[str]:
    """The commands that show the choice on its regions, and with weights run it."""
    best = tuning.best
    layout = ["--preset", preset, "--mesh", f"{best.side}x{best.side}", "--dtype", tuning.dtype]
    layout += ["--layers-per-region", str(best.layers_per_region)]
    if best.shape.expert_grid != (1, 1):
        layout += ["--expert-grid", "x".join(map(str, best.shape.expert_grid))]
    info = ["wafer-jax", "info", model, *layout, "--context", str(tuning.context)]
    if without_weights(model):
        return [shlex.join(info)]
    generate = ["wafer-jax", "generate", model, *layout, "--k", str(best.k)]
    generate += ["--max-new-tokens", str(tuning.output), "--prompt"]
    return [shlex.join(info), f"{shlex.join(generate)} TEXT"]


def _show(out: Output, name: str, tuning: "Tuning", commands: list[str]) -> None:
    from wafer_jax.report.frames import table

    frame = tuning.frame
    fits, refused = frame.query("refused == ''"), frame.query("refused != ''")
    out.show(
        f"[bold]{name}[/] on {tuning.hw.name} in {tuning.dtype}, {tuning.prompt:,} tokens of "
        f"prompt, {tuning.output:,} of output, KV caches of {tuning.context:,}",
        "",
    )
    for sentence in tuning.explanation:
        out.text(sentence)
    out.show(
        "",
        f"The fastest of {len(frame)} that were tried (level: cost):",
        "",
        table(_told(fits).drop(columns="refused").head(_SHOWN)),
    )
    if len(refused):
        columns = ["side", "expert_grid", "layers_per_region", "k", "refused"]
        out.show("", "Refused:", "", table(_told(refused.filter(columns)).head(_SHOWN)))
    out.show("", "Next:")
    for command in commands:
        out.text(command)


def _told(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Without columns that say nothing: empty ones, and the grid of models without experts."""
    if set(frame["expert_grid"]) <= {"1x1"}:
        frame = frame.drop(columns="expert_grid")
    return frame.dropna(axis=1, how="all")
