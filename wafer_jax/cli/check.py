"""``wafer-jax check``: every layer on the mesh against the dense reference, and transformers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wafer_jax.cli.inputs import encode, load, machine, random_ids
from wafer_jax.cli.options import Ids, Json, Mesh, Preset, Prompt, Seed, Source
from wafer_jax.cli.output import Output
from wafer_jax.hardware import HardwareSpec

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from wafer_jax.models.checkpoints import Checkpoint
    from wafer_jax.models.dense import DenseModel

DEFAULT_PROMPT = "The capital of France is"
RANDOM_TOKENS = 16
TOLERANCE = 1e-4
"""Float32 rounding through thirty layers stays below a third of this."""


@dataclass(frozen=True)
class _Case:
    """What is checked, and how strictly."""

    source: str
    checkpoint: "Checkpoint"
    hw: HardwareSpec
    seed: int
    tokens: list[int]
    decode_tokens: int
    tolerance: float


def check(
    source: Source = "smollm2",
    prompt: Prompt = None,
    ids: Ids = None,
    mesh: Mesh = "24x24",
    preset: Preset = "wse2",
    seed: Seed = 0,
    decode_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens to decode after the prompt.")
    ] = 4,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0.0, help="Largest difference that passes, relative to a token's largest element."
        ),
    ] = TOLERANCE,
    transformers: Annotated[
        bool, typer.Option(help="Compare the dense reference with transformers, if installed.")
    ] = True,
    json: Json = False,
) -> None:
    """Compare every layer's hidden state and the logits with a dense implementation.

    Without a prompt the text is "The capital of France is", or random token ids where the model
    has no tokenizer. The exit code is 1 if a layer departs by more than the tolerance.
    """
    out = Output(json)
    hw = machine(preset, mesh)
    checkpoint = load(out, source)
    if prompt is None and ids is None and checkpoint.tokenizer is None:
        tokens = random_ids(checkpoint, RANDOM_TOKENS, seed)
    else:
        tokens = encode(checkpoint, DEFAULT_PROMPT if prompt is ids is None else prompt, ids)
    case = _Case(source, checkpoint, hw, seed, tokens, decode_tokens, tolerance)
    comparisons = _compare(out, case, transformers)
    failure = _first_failure(comparisons)
    _show(out, case, comparisons, failure)
    _write(out, case, comparisons, failure)
    if failure is not None:
        raise typer.Exit(1)


def _compare(out: Output, case: _Case, transformers: bool) -> dict[str, "pd.DataFrame"]:
    from wafer_jax.cli import transformers_reference
    from wafer_jax.models.dense import DenseModel

    mesh = _on_mesh(out, case)
    with out.progress("building the dense reference"):
        dense = DenseModel.from_checkpoint(case.checkpoint)
    comparisons = _against_dense(out, case, mesh, dense)
    if transformers and transformers_reference.is_installed():
        comparisons["dense against transformers"] = _against_transformers(out, case, dense)
    elif transformers:
        out.show("transformers is not installed, so the dense reference stands alone.")
    return comparisons


def _on_mesh(out: Output, case: _Case) -> tuple[list[int], list[Any]]:
    """Prefill the prompt and decode what it leads to: all tokens, and the output of each call."""
    import numpy as np

    from wafer_jax.models.mesh_llama import MeshModel

    with out.progress("cutting the weights into tiles"):
        model = MeshModel(case.checkpoint, case.hw)
    with out.progress("prefill on the mesh") as say:
        sequence = list(case.tokens)
        outputs = [model.prefill(sequence, context=len(sequence) + case.decode_tokens)]
        for count in range(case.decode_tokens):
            say(f"decode on the mesh, token {count + 1} of {case.decode_tokens}")
            sequence.append(int(np.argmax(outputs[-1].logits)))
            outputs.append(model.decode(sequence[-1], outputs[-1].cache))
    return sequence, outputs


def _against_dense(
    out: Output, case: _Case, mesh: tuple[list[int], list[Any]], dense: "DenseModel"
) -> dict[str, "pd.DataFrame"]:
    import numpy as np

    from wafer_jax.report.parity import compare

    sequence, (prefill, *decode) = mesh
    prompt = len(case.tokens)
    with out.progress("running the dense reference"):
        logits, hidden = dense.forward(sequence, hidden_states=True)
    assert hidden is not None
    logits, hidden = np.asarray(logits[0]), np.asarray(hidden[:, 0])
    first = _stages(prefill.hidden_states, hidden[:, :prompt], prefill.logits, logits[prompt - 1])
    later = _stages(
        np.concatenate([step.hidden_states for step in decode], axis=1),
        hidden[:, prompt:],
        np.stack([step.logits for step in decode]),
        logits[prompt:],
    )
    return {
        "mesh prefill against dense": compare(first, case.tolerance),
        "mesh decode against dense": compare(later, case.tolerance),
    }


def _against_transformers(out: Output, case: _Case, dense: "DenseModel") -> "pd.DataFrame":
    import numpy as np

    from wafer_jax.cli import transformers_reference
    from wafer_jax.report.parity import compare

    with out.progress("running transformers"):
        expected_logits, expected = transformers_reference.forward(case.checkpoint, case.tokens)
        logits, hidden = dense.forward(case.tokens, hidden_states=True)
    assert hidden is not None
    hidden = np.asarray(hidden[:-1, 0])
    return compare(
        _stages(hidden, expected, np.asarray(logits[0]), expected_logits), case.tolerance
    )


def _stages(
    found: "np.ndarray", expected: "np.ndarray", logits: "np.ndarray", expected_logits: "np.ndarray"
) -> list[tuple[str, "np.ndarray", "np.ndarray"]]:
    """Hidden states [stages, T, E] and logits [..., V] as named pairs."""
    names = ["embedding", *(f"layer {i}" for i in range(len(found) - 1))]
    return [*zip(names, found, expected, strict=True), ("logits", logits, expected_logits)]


def _first_failure(comparisons: dict[str, "pd.DataFrame"]) -> dict[str, Any] | None:
    from wafer_jax.report.parity import first_departure

    for name, frame in comparisons.items():
        if (row := first_departure(frame)) is not None:
            return {"comparison": name, **row.to_dict()}
    return None


def _show(
    out: Output,
    case: _Case,
    comparisons: dict[str, "pd.DataFrame"],
    failure: dict[str, Any] | None,
) -> None:
    import pandas as pd

    from wafer_jax.report.frames import table

    stages = next(iter(comparisons.values()))["stage"]
    columns = {name: frame.set_index("stage")["relative"] for name, frame in comparisons.items()}
    relative = pd.DataFrame(columns).reindex(stages).reset_index(names="stage")
    height, width = case.hw.mesh
    out.show(
        f"[bold]{case.checkpoint.name}[/], a layer on {height}x{width} PEs of {case.hw.name}, "
        f"level bulk; {len(case.tokens)} tokens of prompt, {case.decode_tokens} decoded.",
        "Largest difference within a token, relative to the token's largest element:",
        "",
        table(relative),
        "",
    )
    if failure is None:
        out.show(f"[bold green]passed[/]: every stage is within {case.tolerance:g}.")
        return
    out.show(
        f"[bold red]failed[/]: {failure['comparison']} departs first at {failure['stage']}, by "
        f"{failure['difference']:.3g} where the token's largest element is "
        f"{failure['magnitude']:.3g}: relative {failure['relative']:.2e}, over {case.tolerance:g}."
    )


def _write(
    out: Output,
    case: _Case,
    comparisons: dict[str, "pd.DataFrame"],
    failure: dict[str, Any] | None,
) -> None:
    from wafer_jax.report.provenance import provenance

    out.finish(
        "check",
        provenance(case.hw, seed=case.seed, level="bulk"),
        {
            "source": case.source,
            "prompt_ids": case.tokens,
            "decode_tokens": case.decode_tokens,
            "tolerance": case.tolerance,
            "passes": failure is None,
            "first_departure": failure,
            "comparisons": comparisons,
        },
    )
