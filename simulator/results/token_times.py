"""The time of every token, grouped by request, in bounded memory.

Tokens come in the order of the simulation, in which requests interleave. Each goes at once to its place among those of
its request, since the largest number of tokens of each request is known. Blocks of requests get room when their first
token arrives; requests that run together are neighbours, so the page cache serves these seemingly random accesses.
"""
import os
import tempfile
from collections.abc import Iterator

import numpy as np

from simulator.results.token_places import TokenPlaces
from simulator.workload.base import Workload

SLICE_TOKENS = 1 << 22
SLICE_TOKENS_IN_MEMORY = 1 << 26
MOST_SLICES = 256               # each may be a mapped file


def most_tokens(workload: Workload) -> np.ndarray:
    """Return how many tokens each request can get, (n,) int64.

    Memory is set aside for them.
    """
    return np.minimum(workload.demands["max_tokens"], workload.outcomes["output_tokens"]).astype(np.int64)


class TokenTimes:
    """Collect messages of tokens; give them back by request, in order of time.

    Parameters
    ----------
    most : from `most_tokens`. A request that gets more, since it started over after a failure, costs more time.
    directory : for temporary files without names; None: all stays in memory.
    """

    def __init__(self, most: np.ndarray, directory=None):
        self._directory = directory
        self._most = most
        self._places = TokenPlaces(len(most))
        self._begins = _slices(most, SLICE_TOKENS if directory else SLICE_TOKENS_IN_MEMORY)
        self._memory = [None] * (len(self._begins) - 1)
        self._more = {}             # request: times of tokens without room

    def append(self, rows: np.ndarray) -> None:
        """Take rows of `records.TOKEN`."""
        done = self._places.take(rows, 0)
        while done < len(rows):
            time_ns, request, tokens = rows[done].tolist()
            number = int(np.searchsorted(self._begins, request, side="right")) - 1
            if self._memory[number] is None:
                self._open(number)
            else:
                self._more.setdefault(request, []).extend([time_ns] * tokens)
                done += 1
            done = self._places.take(rows, done)

    def offsets(self) -> np.ndarray:
        """Return (n + 1,) int64: request i has times offsets[i] to offsets[i + 1]."""
        counts = self._places.counts(self._most)
        for request, times_ns in self._more.items():
            counts[request] += len(times_ns)
        return np.concatenate(([0], np.cumsum(counts)))

    def slices(self) -> Iterator[np.ndarray]:
        """Yield the times, int64 ns, a few million at once.

        Joined, they are the array that `offsets` points into. To be called once, at the end.
        """
        all_counts = self._places.counts(self._most)
        for number, memory in enumerate(self._memory):
            first, last = self._begins[number:number + 2]
            counts = all_counts[first:last]
            if memory is None:
                continue
            is_in_order = self._places.join(first, self._most[first:last], memory)
            times_ns = memory[:counts.sum()]
            more = {request: self._more[request] for request in self._more.keys() & range(first, last)}
            if more or not is_in_order:
                times_ns = _in_order(times_ns, counts, {request - first: times for request, times in more.items()})
            self._memory[number] = None
            yield times_ns

    def from_the_end(self, rows: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the time of one token of each of some requests, int64 ns.

        -1: the request has fewer tokens here. To be called before `slices`.

        Parameters
        ----------
        rows : of the requests, ascending.
        places : which token, 1 is the last one that it got.
        """
        found, counts = np.full(len(rows), -1, np.int64), self._places.counts(self._most)
        for number, memory in enumerate(self._memory):
            first, last = self._begins[number:number + 2]
            begins = np.cumsum(self._most[first:last]) - self._most[first:last]
            for at in range(*np.searchsorted(rows, (first, last)).tolist()):
                row, place = int(rows[at]), int(places[at])
                begin, more = begins[row - first], np.array(self._more.get(row, ()), np.int64)
                if counts[row] + len(more) >= place:
                    times_ns = np.concatenate([memory[begin:begin + counts[row]], more])
                    found[at] = np.partition(times_ns, len(times_ns) - place)[len(times_ns) - place]
        return found

    def close(self) -> None:
        """Free the memory and the files."""
        self._memory.clear()

    def _open(self, number: int) -> None:
        """Give room to a block of requests."""
        first, last = self._begins[number:number + 2]
        room = self._most[first:last]
        size = max(int(room.sum()), 1)
        if self._directory is None:
            self._memory[number] = np.empty(size, np.int64)
        else:
            with tempfile.TemporaryFile(dir=self._directory) as file:
                if hasattr(os, "posix_fallocate"):  # a full disk is an error here; in mapped memory it would be a crash
                    os.posix_fallocate(file.fileno(), 0, 8 * size)
                self._memory[number] = np.memmap(file, np.int64, "w+", shape=(size,))
        self._places.open(first, room, self._memory[number])


def _slices(most: np.ndarray, size: int) -> list[int]:
    """Return where blocks of about `size` tokens begin, each of whole requests, and the end of the last."""
    ends = np.cumsum(most)
    size = max(size, int(ends[-1]) // MOST_SLICES if len(ends) else 0)
    begins = [0]
    while begins[-1] < len(most):
        before = int(ends[begins[-1] - 1]) if begins[-1] else 0
        begins.append(max(int(np.searchsorted(ends, before + size, side="right")), begins[-1] + 1))
    return begins


def _in_order(times_ns: np.ndarray, counts: np.ndarray, more: dict) -> np.ndarray:
    """Sort the times of each request; `counts` has the number of each, `more` has others. Rarely needed."""
    owner = np.repeat(np.arange(len(counts)), counts)
    owner = np.concatenate([owner, *(np.full(len(times), request) for request, times in more.items())])
    times_ns = np.concatenate([times_ns, *more.values()]).astype(np.int64)
    return times_ns[np.lexsort((times_ns, owner))]
