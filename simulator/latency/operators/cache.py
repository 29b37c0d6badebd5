"""Keep operator tables in HDF5 files, each under the digest of the file it was read from."""
import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from simulator.errors import InputErrors
from simulator.latency.operators.files import read_columns
from simulator.latency.table_cache import DAMAGE, cache_folder, new_hdf5

FORMAT = 2                      # of the files: raise it when reading changes


def columns_of(path: Path, cache_directory: str | None) -> tuple[dict[str, np.ndarray], str]:
    """Return the columns of a table and the SHA-256 of its file.

    The table is converted where that was not done before.

    Raises
    ------
    InputErrors
        The file cannot be read, or the cache not be written.
    """
    digest = digest_of(path)
    return converted(digest, cache_directory, lambda: read_columns(path)), digest


def converted(digest: str, cache_directory: str | None, read: Callable[[], dict]) -> dict[str, np.ndarray]:
    """Return the columns kept under a digest.

    Where there are none, those that `read` returns, from now on kept.
    """
    kept = cache_folder(cache_directory) / f"operators-{FORMAT}-{digest[:32]}.h5"
    columns = _read(kept, digest)
    if columns is None:
        columns = read()
        _write(kept, columns, digest)
    return columns


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, packed as it may be."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputErrors([f"{path}: cannot be read: {error.strerror or error}"]) from error


def _read(path: Path, digest: str) -> dict[str, np.ndarray] | None:
    """Return the columns in a file; None: there is none, or a damaged one."""
    if not path.is_file():
        return None
    import h5py  # half of the start-up time, where another backend needs none of it

    try:
        with h5py.File(path, "r") as file:
            if file.attrs["source_sha256"] != digest:
                return None
            columns = {}
            for name, column in file.items():
                values = column[()]
                names = column.attrs.get("names")
                columns[name] = values if names is None else np.array(names, dtype=str)[values]
            return columns if file.attrs["sha256"] == _digest(columns) else None
    except DAMAGE:
        return None


def _write(path: Path, columns: dict[str, np.ndarray], digest: str) -> None:
    """Write a file, whole or not at all; texts as codes beside their names."""
    with new_hdf5(path) as file:
        file.attrs.update(source_sha256=digest, sha256=_digest(columns))
        for name, values in columns.items():
            _write_column(file, name, values)


def _write_column(file, name: str, values: np.ndarray) -> None:
    is_text = values.dtype.kind == "U"
    names, codes = np.unique(values, return_inverse=True) if is_text else ([], values)
    column = file.create_dataset(name, data=codes.astype(np.int16) if is_text else codes, track_times=False,
                                 compression="gzip", compression_opts=1)
    if is_text:
        column.attrs["names"] = [str(each) for each in names]


def _digest(columns: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name, values in sorted(columns.items()):
        is_text = values.dtype.kind == "U"
        digest.update(f"{name} {len(values)}".encode())
        digest.update("\n".join(values).encode() if is_text else np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
