"""The time of every token, grouped by request, in bounded memory.

Tokens come in the order of the simulation, in which requests interleave. They are kept in a temporary file, and when
the run is over each goes to its place among those of its request. Requests that run together are neighbours in both
files, so the system's page cache serves what looks like random access.
"""
import os
import tempfile
from collections.abc import Iterator

import numpy as np

from simulator.domain import records

SLICE_TOKENS = 1 << 22


class TokenTimes:
    """Collect messages of tokens; give them back by request, in order of time.

    Parameters
    ----------
    num_requests : rows of the request table.
    directory : where the temporary files lie (they have no name); None: where the system puts such files.
    """

    def __init__(self, num_requests: int, directory=None):
        self._directory = directory
        self._spool = tempfile.TemporaryFile(dir=directory)     # noqa: SIM115 -- until close()
        self._counts = np.zeros(num_requests, np.int64)

    def append(self, rows: np.ndarray) -> None:
        """Take rows of `records.TOKEN`."""
        np.add.at(self._counts, rows["request"], rows["tokens"])
        self._spool.write(rows.tobytes())

    def offsets(self) -> np.ndarray:
        """Return (n + 1,) int64: request i has times offsets[i] to offsets[i + 1]."""
        return np.concatenate(([0], np.cumsum(self._counts)))

    def slices(self) -> Iterator[np.ndarray]:
        """Yield the times, int64 ns, a few million at once.

        Joined, they are what `offsets` points into.
        """
        offsets = self.offsets()
        if not offsets[-1]:
            return
        with tempfile.TemporaryFile(dir=self._directory) as file:
            if hasattr(os, "posix_fallocate"):      # a full disk is an error here; in mapped memory it would be a crash
                os.posix_fallocate(file.fileno(), 0, int(offsets[-1]) * 8)
            times_ns = np.memmap(file, np.int64, "w+", shape=(int(offsets[-1]),))
            self._scatter(times_ns, offsets[:-1].copy())
            first = 0
            while first < len(self._counts):
                last = int(np.searchsorted(offsets, offsets[first] + SLICE_TOKENS, side="right")) - 1
                last = max(last, first + 1)
                part = np.array(times_ns[offsets[first]:offsets[last]])
                yield _in_order(part, self._counts[first:last])
                first = last

    def close(self) -> None:
        """Forget everything."""
        self._spool.close()

    def _scatter(self, times_ns: np.ndarray, places: np.ndarray) -> None:
        """Put each token at the next free place of its request; `places` is used up."""
        self._spool.seek(0)
        while buffer := self._spool.read(records.TOKEN.itemsize << 16):
            rows = np.frombuffer(buffer, records.TOKEN)
            rows = rows[np.argsort(rows["request"], kind="stable")]
            request = np.repeat(rows["request"], rows["tokens"])
            _, group_start, group_size = np.unique(request, return_index=True, return_counts=True)
            rank = np.arange(len(request)) - np.repeat(group_start, group_size)
            times_ns[places[request] + rank] = np.repeat(rows["time_ns"], rows["tokens"])
            places[request[group_start]] += group_size


def _in_order(times_ns: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sort the times of each request; `counts` tells how many each has. Rarely needed, so look first."""
    owner = np.repeat(np.arange(len(counts)), counts)
    backwards = np.flatnonzero(np.diff(times_ns) < 0)
    if np.any(owner[backwards] == owner[backwards + 1]):
        return times_ns[np.lexsort((times_ns, owner))]
    return times_ns
