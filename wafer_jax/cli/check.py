"""``wafer-jax check``: every layer on the mesh against the dense reference, and transformers."""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wafer_jax.cli.inputs import encode, load, machine, random_ids
from wafer_jax.cli.options import Accumulate, Dtype, Ids, Json, Mesh, Preset, Prompt, Seed, Source
from wafer_jax.cli.output import Output
from wafer_jax.hardware import HardwareSpec

if TYPE_CHECKING:
    import pandas as pd

    from wafer_jax.models.checkpoints import Checkpoint
    from wafer_jax.models.dense import DenseModel
    from wafer_jax.models.layer_check import GreedyRun
    from wafer_jax.models.mesh_model import MeshModel
    from wafer_jax.models.parity import LogitDistance

DEFAULT_PROMPT = "The capital of France is"
RANDOM_TOKENS = 16
TOLERANCE = 1e-4
"""`layer_check.TOLERANCE`, known before models are imported."""


@dataclass(frozen=True)
class _Case:
    """What is checked, and how strictly.

    The reference has the checkpoint's weights at the precision in which the mesh stores them.
    """

    source: str
    checkpoint: "Checkpoint"
    reference: "Checkpoint"
    dtype: str
    accumulate: str
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
    dtype: Dtype = "float32",
    accumulate: Accumulate = "float32",
    json: Json = False,
) -> None:
    """Compare every layer's hidden state and the logits with a dense implementation.

    Without a prompt the text is "The capital of France is", or random token ids where the model
    has no tokenizer. The reference has weights of the same precision. The exit code is 1 if a layer
    departs by more than the tolerance. --accumulate float16 also reports how far the logits of
    decode are from these when sums are rounded as on the device.
    """
    from wafer_jax.models.mesh_model import MeshModel, check_accumulate
    from wafer_jax.models.precision import at_precision, check_dtype

    out = Output(json)
    hw = machine(preset, mesh)
    check_dtype(dtype)
    check_accumulate(accumulate)
    checkpoint = load(out, source)
    if prompt is None and ids is None and checkpoint.tokenizer is None:
        tokens = random_ids(checkpoint, RANDOM_TOKENS, seed)
    else:
        tokens = encode(checkpoint, DEFAULT_PROMPT if prompt is ids is None else prompt, ids)
    reference = replace(checkpoint, weights=at_precision(checkpoint, dtype))
    case = _Case(
        source, checkpoint, reference, dtype, accumulate, hw, seed, tokens, decode_tokens, tolerance
    )
    with out.progress("cutting the weights into tiles"):
        model = MeshModel(checkpoint, hw, dtype=dtype)
    run = _on_mesh(out, case, model)
    comparisons = _compare(out, case, run, transformers)
    failure = _first_failure(comparisons)
    sums = _sums_in_float16(out, case, model, run) if accumulate == "float16" else None
    _show(out, case, comparisons, failure)
    if sums is not None:
        _show_sums(out, sums)
    _write(out, case, comparisons, failure, sums)
    if failure is not None:
        raise typer.Exit(1)


def _compare(
    out: Output, case: _Case, run: "GreedyRun", transformers: bool
) -> dict[str, "pd.DataFrame"]:
    from wafer_jax.cli import transformers_reference
    from wafer_jax.models.dense import DenseModel
    from wafer_jax.models.layer_check import against_dense

    with out.progress("building the dense reference"):
        dense = DenseModel.from_checkpoint(case.reference)
    with out.progress("running the dense reference"):
        against = against_dense(run, dense, case.tolerance)
    comparisons = {
        f"mesh {phase} against dense": frame.drop(columns="phase")
        for phase, frame in against.groupby("phase", sort=False)
    }
    if transformers and transformers_reference.is_installed():
        comparisons["dense against transformers"] = _against_transformers(out, case, dense)
    elif transformers:
        out.show("transformers is not installed, so the dense reference stands alone.")
    return comparisons


def _on_mesh(out: Output, case: _Case, model: "MeshModel") -> "GreedyRun":
    from wafer_jax.models.layer_check import run_greedily

    with out.progress("prefill on the mesh") as say:
        return run_greedily(
            model,
            case.tokens,
            case.decode_tokens,
            lambda what, done, total: say(f"{what} on the mesh, token {done} of {total}"),
        )


def _sums_in_float16(
    out: Output, case: _Case, model: "MeshModel", run: "GreedyRun"
) -> "LogitDistance":
    """Decode the same tokens with sums in float16: how far the logits are from float32 sums."""
    import numpy as np

    from wafer_jax.models.parity import logit_distance

    short = model.accumulating("float16")
    found = []
    with out.progress("prefill on the mesh") as say:
        output = short.prefill(run.ids[: run.prompt], context=len(run.ids))
        for count, token in enumerate(run.ids[run.prompt :]):
            say(f"decode with sums in float16, token {count + 1} of {case.decode_tokens}")
            output = short.decode(token, output.cache)
            found.append(output.logits)
    return logit_distance(np.stack(found), np.stack([step.logits for step in run.decoded]))


def _against_transformers(out: Output, case: _Case, dense: "DenseModel") -> "pd.DataFrame":
    import numpy as np

    from wafer_jax.cli import transformers_reference
    from wafer_jax.models.layer_check import stages
    from wafer_jax.models.parity import compare

    with out.progress("running transformers"):
        expected_logits, expected = transformers_reference.forward(case.reference, case.tokens)
        logits, hidden = dense.forward(case.tokens, hidden_states=True)
    assert hidden is not None
    hidden = np.asarray(hidden[:-1, 0])
    pairs = stages(hidden, expected, np.asarray(logits[0]), expected_logits)
    return compare(pairs, case.tolerance)


def _first_failure(comparisons: dict[str, "pd.DataFrame"]) -> dict[str, Any] | None:
    from wafer_jax.models.parity import first_departure

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
        f"weights in {case.dtype}, level bulk; "
        f"{len(case.tokens)} tokens of prompt, {case.decode_tokens} decoded.",
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


def _show_sums(out: Output, sums: "LogitDistance") -> None:
    out.show(
        "",
        f"Sums in float16: the logits of {sums.steps} decoded tokens are within "
        f"{sums.max_difference:.3g} of those with sums in float32 (largest logit "
        f"{sums.max_magnitude:.3g}), the likeliest token is the same in {sums.same_tokens}, and "
        f"the smallest margin between the two likeliest is {sums.smallest_margin:.3g}.",
    )


def _write(
    out: Output,
    case: _Case,
    comparisons: dict[str, "pd.DataFrame"],
    failure: dict[str, Any] | None,
    sums: "LogitDistance | None",
) -> None:
    from wafer_jax.report.provenance import provenance

    out.finish(
        "check",
        provenance(case.hw, seed=case.seed, level="bulk"),
        {
            "source": case.source,
            "prompt_ids": case.tokens,
            "decode_tokens": case.decode_tokens,
            "dtype": case.dtype,
            "accumulate": case.accumulate,
            "tolerance": case.tolerance,
            "passes": failure is None,
            "first_departure": failure,
            "comparisons": comparisons,
            "sums_in_float16": None if sums is None else asdict(sums),
        },
    )
