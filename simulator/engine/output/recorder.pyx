"""Iterations, tokens and gaps between messages, recorded during the run."""
from libc.string cimport memcpy, memmove
cimport cython

from simulator.domain.batch cimport BatchShape, rows_of

from contextlib import nullcontext
from threading import Lock

import numpy as np

from simulator.domain import records

CHUNK_ROWS = 1 << 16            # iterations passed on at once, at most
CHUNK_TOKENS = 1 << 15          # messages of tokens: 512 KiB, which fit the processor's caches


@cython.final
cdef class Recorder:
    """Collect rows in chunks and pass them on to `sink`.

    sink : has `iterations(rows)` and `tokens(rows)`; the arrays are reused afterwards. None: no table is recorded.
    iterations, tokens : whether each table is recorded.
    """

    def __init__(self, sink=None, bint iterations=False, bint tokens=False):
        self._sink = sink
        self.gaps = WeightedSamples()
        self.wants_iterations = iterations
        self.wants_tokens = tokens
        if iterations:
            self._hold_iterations(np.empty(2 * CHUNK_ROWS, records.ITERATION))
            self._sorted_rows, self._order = np.empty(0, records.ITERATION), RowOrder()
        if tokens:
            self._hold_tokens(np.empty(CHUNK_TOKENS, records.TOKEN))

    def number_ranks(self, ranks):
        """Set the rank that each replica is in its data-parallel replica, int32 (replicas,); else all are 0."""
        cdef int32_t[::1] view = ranks
        self._rank_numbers, self._ranks = ranks, &view[0]

    def add_up(self, num_requests):
        """Record how long each request executed; for iterations recorded one by one, without group members."""
        self.executions = Executions(num_requests)

    def _hold_iterations(self, rows):
        cdef IterationRow[::1] view = rows
        self._iteration_rows = rows
        self._iterations = &view[0]
        self._room_iterations = len(rows)

    def _hold_tokens(self, rows):
        cdef TokenRow[::1] view = rows
        self._token_rows = rows
        self._tokens = &view[0]
        self._room_tokens = len(rows)

    cdef int iteration(self, int32_t index, const Batch* batch) except -1 nogil:
        while self.num_iterations + batch.num_stages > self._room_iterations:
            self._grow_iterations()
        self._fill(&self._iterations[self.num_iterations], index, batch)
        self.num_iterations += 1
        if batch.num_stages > 1:
            self._add_stages(batch)
        if self.executions is not None:
            self.executions.add(batch)
        return 0

    cdef void _fill(self, IterationRow* row, int32_t index, const Batch* batch) noexcept nogil:
        cdef const BatchShape* shape = &batch.shape
        row.replica = index
        row.stage = 0
        row.start_ns = batch.start_ns
        row.begin_ns = batch.end_ns - batch.duration_ns
        row.duration_ns = batch.duration_ns
        row.sequences = shape.num_sequences
        row.prefill_tokens = <int32_t>shape.prefill_tokens
        row.decode_tokens = <int32_t>shape.decode_tokens
        row.context_tokens = shape.context_tokens
        row.waiting = batch.waiting
        row.running = batch.running
        row.used_blocks = batch.used_blocks
        row.preempted = batch.num_preempted
        row.rank = self._ranks[index] if self._ranks != NULL else 0
        row.padded_tokens = <int32_t>rows_of(shape)
        row.encoder_tokens = <int32_t>shape.encoder_tokens

    cdef int repeated(self, int32_t index, const Batch* batch, const int64_t* ends_ns, const int32_t* used_blocks,
                      const int64_t* contexts, int32_t count) except -1 nogil:
        cdef IterationRow* row
        cdef IterationRow first
        cdef int32_t i
        while self.num_iterations + count > self._room_iterations:
            self._grow_iterations()
        self._fill(&first, index, batch)
        row = &self._iterations[self.num_iterations]
        row[0] = first
        for i in range(1, count):
            row[i] = first
            row[i].start_ns = row[i].begin_ns = ends_ns[i - 1]
            row[i].duration_ns = ends_ns[i] - ends_ns[i - 1]
            row[i].context_tokens = (contexts[i] if contexts != NULL
                                     else first.context_tokens + <int64_t>i * batch.num_members)
            row[i].used_blocks = used_blocks[i]
        self.num_iterations += count
        return 0

    cdef void _add_stages(self, const Batch* batch) noexcept nogil:
        """Make the row just written the first stage's, and add one for each of the others."""
        cdef IterationRow* row = &self._iterations[self.num_iterations - 1]
        cdef int32_t i
        row.duration_ns = batch.visits[0].end_ns - batch.visits[0].start_ns
        for i in range(1, batch.num_stages):
            row[i] = row[0]
            row[i].stage = i
            row[i].start_ns = row[i].begin_ns = batch.visits[i].start_ns
            row[i].duration_ns = batch.visits[i].end_ns - batch.visits[i].start_ns
        self.num_iterations += batch.num_stages - 1
        self._has_stages = True

    cdef int _grow_iterations(self) except -1 nogil:
        with gil:
            self._hold_iterations(np.resize(self._iteration_rows, 2 * len(self._iteration_rows)))
        return 0

    cdef int _flush_tokens(self) except -1 nogil:
        with gil:
            with self._turn or nullcontext():
                self._sink.tokens(self._token_rows[:self.num_tokens])
        self.num_tokens = 0
        return 0

    def lane(self):
        """Return a recorder of the same tables for another thread; `absorb` takes over its account."""
        cdef Recorder made = Recorder(self._sink, self.wants_iterations, self.wants_tokens)
        self._turn = made._turn = self._turn or Lock()
        made._rank_numbers, made._ranks, made.executions = self._rank_numbers, self._ranks, self.executions
        return made

    def absorb(self, Recorder lane):
        """Take over the counts and rows of a lane, gaps aside."""
        self.iterations += lane.iterations
        self.finished += lane.finished
        lane.iterations = lane.finished = 0
        self._has_stages = self._has_stages or lane._has_stages
        if lane.num_iterations:
            while self.num_iterations + lane.num_iterations > self._room_iterations:
                self._grow_iterations()
            memcpy(&self._iterations[self.num_iterations], lane._iterations, lane.num_iterations * sizeof(IterationRow))
            self.num_iterations += lane.num_iterations
            lane.num_iterations = lane._num_ordered = 0
        self._num_ordered = self.num_iterations

    def flush(self, int64_t before_ns, bint in_order):
        """Pass on iterations that start before an instant, sorted by start and replica.

        before_ns : no iteration that starts earlier is still to be recorded.
        in_order : rows are sorted already, as far as stages allow.
        """
        cdef int64_t ready
        if not in_order or self._has_stages:
            self._sort_from(0)
        ready = self._num_before(before_ns)
        for begin in range(0, ready, CHUNK_ROWS):
            self._sink.iterations(self._iteration_rows[begin:min(begin + CHUNK_ROWS, ready)])
        self.num_iterations = self._num_ordered = self.num_iterations - ready
        memmove(self._iterations, self._iterations + ready, self.num_iterations * sizeof(IterationRow))

    cdef int64_t _num_before(self, int64_t before_ns) noexcept nogil:
        """Return the number of rows, in order of start, that start before an instant."""
        cdef int64_t first = 0, last = self.num_iterations, middle
        while first < last:
            middle = (first + last) // 2
            if self._iterations[middle].start_ns < before_ns:
                first = middle + 1
            else:
                last = middle
        return first

    def put_in_order(self):
        """Sort the rows recorded since the last call: less is left to sort when all is passed on."""
        self._sort_from(self._num_ordered)
        self._num_ordered = self.num_iterations

    def _sort_from(self, int64_t first):
        """Sort the rows held, by start and replica, from row `first` on."""
        cdef IterationRow[::1] spare
        cdef int64_t count = self.num_iterations - first
        if count == 0:
            return
        if len(self._sorted_rows) < self._room_iterations:
            self._sorted_rows = np.empty(self._room_iterations, records.ITERATION)
        spare = self._sorted_rows
        with nogil:
            self._order.sort(self._iterations + first, count, &spare[first])
            if first > 0:
                memcpy(self._iterations + first, &spare[first], count * sizeof(IterationRow))
        if first == 0:
            rows, self._sorted_rows = self._sorted_rows, self._iteration_rows
            self._hold_iterations(rows)

    def close(self):
        """Pass on the remaining token rows."""
        if self.num_tokens:
            self._flush_tokens()
