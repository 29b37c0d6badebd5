"""Cache files of tables that are slow to compute: their folder, and writing a file whole or not at all."""
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.core.hdf5_target import new_hdf5 as below_hdf5
from simulator.errors import InputErrors, KeyFault

# Errors of h5py for a file that is missing, cut off or damaged.
DAMAGE = (OSError, KeyError, RuntimeError, ValueError, TypeError, IndexError)


def cache_folder(directory: str | None) -> Path:
    """Return the cache folder that an experiment names, or else the user's."""
    if directory is not None:
        return Path(directory)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"     # freedesktop.org, Base Directory
    return Path(caches) / "simulator"


def damaged(path: Path) -> str:
    """Return the note on a cache file that could not be used and is rewritten."""
    return f"{path}: was damaged, or made from other inputs; it was made again"


@contextmanager
def new_hdf5(path: Path) -> Iterator:
    """Yield an empty h5py.File that becomes `path` when the block ends well.

    Otherwise no file remains. Equal content gives equal bytes if datasets are made with `track_times=False`.

    Raises
    ------
    InputErrors
        The folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
        os.close(descriptor)
        try:
            with below_hdf5(Path(temporary), libver=("v110", "v110")) as file:
                yield file
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise InputErrors([KeyFault(f"latency.cache_directory: {path.parent} cannot be written: {reason}")]) from error
