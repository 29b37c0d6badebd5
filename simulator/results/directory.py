"""A results directory is complete or absent: it is written beside its place and renamed.

Complete results are replaced only when that is asked for, and the old ones are there until the new ones are. A
directory that holds anything a run does not write is left alone.
"""
import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.errors import InputErrors

FILES = frozenset(("summary.json", "results.h5", "trace.json", "resolved.toml", "provenance.json"))
REQUIRED = FILES - {"trace.json"}

_ELSEWHERE = "--out chooses another directory"

_AT_FDCWD = -100                # linux/fcntl.h
_RENAME_EXCHANGE = 1 << 1       # linux/fs.h


def check_free(directory: str | Path, overwrite: bool = False) -> Path:
    """Return the place of new results, with links resolved, or refuse it.

    Raises
    ------
    InputErrors
        Complete results are there and `overwrite` is false; or something else is there.
    """
    directory = Path(directory).resolve()
    if not directory.exists():
        return directory
    if not directory.is_dir():
        raise InputErrors([f"{directory}: a file of this name exists; {_ELSEWHERE}"])
    found = set(os.listdir(directory))
    if not found:
        return directory
    if foreign := sorted(found - FILES):
        raise InputErrors([f"{directory}: holds {foreign[0]}, which no run writes, and is left alone; {_ELSEWHERE}"])
    if not found >= REQUIRED:
        raise InputErrors([f"{directory}: holds something else than complete results and is left alone; {_ELSEWHERE}"])
    if not overwrite:
        raise InputErrors([f"{directory}: complete results exist; --overwrite replaces them, {_ELSEWHERE}"])
    return directory


@contextmanager
def staged(directory: Path, overwrite: bool = False) -> Iterator[Path]:
    """Give a temporary directory, which becomes `directory` if the block ends well.

    If it does not, nothing is left behind.
    """
    directory = check_free(directory, overwrite)
    temporary = directory.with_name(f".{directory.name}.{os.urandom(4).hex()}.partial")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise InputErrors([f"{directory}: cannot be written: {error.strerror}; {_ELSEWHERE}"]) from error
    try:
        yield temporary
        check_free(directory, overwrite)
        _put_in_place(temporary, directory)
    finally:    # what is left there: the new results after a failure, the old ones after an exchange
        _remove(temporary)


def _put_in_place(temporary: Path, directory: Path) -> None:
    if not directory.exists() or not os.listdir(directory):
        os.rename(temporary, directory)
    elif not _exchange(temporary, directory):
        old = temporary.with_suffix(".old")
        os.rename(directory, old)
        try:
            os.rename(temporary, directory)
        except BaseException:
            os.rename(old, directory)
            raise
        _remove(old)


def _remove(directory: Path) -> None:
    """Remove a directory if it is there, also when a signal comes meanwhile."""
    try:
        shutil.rmtree(directory, ignore_errors=True)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Swap two directories in one step, where the system can (Linux, renameat2); say whether it did."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0
