"""A checkpoint's weights as a format stores them, for the mesh and for a reference to it."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.models.checkpoints import Checkpoint
from wafer_jax.models.quantized.packed import FORMATS, PackedMatrix, pack
from wafer_jax.models.storage import STORAGES, storage_of
from wafer_jax.models.weights import check_finite

_PROJECTIONS = ("_proj.weight", ".in_proj_qkv.weight", ".in_proj_z.weight")
_VOCABULARY = ("model.embed_tokens.weight", "lm_head.weight")


def check_dtype(dtype: str) -> None:
    """Refuse formats that no model can be run in.

    Raises:
      WaferError: Unknown, or one that can only be placed.
    """
    if storage_of(dtype).is_packed and dtype not in FORMATS:
        raise WaferError(
            f"a model cannot be run in {dtype}, only placed: to run one choose among "
            f"float32, float16, bfloat16, {', '.join(FORMATS)}"
        )


def stored_weights(checkpoint: Checkpoint, dtype: str) -> Mapping[str, np.ndarray | PackedMatrix]:
    """Store every parameter in a format.

    Projections, those of experts too, take the format (where there are experts, attention may have
    another one: of MXFP4 it is bfloat16), the embedding and the head the one that goes with it;
    norms, biases and routers stay in float32 beside packed projections. What the checkpoint already
    stores in the wanted format keeps its codes.

    Args:
      checkpoint: The model.
      dtype: A name of `STORAGES`.

    Returns:
      Name to array, or to packed matrix.

    Raises:
      WaferError: An unknown format, one that cannot be packed into, or weights beyond its range.
    """
    check_dtype(dtype)
    storage = storage_of(dtype)
    if dtype == "float32":
        return checkpoint.weights
    attention = storage.of_attention(checkpoint.config.experts is not None).name
    stored = {}
    for name, weight in checkpoint.weights.items():
        if name in _VOCABULARY:
            wanted = storage.vocabulary
        elif name.endswith(_PROJECTIONS):
            wanted = dtype if ".mlp." in name else attention
        else:
            wanted = "float32" if storage.is_packed else dtype
        stored[name] = _store(checkpoint, name, weight, wanted)
    return stored


def at_precision(checkpoint: Checkpoint, dtype: str) -> Mapping[str, np.ndarray]:
    """The same weights as numbers, for a dense reference at the same precision.

    Returns:
      Name to float32 array.

    Raises:
      WaferError: As for `stored_weights`.
    """
    return {
        name: w.unpack() if isinstance(w, PackedMatrix) else np.asarray(w, np.float32)
        for name, w in stored_weights(checkpoint, dtype).items()
    }


def _store(
    checkpoint: Checkpoint, name: str, weight: np.ndarray, wanted: str
) -> np.ndarray | PackedMatrix:
    if STORAGES[wanted].is_packed:
        source = checkpoint.packed.get(name)
        if source is not None and source.format == wanted:
            return source.read()
        return pack(weight, wanted)
    with np.errstate(over="ignore"):  # check_finite reports it
        stored = weight.astype(jnp.dtype(wanted))
    check_finite(name, stored.astype(np.float32), where=f"{checkpoint.name} in {wanted}")
    return stored
