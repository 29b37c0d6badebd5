"""Iterations, tokens and gaps between messages, recorded during the run."""
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.domain.batch cimport BatchShape, rows_of

from contextlib import nullcontext
from threading import Lock

import numpy as np

from simulator.domain import records
from simulator.engine.output.row_merge import RowMerge

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
            self._log = RowLog()
            self._logs = [self._log]
            self._merge = RowMerge(sink, self._logs)
        if tokens:
            self._hold_tokens(np.empty(CHUNK_TOKENS, records.TOKEN))

    def number_ranks(self, ranks):
        """Set the rank that each replica is in its data-parallel replica, int32 (replicas,); else all are 0."""
        cdef int32_t[::1] view = ranks
        self._rank_numbers, self._ranks = ranks, &view[0]

    def add_up(self, num_requests):
        """Record how long each request executed; for iterations recorded one by one, without group members."""
        self.executions = Executions(num_requests)

    def send_tokens_through(self, make):
        """Pass tokens on to make(sink), in place of the sink."""
        self._sink = make(self._sink)

    def _hold_tokens(self, rows):
        cdef TokenRow[::1] view = rows
        self._token_rows = rows
        self._tokens = &view[0]
        self._room_tokens = len(rows)

    cdef int iteration(self, int32_t index, const Batch* batch) except -1 nogil:
        cdef IterationRow row
        self._fill(&row, index, batch)
        if batch.num_stages > 1:
            self._add_stages(&row, batch)
        else:
            self._log.add(&row)
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
                      const int64_t* contexts, int32_t count, bint overlap) except -1 nogil:
        cdef IterationRow row
        cdef int64_t context_tokens
        cdef int32_t i
        self._fill(&row, index, batch)
        self._log.add(&row)
        for i in range(1, count):
            context_tokens = (contexts[i] if contexts != NULL
                              else row.context_tokens + <int64_t>i * batch.num_members)
            self._log.repeat(index, ends_ns[i] - ends_ns[i - 1], context_tokens, used_blocks[i], overlap)
        return 0

    cdef int _add_stages(self, IterationRow* row, const Batch* batch) except -1 nogil:
        """Add a row for each stage; the first was scheduled before it began."""
        cdef int32_t i
        row.duration_ns = batch.visits[0].end_ns - batch.visits[0].start_ns
        for i in range(batch.num_stages):
            if i > 0:
                row.stage = i
                row.start_ns = row.begin_ns = batch.visits[i].start_ns
                row.duration_ns = batch.visits[i].end_ns - batch.visits[i].start_ns
            self._log.add(row)
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
        if self.wants_iterations:
            self._logs.append(made._log)
            made._logs = made._merge = None
        return made

    def absorb(self, Recorder lane):
        """Take over the counts of a lane, gaps aside."""
        self.iterations += lane.iterations
        self.finished += lane.finished
        lane.iterations = lane.finished = 0

    def held_bytes(self):
        """Return the memory of rows of iterations that wait for `flush`."""
        return sum(log.held_bytes for log in self._logs)

    def flush(self, int64_t before_ns):
        """Pass on iterations that start before an instant, sorted by start and replica, as far as they fill a piece.

        before_ns : no iteration that starts earlier is still to be recorded.
        """
        self._merge.pass_on(before_ns)

    def pass_tokens_on(self):
        """Pass on the tokens that are held."""
        if self.num_tokens:
            self._flush_tokens()

    def close(self):
        """Pass on the remaining rows."""
        if self._merge is not None:
            self._merge.pass_on(NEVER_NS)
            self._merge.close()
        self.pass_tokens_on()
