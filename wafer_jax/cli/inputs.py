"""What the options name: a machine, a checkpoint, token ids."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from wafer_jax.arguments import shown
from wafer_jax.cli.options import parse_ids, parse_mesh
from wafer_jax.cli.output import Output
from wafer_jax.errors import WaferError
from wafer_jax.hardware import HardwareSpec, hardware, load_spec, preset_names

if TYPE_CHECKING:
    from wafer_jax.models.checkpoints import Checkpoint
    from wafer_jax.models.config import DecoderConfig


def machine(preset: str, mesh: str) -> HardwareSpec:
    """The machine of ``--preset`` with the layer's region of ``--mesh``.

    Raises:
      WaferError: Unknown preset, unreadable file, malformed mesh, or one larger than the device.
    """
    return device(preset).replace(mesh=parse_mesh(mesh))


def device(preset: str) -> HardwareSpec:
    """The machine of ``--preset``, all of it.

    Raises:
      WaferError: Unknown preset, or unreadable file.
    """
    return load_spec(preset) if Path(preset).suffix in (".yaml", ".yml") else hardware(preset)


def load(out: Output, source: str) -> "Checkpoint":
    """Load a checkpoint.

    Raises:
      WaferError: As for ``checkpoints.load``.
    """
    from wafer_jax.models import checkpoints

    with out.progress(f"loading {source}"):
        return checkpoints.load(source)


def config_of(out: Output, source: str) -> "tuple[str, DecoderConfig]":
    """Name and configuration of a model; its weights are not read.

    Raises:
      WaferError: Nothing there, unsupported or damaged.
    """
    if known := _published(source):
        return known
    from wafer_jax.models import checkpoints

    with out.progress(f"reading {source}"):
        return checkpoints.load_config(source)


def checked_config(out: Output, source: str) -> "tuple[str, DecoderConfig]":
    """Name and configuration of a model; if it has weights, they are read and checked.

    Raises:
      WaferError: Nothing there, unsupported, incomplete or damaged.
    """
    if without_weights(source):
        return config_of(out, source)
    checkpoint = load(out, source)
    return checkpoint.name, checkpoint.config


def without_weights(source: str) -> bool:
    """Whether a source is a configuration alone: a published model, or a folder of one file.

    Raises:
      WaferError: Nothing there.
    """
    from wafer_jax.models import hf_folder

    if _published(source):
        return True
    folder = Path(source)
    return os.path.isfile(folder / "config.json") and not hf_folder.has_weights(folder)


def _published(source: str) -> "tuple[str, DecoderConfig] | None":
    from wafer_jax.models.model_configs import model_config, model_names

    if source in model_names():
        return source, model_config(source)
    is_path = os.sep in source or source.endswith(".gguf") or os.path.exists(source)
    if not is_path and source != "smollm2":
        raise WaferError(
            f"{shown(source)} is neither a preset ({', '.join(preset_names())}) nor a model: give "
            f"one of {', '.join(model_names())}, 'smollm2', a folder, a .gguf file, or a hub id "
            "'org/name'"
        )
    return None


def check_context(name: str, config: "DecoderConfig", context: int) -> None:
    """Refuse more tokens than the model was made for.

    Raises:
      WaferError: As said.
    """
    if context > config.max_position_embeddings:
        raise WaferError(
            f"{name} has a context of {config.max_position_embeddings:,} tokens, not {context:,}"
        )


def encode(
    checkpoint: "Checkpoint", prompt: str | None, ids: str | None, *, chat: bool = False
) -> list[int]:
    """Token ids of ``--prompt`` or ``--ids``.

    Raises:
      WaferError: Neither or both, a prompt that is empty or no text, or one for a model without
        tokenizer.
    """
    if (prompt is None) == (ids is None):
        raise WaferError("give either --prompt TEXT or --ids 1,2,3")
    if ids is not None:
        return parse_ids(ids)
    assert prompt is not None
    if not prompt:
        raise WaferError("--prompt is empty: give at least one word")
    if any("\ud800" <= character <= "\udfff" for character in prompt):
        raise WaferError("--prompt has bytes that are no UTF-8: give text in UTF-8")
    tokenizer = checkpoint.tokenizer
    if tokenizer is None:
        raise WaferError(
            f"{checkpoint.source} has no tokenizer that is understood: give token ids, "
            "--ids 1,2,3, in place of --prompt"
        )
    if not chat:
        return tokenizer.encode(prompt)
    text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
    return tokenizer.encode(text, add_special_tokens=False)


def random_ids(checkpoint: "Checkpoint", count: int, seed: int) -> list[int]:
    """Token ids drawn evenly from the vocabulary."""
    import numpy as np

    return np.random.default_rng(seed).integers(checkpoint.config.vocab_size, size=count).tolist()
