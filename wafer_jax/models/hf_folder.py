"""A Hugging Face folder: ``config.json`` and safetensors, in one file or in shards."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wafer_jax.errors import WaferError
from wafer_jax.models import families
from wafer_jax.models.config import DecoderConfig
from wafer_jax.models.quantized.packed import PackedSource
from wafer_jax.models.quantized.stored import Quantization, parameters, read_quantization
from wafer_jax.models.safetensors_file import SafetensorsFile
from wafer_jax.models.weights import check_tensors, is_ignored

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_MAX_JSON_BYTES = 100_000_000


def read_json(path: Path) -> Any:
    """Read a JSON file of bounded size.

    Args:
        path: the file.

    Returns:
        What it holds.

    Raises:
        WaferError: missing, unreadable, too large or not JSON.
    """
    try:
        if path.stat().st_size > _MAX_JSON_BYTES:
            raise WaferError(f"{path}: larger than {_MAX_JSON_BYTES} bytes; not a plausible file")
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WaferError(f"{path}: no such file") from None
    except OSError as error:
        raise WaferError(f"{path}: cannot be read ({error})") from None
    except (ValueError, RecursionError) as error:
        raise WaferError(f"{path}: not valid JSON ({str(error)[:120]})") from None


def read_config(folder: Path) -> DecoderConfig:
    """Read ``config.json``, and the ids that end a text from ``generation_config.json`` if present.

    Args:
        folder: a Hugging Face folder.

    Returns:
        The configuration.

    Raises:
        WaferError: missing, damaged, unsupported or unknown.
    """
    path = folder / "config.json"
    if not path.is_file():
        hint = ""
        if found := sorted(folder.glob("*.gguf")):
            hint = f"; to load the GGUF file give its path, {found[0]}"
        raise WaferError(f"{path}: no such file, so this is no Hugging Face model folder{hint}")
    attributes = read_json(path)
    if read_quantization(attributes, where=str(path)) is not None:
        attributes = {k: v for k, v in attributes.items() if k != "quantization_config"}
    config = families.read_config(attributes, where=str(path))
    generation_path = folder / "generation_config.json"
    if not generation_path.is_file():
        return config
    generation = read_json(generation_path)
    ids = generation.get("eos_token_id") if isinstance(generation, dict) else None
    ids = ids if isinstance(ids, list) else [ids]
    # Chat models list further end ids there; ids that this vocabulary lacks can never occur.
    more = [i for i in ids if type(i) is int and 0 <= i < config.vocab_size]
    return replace(config, eos_token_ids=tuple(dict.fromkeys((*config.eos_token_ids, *more))))


def read_weights(folder: Path, config: DecoderConfig) -> dict[str, np.ndarray]:
    """Read every parameter.

    Args:
        folder: a Hugging Face folder.
        config: what ``read_config`` returned for it.

    Returns:
        Name to float32 array, as `parameter_shapes` lists them; no entry for a tied head.

    Raises:
        WaferError: no safetensors, a damaged file, a tensor missing, unknown, given twice, of the
            wrong shape, or with NaN or infinity.
    """
    homes = {n: f for n, f in _locate(folder).items() if not is_ignored(n)}
    stored = parameters(homes, _quantization(folder))
    head = stored.pop("lm_head.weight", None) if config.tie_embeddings else None
    found = list(families.FAMILIES[config.family].internal(stored.items(), config))
    check_tensors([(name, p.shape) for name, p in found], config, where=str(folder))
    weights = {name: parameter.read() for name, parameter in found}
    if head is not None and not np.array_equal(head.read(), weights["model.embed_tokens.weight"]):
        raise WaferError(
            f"{head.path}: tensor lm_head.weight differs from the embedding although config.json "
            "says that they are tied; set tie_word_embeddings to false to use it"
        )
    return weights


def has_weights(folder: Path) -> bool:
    """Whether a folder has files of weights, readable or not, beside its configuration.

    Args:
        folder: a Hugging Face folder.
    """
    kinds = {".safetensors", ".bin", ".pt", ".pth"}
    return (folder / _INDEX).exists() or any(path.suffix in kinds for path in folder.iterdir())


def with_stored_head(folder: Path, config: DecoderConfig) -> DecoderConfig:
    """Take a head that is stored even if the configuration says that it is the embedding.

    Only in families whose files disagree. A head that is neither stored nor said to be the
    embedding stays missing.

    Args:
        folder: a Hugging Face folder.
        config: what ``read_config`` returned for it.

    Returns:
        The configuration that its weights are for.

    Raises:
        WaferError: no safetensors, or a damaged file.
    """
    if not families.FAMILIES[config.family].head_as_stored:
        return config
    tied = config.tie_embeddings and "lm_head.weight" not in _locate(folder)
    return replace(config, tie_embeddings=tied)


def packed_sources(folder: Path) -> dict[str, PackedSource]:
    """Matrices that the folder stores packed.

    Args:
        folder: a folder that ``read_weights`` accepted.

    Returns:
        Name to source.
    """
    if (quantization := _quantization(folder)) is None:
        return {}
    stored, config = parameters(_locate(folder), quantization), read_config(folder)
    found = families.FAMILIES[config.family].internal(stored.items(), config)
    return {name: p.packed for name, p in found if p.packed is not None}


def _quantization(folder: Path) -> Quantization | None:
    path = folder / "config.json"
    return read_quantization(read_json(path), where=str(path))


def _locate(folder: Path) -> dict[str, SafetensorsFile]:
    """Find the file of every tensor; a single file wins over an index, as in transformers."""
    if (folder / _SINGLE).is_file():
        file = SafetensorsFile(folder / _SINGLE)
        return dict.fromkeys(file.tensors, file)
    if (folder / _INDEX).is_file():
        return _locate_shards(folder)
    if any(folder.glob("*.safetensors")):
        raise WaferError(f"{folder}: has safetensors files but neither {_SINGLE} nor {_INDEX}")
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt*")):
        raise WaferError(
            f"{folder}: has only pickled weights, which can run code and are never read; "
            "convert them to safetensors"
        )
    raise WaferError(f"{folder}: no weights found (neither {_SINGLE} nor {_INDEX})")


def _locate_shards(folder: Path) -> dict[str, SafetensorsFile]:
    index = read_json(folder / _INDEX)
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise WaferError(f"{folder / _INDEX}: has no weight_map object")
    for name in {str(v) if isinstance(v, str) else repr(v) for v in weight_map.values()}:
        # A plain name only: an index must not lead out of its folder.
        if not name.endswith(".safetensors") or Path(name).name != name or "\\" in name:
            raise WaferError(
                f"{folder / _INDEX}: {name[:80]!r} is not the plain name of a "
                ".safetensors file in the same folder"
            )
    homes: dict[str, SafetensorsFile] = {}
    for shard in sorted(set(weight_map.values())):
        file = SafetensorsFile(folder / shard)
        for tensor in file.tensors:
            if tensor in homes:
                raise WaferError(
                    f"{file.path}: tensor {tensor!r} is also in {homes[tensor].path.name}"
                )
            if weight_map.get(tensor) != shard:
                raise WaferError(
                    f"{file.path}: tensor {tensor!r} is not assigned to it in {_INDEX}"
                )
            homes[tensor] = file
    if missing := [name for name in weight_map if name not in homes]:
        shard = weight_map[missing[0]]
        raise WaferError(
            f"{folder / shard}: tensor {missing[0]!r} is missing, although {_INDEX} lists it"
        )
    return homes
