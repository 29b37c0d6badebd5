"""A results directory is complete or absent: it is written beside its place and renamed.

Results are replaced only with an option for it, and the old ones stay until the new ones are complete. A directory with
any file that a run does not write is left alone. If it is the current folder of the process, the files are
replaced and the folder stays.
"""
import ctypes
import json
import os
import platform
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from simulator.core.paths import place_of
from simulator.errors import InputErrors, OutputError


class Contents(NamedTuple):
    """The files that a command writes into a directory.

    writer : its name in messages.
    is_own : returns whether the command writes a file of that name.
    required : files without which the directory is not complete.
    state : describes a complete directory.
    """

    writer: str
    is_own: Callable[[str], bool]
    required: frozenset[str]
    state: Callable[[Path], str]


REQUIRED = frozenset(("summary.json", "results.h5", "resolved.toml", "provenance.json"))
REPORT, PICTURES = "report.html", "report"      # of `report`: a page, and a folder of pictures
FILES = REQUIRED | {"trace.json", "request_metrics.csv", "batch_metrics.csv", REPORT, PICTURES}

_ELSEWHERE = "--out chooses another directory"

_AT_FDCWD = -100                # linux/fcntl.h
_RENAME_EXCHANGE = 1 << 1       # linux/fs.h


def _state(directory: Path) -> str:
    try:
        is_complete = json.loads((directory / "summary.json").read_bytes())["complete"]
    except (OSError, ValueError, LookupError, TypeError):
        is_complete = True      # written by another version: then all files exist
    return "complete results exist" if is_complete else "results of an interrupted run exist (incomplete)"


RESULTS = Contents("run", FILES.__contains__, REQUIRED, _state)


def tables_contents(command: str, pattern: str) -> Contents:
    """Return the contents of a folder of tables.

    pattern : regular expression of their names.
    """
    return Contents(f"`{command}`", re.compile(pattern).fullmatch, frozenset(), lambda _: "tables exist")


def check_folder(directory: str | Path) -> Path:
    """Return the place of a folder, with links resolved, or refuse it.

    Raises
    ------
    InputErrors
        It is a file, or can be no folder.
    """
    directory = Path(place_of(directory)).resolve()
    if directory.exists():
        if not directory.is_dir():
            raise InputErrors([f"{directory}: a file of this name exists; {_ELSEWHERE}"])
        return directory
    above = next(parent for parent in directory.parents if parent.exists())
    if why := f"{above} is no directory" * (not above.is_dir()) or (
            f"{above} is not writable" * (not os.access(above, os.W_OK | os.X_OK))):
        raise InputErrors([f"{directory}: cannot be written: {why}; {_ELSEWHERE}"])
    return directory


def check_free(directory: str | Path, overwrite: bool = False, contents: Contents = RESULTS) -> Path:
    """Return the place of new results, with links resolved, or refuse it.

    Raises
    ------
    InputErrors
        Results are there and `overwrite` is false; or the place has other files; or the name is impossible.
    """
    directory = check_folder(directory)
    found = set(os.listdir(directory)) if directory.exists() else ()
    if not found:
        return directory
    if foreign := sorted(name for name in found if not contents.is_own(name)):
        raise InputErrors([f"{directory}: holds {foreign[0]}, which no {contents.writer} writes, and is left alone; "
                           f"{_ELSEWHERE}"])
    if not found >= contents.required:
        raise InputErrors([f"{directory}: holds something else than complete results and is left alone; {_ELSEWHERE}"])
    if not overwrite:
        raise InputErrors([f"{directory}: {contents.state(directory)}; --overwrite replaces them, {_ELSEWHERE}"])
    return directory


@contextmanager
def staged(directory: str | Path, overwrite: bool = False, contents: Contents = RESULTS) -> Iterator[Path]:
    """Give a temporary directory, which becomes `directory` if the block ends well.

    If it does not, it is removed; leftovers of a killed process are removed too.

    Raises
    ------
    InputErrors
        As `check_free`; the place cannot be written.
    OutputError
        The disk is full, or fails.
    """
    directory = check_free(directory, overwrite, contents)
    _remove_leftovers(directory)
    temporary = directory.with_name(f".{directory.name}.{_process(os.getpid())}.{os.urandom(4).hex()}.partial")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise InputErrors([f"{directory}: cannot be written: {error.strerror}; {_ELSEWHERE}"]) from error
    try:
        yield temporary
        check_free(directory, overwrite, contents)
        _put_in_place(temporary, directory)
    except OSError as error:
        if error.errno in OutputError.ERRNOS:
            raise OutputError(directory, error) from error
        raise
    finally:    # left behind: the new results after a failure, the old ones after an exchange
        _remove(temporary)


def _process(number: int | str) -> str:
    """Return a name for a process of this machine that is unique among all machines sharing the disk."""
    return f"{zlib.crc32(platform.node().encode()):08x}-{number}"


def _remove_leftovers(directory: Path) -> None:
    """Remove the temporary directories of dead processes of this user and machine."""
    if os.name != "posix":      # elsewhere there is no harmless test whether a process lives
        return
    name = re.compile(rf"\.{re.escape(directory.name)}\.{_process('([0-9]+)')}\.[0-9a-f]{{8}}\.partial")
    with suppress(OSError):     # no such folder yet; a leftover that cannot be removed does no harm
        for entry in os.scandir(directory.parent):
            found = name.fullmatch(entry.name)
            if found and entry.stat(follow_symlinks=False).st_uid == os.getuid() and _is_dead(int(found[1])):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_dead(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _put_in_place(temporary: Path, directory: Path) -> None:
    if directory == Path.cwd():
        _replace_files(temporary, directory)
    elif not directory.exists() or not os.listdir(directory):
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


def _replace_files(temporary: Path, directory: Path) -> None:
    """Move results file by file; until the last one, summary.json, there are no results."""
    for name in sorted(os.listdir(directory), key="summary.json".__ne__):
        (shutil.rmtree if (directory / name).is_dir() else os.unlink)(directory / name)
    for name in sorted(os.listdir(temporary), key="summary.json".__eq__):
        os.rename(temporary / name, directory / name)


def _remove(directory: Path) -> None:
    """Remove a directory if it exists, also when a signal arrives meanwhile."""
    try:
        shutil.rmtree(directory, ignore_errors=True)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Swap two directories in one step, where the system can (Linux, renameat2); return whether it did."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    return renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0
