"""Models by their id on the Hugging Face hub, through the hub's own cache."""

import re
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

from wafer_jax.errors import WaferError

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)

# Weights only as safetensors: a folder with pickles is neither downloaded nor read.
CONFIG_FILES = ("config.json", "generation_config.json")
FILES = (
    *CONFIG_FILES,
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*-of-*.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


def is_id(text: str) -> bool:
    """Say whether a text has the form of a hub id.

    Args:
        text: what the user typed.

    Returns:
        True for ``org/name``.
    """
    return _ID.fullmatch(text) is not None


def fetch(repo_id: str, files: Sequence[str] = FILES) -> Path:
    """Download a model's files, or find them in the cache.

    Args:
        repo_id: ``org/name``.
        files: names, with ``*`` for any text.

    Returns:
        The folder in the cache.

    Raises:
        WaferError: no such model, no access to it, or offline and not in the cache.
    """
    # It asks notebooks for a widget when it is imported: only who downloads needs one.
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repo_id, allow_patterns=list(files)))
    except GatedRepoError:
        why = (
            "access to it is restricted; accept its terms on huggingface.co and log in "
            "with 'hf auth login'"
        )
    except (RepositoryNotFoundError, HFValidationError):
        why = "the hub knows no such model, or it is private"
    except LocalEntryNotFoundError:
        why = (
            "it is not in the local cache and the hub cannot be reached; go online once, or give "
            "a folder or a .gguf file"
        )
    except (HfHubHTTPError, OSError) as error:
        reason = f"{type(error).__name__}: {str(error).strip()}".split("\n")[0][:120]
        why = f"the download failed ({reason}); try again, or give a folder"
    raise WaferError(f"{repo_id}: {why}")
