"""What ``generate`` and ``demo`` share: running a model on the mesh, and showing what came out."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from wafer_jax.cli.output import Output

if TYPE_CHECKING:
    import numpy as np

    from wafer_jax.models.checkpoints import Checkpoint
    from wafer_jax.models.generation import Generation
    from wafer_jax.models.mesh_model import MeshModel


def run(
    out: Output,
    model: "MeshModel",
    ids: list[int],
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    seed: int = 0,
) -> "Generation":
    """Generate on the mesh, with progress; greedily if the temperature is 0.

    Raises:
      WaferError: As for ``MeshModel.generate``.
    """
    with out.progress("prefill") as say:
        progress = lambda what, done, total: say(
            "prefill" if what == "prefill" else f"{what}: token {done} of {total}"
        )
        if temperature == 0:
            return model.generate(
                ids, max_new_tokens=max_new_tokens, keep_logits=True, progress=progress
            )
        return _sample(model, ids, max_new_tokens, temperature, seed, progress)


def _sample(
    model: "MeshModel", ids: list[int], count: int, temperature: float, seed: int, progress
) -> "Generation":
    """Draw every token from softmax(logits / temperature)."""
    import numpy as np

    from wafer_jax.models.generation import Generation

    rng = np.random.default_rng(seed)
    new, kept = [], []
    began = time.perf_counter()
    output = model.prefill(ids, context=len(ids) + count)
    first = time.perf_counter()
    while True:
        progress("decode", len(new) + 1, count)
        kept.append(output.logits)
        new.append(draw(output.logits, temperature, rng))
        if new[-1] in model.config.eos_token_ids or len(new) == count:
            break
        output = model.decode(new[-1], output.cache)
    return Generation(
        name=model.name,
        prompt_ids=tuple(ids),
        ids=tuple(new),
        text=None if model.tokenizer is None else model.tokenizer.decode(new),
        logits=np.stack(kept),
        placement=model.place(context=len(ids) + count, prompt=len(ids)),
        k=model.k,
        prefill_s=first - began,
        decode_s=time.perf_counter() - first,
    )


def draw(logits: "np.ndarray", temperature: float, rng: "np.random.Generator") -> int:
    """Draw an id from softmax(logits / temperature): the largest logit after Gumbel noise.

    Args:
      logits: [V].
      temperature: Above 0; the smaller, the greedier.
      rng: Source of the noise.
    """
    scaled = logits.astype("float64") / temperature
    return int((scaled + rng.gumbel(size=scaled.shape)).argmax())


def text_of(checkpoint: "Checkpoint", generation: "Generation") -> str:
    """The new text without markers such as end-of-turn; ids where there is no tokenizer."""
    if checkpoint.tokenizer is None:
        return ",".join(map(str, generation.ids))
    return checkpoint.tokenizer.decode(generation.ids, skip_special_tokens=True)


def show_cycles(out: Output, generation: "Generation") -> None:
    """Print tokens/s in both definitions and the operators of both phases."""
    from wafer_jax.report.frames import table
    from wafer_jax.report.operators import breakdown

    g, hw = generation, generation.placement.hw
    out.section("Speed on the wafer (level: cost)")
    out.show(
        f"{len(g.ids)} tokens in {g.cycles:,} cycles, {g.seconds * 1e3:,.1f} ms at "
        f"{hw.clock_hz / 1e9:g} GHz; the first one after {g.first_token_s * 1e3:,.1f} ms.",
        "Layers only: one layer times the number of layers, as WaferLLM counts. "
        "Everything: embedding, head and hand-offs too. Decode is that of the last token, which "
        "sees all others.",
        "",
    )
    names = {
        "tokens": "tokens_seen",
        "layer_cycles": "one_layer_cycles",
        "total_cycles": "all_cycles",
        "layers_tokens_per_s": "layers_only_tokens_per_s",
        "tokens_per_s": "everything_tokens_per_s",
    }
    out.show(table(g.rates.rename(columns=names)))
    for title, costs in (
        (f"prefill of {g.prefill.tokens} tokens", g.prefill),
        (f"decode of one token that sees {g.decode.tokens}", g.decode),
    ):
        out.section(f"Cycles of every operator, {title} (level: cost)")
        out.show(table(breakdown(costs)))
    out.show(
        "",
        "Cycles are those of one run of the operator: compute in kernels, communication while no "
        "kernel runs, idle while words travel. Moved is what its PEs send in all. Share is of the "
        "phase, times counted.",
    )
    rows = hw.mesh[0]
    if g.prefill.tokens < 4 * rows:
        out.show(
            f"A prefill of fewer than {4 * rows} tokens is mostly set-up: MeshGEMM's vectors are "
            f"as long as the tokens in one of {rows} rows, and no faster to start when short."
        )


def show_memory(out: Output, generation: "Generation") -> None:
    """Print what one PE of every region holds."""
    from wafer_jax.report.frames import table

    placement = generation.placement
    kib = placement.hw.sram_bytes / 1024
    out.section(f"SRAM of one PE of every region, of {kib:g} KiB")
    out.show(
        f"{placement.dtype}, KV caches of {placement.context:,} tokens; {placement.num_pes:,} PEs "
        f"on {placement.wafers} wafer{'s' if placement.wafers > 1 else ''} of "
        f"{placement.hw.device_mesh[0]}x{placement.hw.device_mesh[1]}. "
        "Reserved is for code and the vendor's runtime.",
        "",
        table(placement.summary),
    )


def plot(generation: "Generation", path: Path) -> None:
    """Draw the cycles of both phases per operator.

    Raises:
      WaferError: As for ``plot_operators``.
    """
    from wafer_jax.models.pictures import whole_phase
    from wafer_jax.report.plots import plot_operators

    g, hw = generation, generation.placement.hw
    title = f"{g.name}, a layer on {hw.mesh[0]}x{hw.mesh[1]} PEs of {hw.name} (level: cost)"
    frames = {costs.title: whole_phase(costs) for costs in (g.prefill, g.decode)}
    plot_operators(frames, path, title)
