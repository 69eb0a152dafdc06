"""Output files that are whole or absent, refused before the work that fills them."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
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
    try:
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
    except OSError as error:  # such as a name that is too long
        raise WaferError(f"cannot write {path}: {error.strerror}") from None
    return path


def make_folder(path: str | Path) -> None:
    """Make a folder, if it is not there.

    Raises:
      WaferError: The file system refuses.
    """
    try:
        Path(path).mkdir(exist_ok=True)
    except OSError as error:
        raise WaferError(f"cannot write to {path}: {error.strerror}") from None


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


def check_output_folder(path: str | Path, is_ours: Callable[[str], bool]) -> Path:
    """Refuse an output folder that could not be written, before any time is spent on it.

    Args:
      path: The folder; its own folder must exist.
      is_ours: Whether a name is that of a file which may be replaced.

    Raises:
      WaferError: A file in its place, a folder with other files, no permission.
    """
    path = Path(path)
    try:
        if path.is_dir():
            others = sorted(p.name for p in path.iterdir() if not is_ours(p.name) or p.is_dir())
            if others:
                raise WaferError(
                    f"cannot write to {path}: it holds other files ({others[0]}); give a new folder"
                )
        elif path.exists():
            raise WaferError(f"cannot write to {path}: it is a file; give a folder")
        parent = path.resolve().parent
        if not parent.is_dir():
            raise WaferError(f"cannot write {path}: no folder {path.parent}; create it first")
        if not os.access(parent, os.W_OK):
            raise WaferError(f"cannot write {path}: no permission to write in {parent}")
    except OSError as error:
        raise WaferError(f"cannot write to {path}: {error.strerror}") from None
    return path


@contextmanager
def atomic_folder(path: str | Path, is_ours: Callable[[str], bool]) -> Iterator[Path]:
    """Give a temporary folder beside ``path`` that takes its place when the block succeeds.

    If the block raises, no new folder is left behind and an earlier one keeps its content.

    Raises:
      WaferError: As for ``check_output_folder``, or the disk refuses.
    """
    path = check_output_folder(path, is_ours).resolve()
    temporary = earlier = None
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        if path.exists():
            earlier = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
            path.replace(earlier)
        temporary.replace(path)
    except OSError as error:
        if earlier is not None and not path.exists():
            earlier.replace(path)
        raise WaferError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        for left in (temporary, earlier):
            if left is not None:
                shutil.rmtree(left, ignore_errors=True)


def _umask() -> int:
    """Permissions that new files lack; mkstemp's are tighter than a result's should be."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
