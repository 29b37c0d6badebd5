"""Some columns of a table of results.h5, bypassing HDF5's filters: the counterpart of `packed_table`.

A chunk holds its rows byte by byte of the row (shuffle), so that a column is a few planes of it: other columns
are inflated, but never assembled, and planes of zeros, the upper bytes of most numbers, are not written. Chunks are
inflated side by side, a block ahead of the current one, so that a table of any length takes the same
memory. Adler-32, which ends each stream, is checked; where anything is not as expected, HDF5 reads the rest and reports
the fault. Times are in README.md.
"""
import os
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import h5py
import numpy as np

from simulator.results.blocks import BLOCK_ROWS, Columns

FILTERS = (h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_FLETCHER32)
CHECK_BYTES = 4                 # of Fletcher-32, behind a chunk
MOST_THREADS = 4                # more do not help disk or memory
ALL = ""                        # name for the data of a dataset without columns


def column_blocks(dataset: h5py.Dataset, names: Iterable[str], block_rows: int = BLOCK_ROWS) -> Iterator[Columns]:
    """Yield columns of a table, from its first row to its last, in blocks.

    Parameters
    ----------
    names : of columns that it has; of a dataset of plain numbers, `ALL`.
    block_rows : approximate rows of a block.
    """
    done = 0
    for block in _unpacked(dataset, tuple(names), block_rows):
        yield block
        done += len(next(iter(block.values())))
    while done < len(dataset):          # the rest: HDF5 reads it, or reports why not
        rows = dataset[done:done + block_rows]
        yield {name: rows[name] if name else rows for name in names}
        done += len(rows)


def _unpacked(dataset: h5py.Dataset, names: tuple[str, ...], block_rows: int) -> Iterator[Columns]:
    """Yield blocks while chunks have the form of `packed_table`."""
    if not names or not _is_packed(dataset):
        return
    count = -(-len(dataset) // dataset.chunks[0])
    if dataset.id.get_num_chunks() != count:            # chunks that were never written hold zeros
        return
    table = _Packed(dataset, names)
    step = max(1, block_rows // dataset.chunks[0])
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
        ahead = None
        for first in range(0, count, step):
            ready, ahead = ahead, table.started(pool, range(first, min(first + step, count)))
            if ready is not None:
                if (columns := _finished(*ready)) is None:
                    return
                yield columns
        if ahead is not None and (columns := _finished(*ahead)) is not None:
            yield columns


class _Packed:
    """A table with packed chunks, of which some are assembled at a time."""

    def __init__(self, dataset: h5py.Dataset, names: tuple[str, ...]):
        self._dataset = dataset
        self._rows, self._row_bytes = dataset.chunks[0], dataset.dtype.itemsize
        self._fields = {name: dataset.dtype.fields[name][:2] if name else (dataset.dtype, 0) for name in names}

    def started(self, pool: ThreadPoolExecutor, chunks: range) -> tuple[Columns, list[Future]]:
        """Return columns, cut to the length of the table, and the jobs that fill them."""
        columns = {name: np.zeros(len(chunks) * self._rows, dtype) for name, (dtype, _) in self._fields.items()}
        jobs = [pool.submit(self._unpack, columns, place, *self._dataset.id.read_direct_chunk((chunk * self._rows,)))
                for place, chunk in enumerate(chunks)]
        length = len(self._dataset) - chunks[0] * self._rows
        return {name: column[:length] for name, column in columns.items()}, jobs

    def _unpack(self, columns: Columns, place: int, skipped_filters: int, packed: bytes) -> bool:
        """Put the rows of a chunk into their place in columns; return whether the chunk is valid."""
        if skipped_filters:
            return False
        planes = zlib.decompress(memoryview(packed)[:-CHECK_BYTES], bufsize=self._rows * self._row_bytes)
        if len(planes) != self._rows * self._row_bytes:
            return False
        rows = np.frombuffer(planes, np.uint8).reshape(self._row_bytes, self._rows)
        for name, (dtype, offset) in self._fields.items():
            column = columns[name].view(np.uint8).reshape(-1, self._rows, dtype.itemsize)
            for byte in range(dtype.itemsize):
                if (plane := rows[offset + byte]).any():
                    column[place, :, byte] = plane
        return True


def _finished(columns: Columns, jobs: list[Future]) -> Columns | None:
    """Return the columns once they are filled; None: a chunk is damaged."""
    try:
        return columns if all(job.result() for job in jobs) else None
    except zlib.error:
        return None


def _is_packed(dataset: h5py.Dataset) -> bool:
    """Return whether a table has the filters of `packed_table`, in their order."""
    plist = dataset.id.get_create_plist()
    filters = tuple(plist.get_filter(number)[0] for number in range(plist.get_nfilters()))
    return filters == FILTERS and dataset.ndim == 1 and dataset.dtype.kind in "Viuf"
