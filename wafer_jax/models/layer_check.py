"""A model on a mesh against the dense reference: hidden states after every layer, and logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wafer_jax.arguments import whole
from wafer_jax.errors import WaferError
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.mesh_model import MeshModel, Output, Progress
from wafer_jax.models.parity import Stage, compare

if TYPE_CHECKING:
    import pandas as pd

TOLERANCE = 1e-4
"""Float32 rounding through thirty layers stays below a third of this."""


@dataclass(frozen=True)
class GreedyRun:
    """A prompt on a mesh, and the tokens that it leads to.

    Attributes:
      ids: Those of the prompt, then those that were decoded.
      prefill: What the prompt gave.
      decoded: What every decoded token gave.
    """

    ids: list[int]
    prefill: Output
    decoded: list[Output]

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.ids) - len(self.decoded)


def run_greedily(
    model: MeshModel, prompt: Sequence[int], decode_tokens: int, progress: Progress | None = None
) -> GreedyRun:
    """Prefill a prompt, then decode the likeliest token so many times; an end mark ends nothing.

    Args:
      model: The model on its mesh.
      prompt: Token ids.
      decode_tokens: Tokens to decode, at least 1.
      progress: Called as ("decode", token, decode_tokens) before each.

    Raises:
      WaferError: No tokens to decode; as for `MeshModel.prefill`.
    """
    report = progress or (lambda what, done, total: None)
    if whole(decode_tokens, "decode_tokens") < 1:
        raise WaferError(f"{decode_tokens} tokens to decode: ask for at least 1")
    ids, decoded = list(prompt), []
    prefill = output = model.prefill(ids, context=len(ids) + decode_tokens)
    for count in range(1, decode_tokens + 1):
        report("decode", count, decode_tokens)
        ids.append(int(np.argmax(output.logits)))
        output = model.decode(ids[-1], output.cache)
        decoded.append(output)
    return GreedyRun(ids, prefill, decoded)


def against_dense(run: GreedyRun, dense: DenseModel, tolerance: float) -> "pd.DataFrame":
    """Compare a run on a mesh with the dense reference, which reads all its tokens at once.

    Args:
      run: On the mesh.
      dense: The reference, with weights of the same precision.
      tolerance: Largest relative difference that passes.

    Returns:
      One row per phase ("prefill", "decode") and stage, with a column phase and those of `compare`.
    """
    import pandas as pd

    logits, hidden = dense.forward(run.ids, hidden_states=True)
    assert hidden is not None
    logits, hidden = np.asarray(logits[0]), np.asarray(hidden[:, 0])
    prompt, first, steps = run.prompt, run.prefill, run.decoded
    phases = {
        "prefill": stages(
            first.hidden_states, hidden[:, :prompt], first.logits, logits[prompt - 1]
        ),
        "decode": stages(
            np.concatenate([step.hidden_states for step in steps], axis=1),
            hidden[:, prompt:],
            np.stack([step.logits for step in steps]),
            logits[prompt:],
        ),
    }
    frames = [compare(of_phase, tolerance) for of_phase in phases.values()]
    for phase, frame in zip(phases, frames, strict=True):
        frame.insert(0, "phase", phase)
    return pd.concat(frames, ignore_index=True)


def stages(
    found: np.ndarray, expected: np.ndarray, logits: np.ndarray, expected_logits: np.ndarray
) -> list[Stage]:
    """Name what two implementations give, for `compare`.

    Args:
      found: [stages, T, E] hidden states: the embedding, then after each layer.
      expected: Likewise, of the reference.
      logits: [..., V].
      expected_logits: Likewise, of the reference.
    """
    names = ["embedding", *(f"layer {i}" for i in range(len(found) - 1))]
    return [*zip(names, found, expected, strict=True), ("logits", logits, expected_logits)]
