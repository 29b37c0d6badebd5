"""Iterations, tokens and gaps between messages, recorded during the run."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.weighted_samples cimport WeightedSamples
from simulator.domain.tables cimport IterationRow, TokenRow
from simulator.domain.iteration cimport Batch
from simulator.engine.output.executions cimport Executions
from simulator.engine.output.row_log cimport RowLog


@cython.final
cdef class Recorder:
    cdef readonly bint wants_iterations         # rows of /iterations
    cdef readonly bint wants_tokens             # rows of /token_times
    cdef readonly int64_t iterations            # ended so far, over all replicas
    cdef readonly int64_t finished              # requests that left, for any reason
    cdef object _turn                           # Lock, held while the sink receives tokens of a lane; None: no lanes
    cdef object _sink                           # has .iterations(rows) and .tokens(rows); None: no table is recorded
    cdef RowLog _log                            # of iterations; None: not recorded
    cdef list _logs                             # list of RowLog: it and those of the lanes
    cdef object _merge                          # RowMerge of _logs; None: a lane, or not recorded
    cdef object _token_rows                     # array that _tokens borrows from; None: not recorded
    cdef TokenRow* _tokens                      # [_room_tokens] rows not passed on yet, in order of recording
    cdef int64_t num_tokens                     # rows held
    cdef int64_t _room_tokens                   # rows that fit before the array is passed on
    cdef const int32_t* _ranks                  # [replica] rank in its data-parallel replica; NULL: no ranks
    cdef object _rank_numbers                   # the array that _ranks borrows from
    cdef readonly Executions executions         # None: execution times are not recorded
    cdef readonly WeightedSamples gaps          # ns between two messages of a request, by number of messages

    # A message with `tokens` tokens of request `row` was observed at `time_ns`.
    cdef inline int token(self, int32_t row, int64_t time_ns, int32_t tokens) except -1 nogil:
        if self.num_tokens == self._room_tokens:
            self._flush_tokens()
        self._tokens[self.num_tokens].time_ns = time_ns
        self._tokens[self.num_tokens].request = row
        self._tokens[self.num_tokens].tokens = tokens
        self.num_tokens += 1
        return 0

    # Request `row` got a token at each of `times_ns`, [count], plus `delay_ns`.
    cdef inline int tokens_of(
            self, int32_t row, const int64_t* times_ns, int32_t count, int64_t delay_ns) except -1 nogil:
        cdef int32_t i
        for i in range(count):
            self.token(row, times_ns[i] + delay_ns, 1)
        return 0

    # Replica `index` has ended an iteration; only where wants_iterations. A row for each pipeline stage: the first
    # starts when the batch was scheduled, the others when it entered them.
    cdef int iteration(self, int32_t index, const Batch* batch) except -1 nogil

    # Consecutive iterations of one batch have ended, on one stage: the first is `batch`, the others repeat it; each was
    # scheduled when the one before ended, or, if they overlap, when it began. `ends_ns`, `used_blocks`, `contexts`:
    # [count], of each; `contexts` NULL: each member gains a token an iteration.
    cdef int repeated(self, int32_t index, const Batch* batch, const int64_t* ends_ns, const int32_t* used_blocks,
                      const int64_t* contexts, int32_t count, bint overlap) except -1 nogil

    cdef void _fill(self, IterationRow* row, int32_t index, const Batch* batch) noexcept nogil
    cdef int _add_stages(self, IterationRow* row, const Batch* batch) except -1 nogil
    cdef int _flush_tokens(self) except -1 nogil
