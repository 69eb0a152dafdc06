"""Perplexity of a text under a model on the mesh, or under the dense reference."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from wafer_jax.errors import WaferError

if TYPE_CHECKING:
    from wafer_jax.models.dense import DenseModel
    from wafer_jax.models.mesh_model import MeshModel


def perplexity(model: "MeshModel | DenseModel", ids: Sequence[int], prompt: int = 1) -> float:
    """``exp`` of the mean cross entropy of every token after the prompt, given all before it.

    On the mesh the prompt is prefilled and the other tokens are decoded one by one, so both paths
    count.

    Args:
      model: The model.
      ids: [T] token ids.
      prompt: The first so many ids are given.

    Returns:
      The perplexity, from logits in float32 summed in float64.

    Raises:
      WaferError: Nothing to predict; ids outside the vocabulary, or more than the context.
    """
    if not 1 <= prompt < len(ids):
        raise WaferError(f"{len(ids)} ids and a prompt of {prompt}: give at least one id more")
    from wafer_jax.models.dense import DenseModel

    if isinstance(model, DenseModel):
        logits = np.asarray(model.forward(ids)[0])[0, prompt - 1 : -1]
    else:
        logits = np.stack(list(_steps(model, ids, prompt)))
    logits = logits.astype(np.float64)
    largest = logits.max(axis=-1)
    log_sum = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=-1))
    chosen = logits[np.arange(len(logits)), np.asarray(ids[prompt:])]
    return float(np.exp(np.mean(log_sum - chosen)))


def _steps(model: "MeshModel", ids: Sequence[int], prompt: int):
    """Logits [V] that predict each token after the prompt."""
    output = model.prefill(ids[:prompt], context=len(ids))
    yield output.logits
    for token in ids[prompt:-1]:
        output = model.decode(int(token), output.cache)
        yield output.logits
