"""Digests of files that tables were made from, remembered while a file stays as it was.

Names, sizes and times of change cost nothing to ask, while profiles take longer to digest than tables made from them
to read. A digest is believed while the size and the times of its file are what they were, and only where the file was
not just written: a second write within a tick of the clock would leave the same time behind. (The same care as git's
with its index, Documentation/technical/racy-git.)
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
    """Return the SHA-256 of what `content` reads from a file, hexadecimal.

    Raises
    ------
    InputErrors
        The file is not there, or what `content` raises. That nothing can be remembered is no fault.
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
    """Return the digest in a file of ours; None: there is none for the file as it is now, or it is damaged."""
    try:
        found = json.loads(kept.read_text(encoding="utf-8"))
        digest = found["sha256"]
        return digest if found == _signed(known | {"sha256": digest}) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(kept: Path, found: dict) -> None:
    """Write a file, whole or not at all; where nothing can be written, nothing is remembered."""
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
    """Return what is kept, with a digest of it: a flipped bit is not believed."""
    return found | {"check": hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()}
