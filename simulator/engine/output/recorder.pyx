"""What is written down while running: iterations, tokens, inter-token gaps."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
cimport cython

from simulator.core.weighted_samples cimport WeightedSamples
from simulator.domain.batch cimport BatchShape
from simulator.domain.tables cimport IterationRow, TokenRow
from simulator.domain.iteration cimport Batch

from contextlib import nullcontext
from threading import Lock

import numpy as np

from simulator.domain import records

CHUNK_ROWS = 1 << 16            # iterations passed on at once, at most
CHUNK_TOKENS = 1 << 15          # messages of tokens: 512 KiB, which fit the processor's caches


@cython.final
cdef class Recorder:
    """Collect rows in chunks and pass them on to `sink`.

    sink : has `iterations(rows)` and `tokens(rows)`; the arrays are reused afterwards. None: nothing is wanted.
    iterations, tokens : which of the two tables are wanted.
    """

    def __init__(self, sink=None, bint iterations=False, bint tokens=False):
        self._sink = sink
        self.gaps = WeightedSamples()
        self.wants_iterations = iterations
        self.wants_tokens = tokens
        if iterations:
            self._hold_iterations(np.empty(2 * CHUNK_ROWS, records.ITERATION))
        if tokens:
            self._hold_tokens(np.empty(CHUNK_TOKENS, records.TOKEN))

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
        row.spare = 0

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
        """Make the row just written that of the first stage, and add one for each of the others."""
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
        """Return a recorder of the same things for another thread, whose account `absorb` takes over."""
        cdef Recorder made = Recorder(self._sink, self.wants_iterations, self.wants_tokens)
        self._turn = made._turn = self._turn or Lock()
        return made

    def absorb(self, Recorder lane):
        """Take over what a lane has counted and holds, gaps aside."""
        self.iterations += lane.iterations
        self.finished += lane.finished
        lane.iterations = lane.finished = 0
        self._has_stages = self._has_stages or lane._has_stages
        if lane.num_iterations:
            while self.num_iterations + lane.num_iterations > self._room_iterations:
                self._grow_iterations()
            memcpy(&self._iterations[self.num_iterations], lane._iterations, lane.num_iterations * sizeof(IterationRow))
            self.num_iterations += lane.num_iterations
            lane.num_iterations = 0

    def flush(self, int64_t before_ns, bint in_order):
        """Pass on iterations that start before an instant, sorted by start and replica.

        before_ns : no iteration that starts earlier is still to come.
        in_order : rows are sorted already, as far as stages allow.
        """
        if not self.num_iterations:
            return
        rows = self._iteration_rows[:self.num_iterations]
        if not in_order or self._has_stages:
            rows = _raw(rows)[_order(rows["start_ns"], rows["replica"])].view(rows.dtype)
        ready = int(np.searchsorted(rows["start_ns"], before_ns))
        for begin in range(0, ready, CHUNK_ROWS):
            self._sink.iterations(rows[begin:min(begin + CHUNK_ROWS, ready)])
        kept = _raw(rows)[ready:].copy()
        _raw(self._iteration_rows)[:len(kept)] = kept
        self.num_iterations = len(kept)

    def close(self):
        """Pass on what is left of the token rows."""
        if self.num_tokens:
            self._flush_tokens()


def _raw(rows):
    """Look at records as bytes: NumPy copies those whole, and records field by field."""
    return rows.view(f"V{rows.itemsize}")


def _order(start_ns, replica):
    """Return the order by start, then by replica; rows of one replica that start together stay as they are."""
    order = np.argsort(start_ns, kind="stable")         # a merge of sorted stretches; equal starts are rare
    start_ns, replica = start_ns[order], replica[order]
    if ((np.diff(start_ns) == 0) & (np.diff(replica) < 0)).any():
        return order[np.lexsort((replica, start_ns))]
    return order
