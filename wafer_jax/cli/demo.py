"""``wafer-jax demo``: real weights on an emulated wafer, and how far each number can be trusted."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wafer_jax.cli.inputs import encode, load, machine
from wafer_jax.cli.options import Json, Mesh, Plot, Preset, Seed
from wafer_jax.cli.output import Output

if TYPE_CHECKING:
    import pandas as pd

    from wafer_jax.models.checkpoints import Checkpoint
    from wafer_jax.models.fabric_check import FabricCheck
    from wafer_jax.models.generation import Generation
    from wafer_jax.models.mesh_model import MeshModel
    from wafer_jax.models.parity import LogitDistance

QUESTION = "Explain in one sentence what a computer chip is."
FABRIC_TOKENS = 48
"""Prompt of the MeshGEMM that runs on the fabric: two tokens per row of 24 PEs."""


@dataclass(frozen=True)
class Findings:
    """All that a demo finds out."""

    generation: "Generation"
    distance: "LogitDistance"
    fabric: tuple["FabricCheck", ...]


def demo(
    prompt: Annotated[str, typer.Option(help="What to ask the model.")] = QUESTION,
    mesh: Mesh = "24x24",
    preset: Preset = "wse2",
    seed: Seed = 0,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="At most so many tokens.")] = 64,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Generate text with real weights (SmolLM2-135M-Instruct) on an emulated WSE-2.

    Shows the text, the distance of its logits from a dense implementation, the cycles of every
    operator, the SRAM of every region, and two of the model's products on the fabric.
    """
    from wafer_jax.cli import generation
    from wafer_jax.models.mesh_model import MeshModel
    from wafer_jax.report.plots import check_plot

    began = time.perf_counter()
    out = Output(json)
    hw = machine(preset, mesh)
    if plot is not None:
        check_plot(plot, preset)
    checkpoint = load(out, "smollm2")
    tokens = encode(checkpoint, prompt, None, chat=True)
    with out.progress("cutting the weights into tiles"):
        model = MeshModel(checkpoint, hw)
    found = investigate(out, checkpoint, model, tokens, max_new_tokens, seed)
    if plot is not None:
        generation.plot(found.generation, plot)
    show(out, checkpoint, prompt, found)
    out.show("", f"The demo took {time.perf_counter() - began:.0f} s on this computer.")
    if plot is not None:
        out.show(f"Plot: {plot}")
    write(out, found, seed)


def investigate(
    out: Output,
    checkpoint: "Checkpoint",
    model: "MeshModel",
    tokens: list[int],
    max_new_tokens: int,
    seed: int,
) -> Findings:
    """Generate on the mesh, repeat it densely, and run two products on the fabric."""
    import numpy as np

    from wafer_jax.cli import generation
    from wafer_jax.models.dense import DenseModel
    from wafer_jax.models.fabric_check import check_matmul, check_matvec
    from wafer_jax.models.parity import logit_distance

    result = generation.run(out, model, tokens, max_new_tokens)
    assert result.logits is not None
    with out.progress("running the dense implementation"):
        dense = DenseModel.from_checkpoint(checkpoint)
        logits = np.asarray(dense.forward([*tokens, *result.ids[:-1]])[0][0])
    distance = logit_distance(result.logits, logits[len(tokens) - 1 :])
    with out.progress("running MeshGEMV on the fabric") as say:
        matvec = check_matvec(model, seed=seed)
        say("running MeshGEMM on the fabric")
        progress = lambda cycle, _: say(f"running MeshGEMM on the fabric: cycle {cycle:,}")
        matmul = check_matmul(model, tokens=FABRIC_TOKENS, seed=seed, progress=progress)
    return Findings(result, distance, (matvec, matmul))


def show(out: Output, checkpoint: "Checkpoint", question: str, found: Findings) -> None:
    """Print the findings, a short section each."""
    from wafer_jax.cli import generation
    from wafer_jax.models.parameters import num_parameters
    from wafer_jax.report.frames import table

    g, d, config = found.generation, found.distance, checkpoint.config
    millions = num_parameters(config) / 1e6
    hw = g.placement.hw
    out.show(
        f"[bold]{g.name}[/] on an emulated [bold]{hw.name}[/]: {millions:.1f} M "
        f"trained weights ({Path(checkpoint.source).name}, dequantised to float32), "
        f"{config.num_layers} layers, each on {hw.mesh[0]}x{hw.mesh[1]} PEs.",
        "Every number says its level. fabric: every PE and router, cycle by cycle; bulk: the same "
        "tiles as arrays; cost: closed forms.",
    )
    out.section("Text (level: bulk)")
    out.text(f"  {question}")
    out.text("  " + generation.text_of(checkpoint, g))
    out.show(
        f"{len(g.prompt_ids)} tokens in, {len(g.ids)} out (the end mark counts). Every product, "
        "norm and attention was made tile by tile, as the PEs would."
    )
    out.section("Distance from a dense implementation (level: bulk)")
    out.show(
        f"The logits of all {d.steps} steps differ by at most {d.max_difference:.1e}; they reach "
        f"{d.max_magnitude:.1f}.",
        f"The same token is likeliest at {d.same_tokens} of {d.steps} steps; the two likeliest are "
        f"at least {d.smallest_margin:.2g} apart.",
    )
    generation.show_cycles(out, g)
    generation.show_memory(out, g)
    out.section("Two of these products on the fabric (level: fabric, against bulk and cost)")
    out.show(
        "Layer 0's output projection, trained weights and random activations (one token as in "
        f"decode, {FABRIC_TOKENS} as in prefill), every PE and router cycle by cycle. Equal: "
        "values bit for bit those of the bulk level, cycles those of the closed form (of MeshGEMM "
        "up to 0.1 %: streams share issue slots while it aligns).",
        "",
        table(fabric_table(found.fabric)),
    )


def fabric_table(checks: tuple["FabricCheck", ...]) -> "pd.DataFrame":
    """One row per product: its values against the bulk level, its cycles against the cost."""
    import pandas as pd

    return pd.DataFrame(
        {
            "product": [c.name for c in checks],
            "pes": [f"{c.mesh[0]}x{c.mesh[1]}" for c in checks],
            "fabric_cycles": [c.fabric_cycles for c in checks],
            "cost_cycles": [c.cost_cycles for c in checks],
            "difference_to_bulk": [c.max_difference for c in checks],
            "largest_value": [c.max_magnitude for c in checks],
            "faults": [c.faults for c in checks],
            "equal": [c.passes for c in checks],
        }
    )


def write(out: Output, found: Findings, seed: int) -> None:
    """Print the JSON object."""
    from wafer_jax.report.operators import generation_record
    from wafer_jax.report.provenance import provenance

    placement = found.generation.placement
    out.finish(
        "demo",
        provenance(placement.hw, seed=seed, level="bulk"),
        {
            **generation_record(found.generation),
            "distance_to_dense": asdict(found.distance),
            "regions": placement.summary,
            "fabric": fabric_table(found.fabric),
        },
    )
