"""Output files that are whole or absent, refused before the work that fills them."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wafer_jax.errors import WaferError


def check_output(path: str | Path, *inputs: str | Path) -> Path:
    """Refuse an output file that could not be written, before any time is spent on it.

    Args:
      path: The output.
      inputs: Files that it must not replace.

    Raises:
      WaferError: The folder is missing or not writable; the path is a folder, a device or a pipe,
        or one of the inputs.
    """
    path = Path(path)
    if path.is_dir():
        raise WaferError(f"cannot write {path}: it is a folder; give a file name")
    if path.exists() and not path.is_file():
        raise WaferError(f"cannot write {path}: it is a device or a pipe; give a file name")
    if any(path.resolve() == Path(read).resolve() for read in inputs):
        raise WaferError(f"cannot write {path}: it is the input; give another file name")
    if not path.parent.is_dir():
        raise WaferError(f"cannot write {path}: no folder {path.parent}; create it first")
    if not os.access(path.parent, os.W_OK):
        raise WaferError(f"cannot write {path}: no permission to write in {path.parent}")
    return path


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside ``path`` that takes its place when the block succeeds.

    If the block raises, neither file is left behind and an earlier ``path`` keeps its content.

    Raises:
      WaferError: As for ``check_output``, or the disk refuses.
    """
    path = check_output(path)
    try:
        # The suffix stays: writers such as matplotlib choose the format by it.
        handle, name = tempfile.mkstemp(
            suffix=path.suffix, prefix=f".{path.stem}-", dir=path.parent
        )
        os.close(handle)
    except OSError as error:
        raise WaferError(f"cannot write {path}: {error.strerror}") from None
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise WaferError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    """Permissions that new files lack; mkstemp's are tighter than a result's should be."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
