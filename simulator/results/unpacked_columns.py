"""Some columns of a table of results.h5, read past HDF5's filters: the counterpart of `packed_table`.

A chunk holds its rows byte by byte of the row (shuffle), so that a column is a few planes of it: what is not asked for
is inflated, but never put together, and planes of zeros, the upper bytes of most numbers, are not written. Chunks are
inflated side by side. Adler-32, which ends each stream, is checked; where anything is not as expected, HDF5 reads the
table and says what is wrong. Times are in README.md.
"""
import os
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np

FILTERS = (h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_FLETCHER32)
CHECK_BYTES = 4                 # of Fletcher-32, behind a chunk
MOST_THREADS = 4                # of more the disk and the memory have no use


def read_columns(dataset: h5py.Dataset, names: Iterable[str]) -> dict[str, np.ndarray] | None:
    """Return columns of a table of numbers.

    None: it is not stored as `packed_table` stores tables, or is damaged.

    Parameters
    ----------
    names : of columns that it has.
    """
    if not _is_packed(dataset):
        return None
    fields = {name: dataset.dtype.fields[name][:2] for name in names}
    chunk_rows, row_bytes = dataset.chunks[0], dataset.dtype.itemsize
    count = dataset.id.get_num_chunks()
    if count * chunk_rows < len(dataset):               # chunks that were never written hold zeros
        return None
    found = {name: np.zeros(count * chunk_rows, dtype) for name, (dtype, _) in fields.items()}

    def unpack(first: int, packed: bytes) -> bool:
        planes = zlib.decompress(memoryview(packed)[:-CHECK_BYTES], bufsize=chunk_rows * row_bytes)
        if len(planes) != chunk_rows * row_bytes or first + chunk_rows > count * chunk_rows:
            return False
        rows = np.frombuffer(planes, np.uint8).reshape(row_bytes, chunk_rows)
        for name, (dtype, offset) in fields.items():
            place = found[name][first:first + chunk_rows].view(np.uint8).reshape(chunk_rows, dtype.itemsize)
            for byte in range(dtype.itemsize):
                if (plane := rows[offset + byte]).any():
                    place[:, byte] = plane
        return True

    try:
        chunks = [dataset.id.get_chunk_info(number) for number in range(count)]
        if any(chunk.filter_mask for chunk in chunks):
            return None
        with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
            jobs = [pool.submit(unpack, chunk.chunk_offset[0], dataset.id.read_direct_chunk(chunk.chunk_offset)[1])
                    for chunk in chunks]
            is_whole = all(job.result() for job in jobs)
    except zlib.error:
        return None
    return {name: column[:len(dataset)] for name, column in found.items()} if is_whole else None


def _is_packed(dataset: h5py.Dataset) -> bool:
    """Say whether a table has the filters of `packed_table`, in their order, and columns of numbers alone."""
    plist = dataset.id.get_create_plist()
    filters = tuple(plist.get_filter(number)[0] for number in range(plist.get_nfilters()))
    return filters == FILTERS and dataset.ndim == 1 and dataset.dtype.names is not None
