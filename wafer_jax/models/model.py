"""A loaded model, to be run on any machine: what notebooks start from."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wafer_jax.hardware import HardwareSpec
from wafer_jax.models import checkpoints
from wafer_jax.models.checkpoints import Checkpoint
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.dense import DenseModel
from wafer_jax.models.generation import Generation
from wafer_jax.models.layer_check import TOLERANCE, against_dense, run_greedily
from wafer_jax.models.mesh_model import MeshModel
from wafer_jax.models.parameters import num_parameters
from wafer_jax.models.placement import Placement, place
from wafer_jax.models.precision import at_precision
from wafer_jax.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pandas as pd


def load(source: str | Path) -> "Model":
    """Load a model.

    Args:
      source: "smollm2", a Hugging Face folder, a .gguf file, or a hub id "org/name".

    Returns:
      The model: ``load("smollm2").generate("The capital of France is", hw)``.

    Raises:
      WaferError: Nothing there, unsupported, incomplete or damaged.
    """
    return Model(checkpoints.load(source))


class Model:
    """A checkpoint, the dense reference that it defines, and itself on a mesh.

    Attributes:
      checkpoint: Configuration, weights and tokenizer.
    """

    def __init__(self, checkpoint: Checkpoint):
        self.checkpoint = checkpoint
        self._on_mesh: dict[Any, MeshModel] = {}

    @property
    def config(self) -> DecoderConfig:
        """What defines the model."""
        return self.checkpoint.config

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Text to ids and back, or None."""
        return self.checkpoint.tokenizer

    @cached_property
    def dense(self) -> DenseModel:
        """The dense reference."""
        return DenseModel.from_checkpoint(self.checkpoint)

    def place(
        self,
        hw: HardwareSpec,
        *,
        context: int = 1,
        prompt: int = 1,
        **options: Any,
    ) -> Placement:
        """Place the model on a machine, see `wj.models.place`, which has the other options.

        Args:
          hw: Machine; ``hw.mesh`` is the region of one layer.
          context: Tokens that the KV caches must hold.
          prompt: Tokens of the longest prompt.
          options: See `wj.models.place`.

        Returns:
          Regions and bytes per PE.

        Raises:
          WaferError: It does not fit.
        """
        return place(self.config, hw, context=context, prompt=prompt, **options)

    def on(self, hw: HardwareSpec, **options: Any) -> MeshModel:
        """Lay the model out on a machine; the last layout is kept.

        Args:
          hw: Machine; ``hw.mesh`` is the region of one layer.
          options: See `MeshModel`.

        Raises:
          WaferError: A region's tiles exceed its PEs' SRAM.
        """
        key = (hw, *sorted(options.items()))
        if key not in self._on_mesh:
            self._on_mesh = {key: MeshModel(self.checkpoint, hw, **options)}
        return self._on_mesh[key]

    def generate(
        self,
        prompt: str | Sequence[int],
        hw: HardwareSpec,
        *,
        values: str = "rounds",
        dtype: str = "float32",
        accumulate: str = "float32",
        **options: Any,
    ) -> Generation:
        """Generate greedily on a machine.

        Args:
          prompt: Text, or token ids.
          hw: Machine; ``hw.mesh`` is the region of one layer.
          values: How prefill's products are made, see `MeshModel`.
          dtype: What weights are stored in, see `MeshModel`.
          accumulate: What decode's products are summed in, see `MeshModel`.
          options: See `MeshModel.generate`.

        Returns:
          Text, ids, cycles per operator and tokens/s.

        Raises:
          WaferError: As for `MeshModel.generate`.
        """
        model = self.on(hw, values=values, dtype=dtype, accumulate=accumulate)
        return model.generate(prompt, **options)

    def check(
        self,
        prompt: str | Sequence[int],
        hw: HardwareSpec,
        *,
        decode_tokens: int = 4,
        tolerance: float = TOLERANCE,
        dtype: str = "float32",
        **options: Any,
    ) -> "pd.DataFrame":
        """Compare every layer on a machine with the dense reference, in prefill and in decode.

        The reference has weights of the same precision. What is wrong in one layer shows there
        first.

        Args:
          prompt: Text, or token ids.
          hw: Machine; ``hw.mesh`` is the region of one layer.
          decode_tokens: Tokens to decode greedily after the prompt, at least 1.
          tolerance: Largest difference that passes, relative to a token's largest element.
          dtype: What weights are stored in, see `MeshModel`.
          options: See `MeshModel`.

        Returns:
          One row per phase ("prefill", "decode") and stage (the embedding, every layer, the
          logits) with the columns phase, stage, difference and magnitude (of the token with the
          largest relative difference), relative and passes. A NaN or infinity never passes.

        Raises:
          WaferError: No tokens to decode; as for `on`, `MeshModel.encode` and `MeshModel.prefill`.
        """
        mesh = self.on(hw, dtype=dtype, **options)
        run = run_greedily(mesh, mesh.encode(prompt), decode_tokens)
        if dtype == "float32":
            return against_dense(run, self.dense, tolerance)
        stored = replace(self.checkpoint, weights=at_precision(self.checkpoint, dtype))
        return against_dense(run, DenseModel.from_checkpoint(stored), tolerance)

    def __repr__(self) -> str:
        return (
            f"Model({self.checkpoint.name!r}, {num_parameters(self.config) / 1e6:.1f} M parameters)"
        )
