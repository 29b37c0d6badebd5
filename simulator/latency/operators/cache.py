"""Cache of operator tables in HDF5 files, each under the digest of its source file."""
import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from simulator.errors import InputErrors
from simulator.latency import source_digest
from simulator.latency.operators.files import read_columns
from simulator.latency.table_cache import DAMAGE, cache_folder, damaged, new_hdf5

FORMAT = 5                      # of the cache files: increase it when reading changes


def columns_of(path: Path, cache_directory: str | None, notes: list[str] | None = None) -> tuple[dict, str]:
    """Return the columns of a table by name, and the SHA-256 of its file.

    The table is converted if the cache does not have it.

    notes : receives a note if a cache file was damaged and is rewritten.

    Raises
    ------
    InputErrors
        The file cannot be read, or the cache cannot be written.
    """
    digest = digest_of(path, cache_directory)
    return converted(digest, cache_directory, lambda: read_columns(path), notes), digest


def converted(digest: str, cache_directory: str | None, read: Callable[[], dict],
              notes: list[str] | None = None) -> dict[str, np.ndarray]:
    """Return the columns cached under a digest.

    If there are none, or damaged ones, the result of `read` is returned and cached.
    """
    kept = cache_folder(cache_directory) / f"operators-{FORMAT}-{digest[:32]}.h5"
    columns = _read(kept, digest)
    if columns is None:
        if notes is not None and kept.is_file():
            notes.append(damaged(kept))
        columns = read()
        _write(kept, columns, digest)
    return columns


def digest_of(path: Path, cache_directory: str | None) -> str:
    """Return the SHA-256 of a file, without unpacking it."""
    return source_digest.digest_of(path, cache_directory, packed_bytes)


def packed_bytes(path: Path) -> bytes:
    """Return the raw bytes of a file.

    Raises
    ------
    InputErrors
        The file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputErrors([f"{path}: cannot be read: {error.strerror or error}"]) from error


def _read(path: Path, digest: str) -> dict[str, np.ndarray] | None:
    """Return the columns in a cache file; None: it is absent or damaged."""
    if not path.is_file():
        return None
    import h5py  # half of the start-up time of backends that do not need it

    try:
        with h5py.File(path, "r") as file:
            if file.attrs["source_sha256"] != digest:
                return None
            stored = {name: (column[()], column.attrs.get("names")) for name, column in file.items()}
            if file.attrs["sha256"] != _digest(stored):
                return None
            return {name: values if names is None else np.array(names, dtype=str)[values]
                    for name, (values, names) in stored.items()}
    except DAMAGE:
        return None


def _write(path: Path, columns: dict[str, np.ndarray], digest: str) -> None:
    """Write a file, whole or not at all; texts as codes and a list of texts."""
    stored = {name: _coded(values) for name, values in columns.items()}
    with new_hdf5(path) as file:
        file.attrs.update(source_sha256=digest, sha256=_digest(stored))
        for name, (values, names) in stored.items():
            column = file.create_dataset(name, data=values, track_times=False, compression="gzip", compression_opts=1)
            if names is not None:
                column.attrs["names"] = names


def _coded(values: np.ndarray) -> tuple[np.ndarray, list[str] | None]:
    """Return the values to store; for texts: their codes, and the list of texts."""
    if values.dtype.kind != "U":
        return values, None
    names, codes = np.unique(values, return_inverse=True)
    return codes.astype(np.int16), [str(name) for name in names]


def _digest(stored: dict[str, tuple]) -> str:
    digest = hashlib.sha256()
    for name, (values, names) in sorted(stored.items()):
        digest.update(f"{name} {len(values)} {values.dtype.str} {None if names is None else [*names]}".encode())
        digest.update(np.ascontiguousarray(values))
    return digest.hexdigest()
