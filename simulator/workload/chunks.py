"""Requests in chunks: rows drawn or read when they are due, given up when they ended.

Columns are windows in anonymous memory that is reserved, not used: an address costs nothing. A chunk of rows takes
memory from its draw until its pages are given back to the system, so a run holds the rows from the oldest request that
has not ended to the last one drawn. Row numbers are those of a whole table.
"""
import mmap
import sys
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from msgspec.structs import replace

from simulator.core.weighted_samples import WeightedSamples
from simulator.domain import records
from simulator.workload.base import Workload
from simulator.workload.chunked_loop import Loop
from simulator.workload.chunked_texts import MOST_SEGMENTS, laid_out, public_tokens

CHUNK_ROWS = 1 << 15            # whole pages of any system, for rows of any size
CAN_GIVE_BACK = hasattr(mmap.mmap, "madvise")
_OF_LINUX = 0x4000 if sys.platform == "linux" else 0    # sys/mman.h of x86-64 and AArch64
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", _OF_LINUX)      # Python 3.13 names it
_GIVE_BACK = getattr(mmap, "MADV_DONTNEED", None)


class Taker(Protocol):
    """Receives the rows of a run before they are given up.

    limits : returns why each replica turns requests away, as in `domain.run.Run`; set when the replicas are built.
    """

    limits: Callable[[], list]

    def take(self, part: Workload) -> None:
        """Take the next chunk; its requests have ended, unless the run is over."""

    def take_gaps(self, gaps: WeightedSamples) -> None:
        """Take gaps between tokens; `gaps` is empty afterwards."""


class RequestChunks:
    """The rows of a drawn workload.

    taker : receives the rows; set before the run.
    longest_text : a bound of the tokens of a request, prompt and output.
    num_given_up : rows that were given to the taker.
    most_held : the most rows that were held at once.
    first_id : id of the first request; the others follow.
    last_completed_ns : the last completion among the rows given to the taker.
    followers : called with the first and last row of chunks when their memory is given back.
    public_tokens : leading tokens of each text that others may share, int32; None: no request shares any.
    loop : slots that send the requests; None: they come at times of their own.
    num_not_sent : rows that no slot sends any more.
    horizon_ns : end of the run; what clients would see later is taken back then, so its requests have not ended.

    Parameters
    ----------
    num_requests : of the whole run.
    draw_part : called with the first row and the number of rows of each chunk, in order; returns the requests.
    chunk_rows : rows of a chunk, so many that whole pages hold each column: a multiple of a quarter of a page's bytes.
    shares_text : prompts have segments, `MOST_SEGMENTS` at most.
    """

    taker: Taker
    horizon_ns = np.iinfo(np.int64).max
    loop: Loop | None = None
    num_not_sent = 0

    def __init__(self, num_requests: int, draw_part: Callable[[int, int], Workload], longest_text: int,
                 chunk_rows: int = CHUNK_ROWS, first_id: int = 0, shares_text: bool = False):
        self.longest_text, self.num_given_up, self.most_held, self.last_completed_ns = longest_text, 0, 0, 0
        self._num_requests, self._draw_part, self._chunk_rows = num_requests, draw_part, chunk_rows
        self._num_drawn, self.first_id = 0, first_id
        self.followers: list[Callable[[int, int], None]] = []
        self._windows: list[_Window] = []
        self._filled: list[tuple[np.ndarray, Callable]] = []
        self._held: deque[tuple[int, int]] = deque()            # drawn, and not given to the taker: first, last
        self._ended: deque[tuple[int, int, int]] = deque()      # given to the taker: first, last, when at the latest
        self._requests, self._demands, self._outcomes = (
            self._window(dtype) for dtype in (records.REQUEST, records.DEMAND, records.OUTCOME))
        self._segments, self.public_tokens = np.empty(0, records.SEGMENT), None
        if shares_text:
            self._segments = self._window(records.SEGMENT, MOST_SEGMENTS)
            self.public_tokens = self._window(np.dtype(np.int32))

    def workload(self, notes: tuple[str, ...] = (), labels: Mapping[str, list[str]] | None = None) -> Workload:
        """Return the workload of all rows, none of which is drawn yet.

        Parameters as in Workload.
        """
        return Workload(
            requests=self._requests, demands=self._demands, outcomes=self._outcomes, segments=self._segments,
            request_ids=range(self.first_id, self.first_id + self._num_requests),
            labels=dict(labels or {}), notes=notes, chunks=self)

    def column(self, dtype, values_of: Callable[[Workload], object]) -> np.ndarray:
        """Return a further column.

        values_of : called with each chunk when it is drawn, returns its values.
        """
        rows = self._window(np.dtype(dtype))
        self._filled.append((rows, values_of))
        return rows

    def draw(self) -> int:
        """Draw the next chunk; return how many leading rows have been drawn."""
        first, last = self._num_drawn, min(self._num_drawn + self._chunk_rows, self._num_requests)
        part = self._draw_part(first, last - first)
        for rows, drawn in ((self._requests, part.requests), (self._demands, part.demands),
                            (self._outcomes, part.outcomes)):
            rows[first:last] = drawn
        if self.public_tokens is not None:
            self.public_tokens[first:last] = public_tokens(part, first)
            self._segments[MOST_SEGMENTS * first:MOST_SEGMENTS * last] = laid_out(part)
            self._demands["segments_begin"][first:last] = MOST_SEGMENTS * np.arange(first, last)
        for rows, values_of in self._filled:
            rows[first:last] = values_of(part)
        self._held.append((first, last))
        self._num_drawn = last
        self.most_held = max(self.most_held, last - self.num_given_up)
        return last

    def close(self, num_sent: int) -> None:
        """Mark the rows behind the first `num_sent` as not sent."""
        self._requests["status"][num_sent:self._num_drawn] = records.NOT_SENT
        self.num_not_sent = self._num_requests - num_sent

    @property
    def held(self) -> np.ndarray:
        """The requests that were drawn, and not given to the taker."""
        return self._requests[self.num_given_up:self._num_drawn]

    def sum_up(self, gaps: WeightedSamples) -> None:
        """Give the oldest chunks to the taker, as far as all their requests have ended."""
        while self._held and self._have_ended(*self._held[0]):
            first, last = self._held.popleft()
            self._take(first, last)
            self._ended.append((first, last, int(self._requests["arrival_ns"][self._num_drawn - 1])))
        self.taker.take_gaps(gaps)

    def give_up(self, open_ns: int) -> None:
        """Give back the memory of chunks that were given to the taker.

        open_ns : no iteration that began earlier is under way. Replicas have simulated no more than up to the last
            arrival that was drawn when a chunk was given to the taker.
        """
        while self._ended and self._ended[0][2] < open_ns:
            first, last, _ = self._ended.popleft()
            for follow in (*(window.give_back for window in self._windows), *self.followers):
                follow(first, last)

    def rest(self, workload: Workload, gaps: WeightedSamples) -> Workload:
        """Give the remaining rows to the taker, after a run; return these alone."""
        first = self.num_given_up
        while self._held:
            self._take(*self._held.popleft())
        self.taker.take_gaps(gaps)
        return replace(self._part(first, self._num_drawn), notes=workload.notes, chunks=self)

    def _have_ended(self, first: int, last: int) -> bool:
        requests = self._requests[first:last]
        return bool((requests["status"] >= records.COMPLETED).all() and all(
            requests[name].max() <= self.horizon_ns for name in ("first_token_ns", "completed_ns")))

    def _take(self, first: int, last: int) -> None:
        part = self._part(first, last)
        is_done = part.requests["status"] == records.COMPLETED
        self.last_completed_ns = max(
            self.last_completed_ns, int(part.requests["completed_ns"].max(initial=0, where=is_done)))
        self.taker.take(part)
        self.num_given_up = last

    def _part(self, first: int, last: int) -> Workload:
        return Workload(
            requests=self._requests[first:last], demands=self._demands[first:last],
            outcomes=self._outcomes[first:last], segments=np.empty(0, records.SEGMENT),
            request_ids=np.arange(first, last) + self.first_id)

    def _window(self, dtype: np.dtype, count: int = 1) -> np.ndarray:
        """Return a column; count : values of each row."""
        window = _Window(self._num_requests, dtype, count)
        self._windows.append(window)
        return window.rows


class _Window:
    """A column in reserved memory; `rows` : array (num_rows * count,), zeros where nothing was written."""

    def __init__(self, num_rows: int, dtype: np.dtype, count: int):
        self._row_bytes = count * dtype.itemsize
        self._memory = mmap.mmap(-1, num_rows * self._row_bytes,
                                 flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        self.rows = np.frombuffer(self._memory, dtype, count * num_rows)

    def give_back(self, first: int, last: int) -> None:
        """Give the memory of some rows, a chunk, back to the system."""
        self._memory.madvise(_GIVE_BACK, first * self._row_bytes, (last - first) * self._row_bytes)
