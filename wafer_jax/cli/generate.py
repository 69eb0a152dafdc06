"""``wafer-jax generate``: text from a model that runs on the emulated wafer."""

from typing import Annotated

import typer

from wafer_jax.cli.inputs import encode, load, machine
from wafer_jax.cli.options import (
    Accumulate,
    Dtype,
    ExpertGrid,
    Ids,
    Json,
    LayersPerRegion,
    Mesh,
    Plot,
    Preset,
    Prompt,
    Seed,
    Source,
    parse_mesh,
)
from wafer_jax.cli.output import Output


def generate(
    source: Source,
    prompt: Prompt = None,
    ids: Ids = None,
    mesh: Mesh = "24x24",
    preset: Preset = "wse2",
    seed: Seed = 0,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Stop after so many tokens, or at the end of the text.")
    ] = 32,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="0 takes the likeliest token, above 0 draws one.")
    ] = 0.0,
    chat: Annotated[
        bool, typer.Option("--chat", help="Wrap the prompt in the model's chat template.")
    ] = False,
    dtype: Dtype = "float32",
    accumulate: Accumulate = "float32",
    layers_per_region: LayersPerRegion = 1,
    expert_grid: ExpertGrid = "1x1",
    k: Annotated[int, typer.Option("--k", min=1, help="Phases of the K-tree allreduces.")] = 2,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Generate text on the emulated wafer, with cycles per operator and SRAM per region.

    Values are those of the bulk level, every product made tile by tile; cycles come from the cost
    level.
    """
    from wafer_jax.cli import generation
    from wafer_jax.models.mesh_model import MeshModel, check_accumulate
    from wafer_jax.models.precision import check_dtype
    from wafer_jax.report.operators import generation_record
    from wafer_jax.report.plots import check_plot
    from wafer_jax.report.provenance import provenance

    out = Output(json)
    hw = machine(preset, mesh)
    grid = parse_mesh(expert_grid, "--expert-grid")
    check_dtype(dtype)
    check_accumulate(accumulate)
    if plot is not None:
        check_plot(plot, source, preset)
    checkpoint = load(out, source)
    tokens = encode(checkpoint, prompt, ids, chat=chat)
    with out.progress("cutting the weights into tiles"):
        options = {"dtype": dtype, "accumulate": accumulate, "k": k, "expert_grid": grid}
        model = MeshModel(checkpoint, hw, layers_per_region=layers_per_region, **options)
    result = generation.run(out, model, tokens, max_new_tokens, temperature=temperature, seed=seed)
    if checkpoint.tokenizer is None:
        out.show("The model has no tokenizer, so these are the new token ids:")
    out.text((prompt or "") + ("\n" if chat else "") + generation.text_of(checkpoint, result))
    generation.show_cycles(out, result)
    generation.show_memory(out, result)
    if plot is not None:
        generation.plot(result, plot)
        out.show("", f"Plot: {plot}")
    out.finish(
        "generate",
        provenance(hw, seed=seed, level="bulk"),
        {
            "source": source,
            "temperature": temperature,
            "dtype": dtype,
            "accumulate": accumulate,
            "layers_per_region": layers_per_region,
            "expert_grid": grid,
            "k": k,
            **generation_record(result),
            "regions": result.placement.summary,
            "plot": None if plot is None else str(plot),
        },
    )
