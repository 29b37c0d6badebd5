"""Digests of source files of tables, cached while a file is unchanged.

Reading names, sizes and times of change is cheap, whereas digesting profiles takes longer than reading the tables made
from them. A cached digest is valid while the size and the times of its file are unchanged, and only if the file was not
just written: a second write within a tick of the clock would not change the time. (As in git's index, see its
Documentation/technical/racy-git.)
"""
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from simulator.errors import InputErrors
from simulator.latency.table_cache import cache_folder

TICK_NS = 2_000_000_000         # the coarsest clock of a file system, FAT's
FOLDER = "sources"              # in the cache directory
FORMAT = 1


def digest_of(path: str | Path, cache_directory: str | None, content: Callable[[str | Path], bytes]) -> str:
    """Return the SHA-256 of the bytes that `content` reads from a file, hexadecimal.

    Raises
    ------
    InputErrors
        The file is missing, or an error of `content`. A failure to write the cache is no fault.
    """
    try:
        stamp = _stamp(path)
    except OSError as error:
        raise InputErrors([f"{path}: cannot be read: {error.strerror or error}"]) from error
    name = f"{content.__module__}.{content.__qualname__}"
    known = {"format": FORMAT, "path": os.path.abspath(path), "content": name, **stamp}
    kept = _file_of(known, cache_directory)
    digest = _recall(kept, known)
    if digest is None:
        digest = hashlib.sha256(content(path)).hexdigest()
        if _stamp(path) == stamp and stamp["mtime_ns"] < time.time_ns() - TICK_NS:
            _remember(kept, known | {"sha256": digest})
    return digest


def _stamp(path: str | Path) -> dict[str, int]:
    status = os.stat(path)
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "ctime_ns": status.st_ctime_ns}


def _file_of(known: dict, cache_directory: str | None) -> Path:
    name = hashlib.sha256(f"{known['path']}\n{known['content']}".encode()).hexdigest()[:32]
    return cache_folder(cache_directory) / FOLDER / f"{name}.json"


def _recall(kept: Path, known: dict) -> str | None:
    """Return the digest in a cache file; None: it has none for the present file, or is damaged."""
    try:
        found = json.loads(kept.read_text(encoding="utf-8"))
        digest = found["sha256"]
        return digest if found == _signed(known | {"sha256": digest}) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(kept: Path, found: dict) -> None:
    """Write a cache file, whole or not at all; a failure is ignored."""
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=kept.parent, prefix=f".{kept.stem}-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(_signed(found), file)
            os.replace(temporary, kept)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError:
        return


def _signed(found: dict) -> dict:
    """Return the facts with their digest, to detect damage."""
    return found | {"check": hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()}
