"""What is written down while running, for it could not be recovered afterwards."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.weighted_samples cimport WeightedSamples
from simulator.domain.tables cimport IterationRow, TokenRow
from simulator.domain.iteration cimport Batch
from simulator.engine.output.executions cimport Executions
from simulator.engine.output.row_order cimport RowOrder


@cython.final
cdef class Recorder:
    cdef readonly bint wants_iterations         # rows of /iterations
    cdef readonly bint wants_tokens             # rows of /token_times
    cdef readonly int64_t iterations            # ended so far, over all replicas
    cdef readonly int64_t finished              # requests that left, one way or another
    cdef object _turn                           # Lock, held while the sink takes tokens of a lane; None: no lanes
    cdef object _sink                           # has .iterations(rows) and .tokens(rows); None: nothing is wanted
    cdef object _iteration_rows                 # array that _iterations borrows from; None: not wanted
    cdef object _sorted_rows                    # array with as much room, which takes its place when rows are sorted
    cdef object _token_rows                     # as _iteration_rows
    cdef RowOrder _order
    cdef IterationRow* _iterations              # [_room_iterations] rows not passed on yet, as they came
    cdef TokenRow* _tokens                      # [_room_tokens]
    cdef int64_t num_iterations, num_tokens     # rows held
    cdef int64_t _num_ordered                   # of these iterations, those before the ones that `put_in_order` sorts
    cdef int64_t _room_iterations               # rows that fit before the array grows
    cdef int64_t _room_tokens                   # rows that fit before the array is passed on
    cdef const int32_t* _ranks                  # [replica] which one of a data-parallel replica; NULL: there are none
    cdef object _rank_numbers                   # the array that it borrows from
    cdef bint _has_stages                       # rows of later stages are among them: not in order of start
    cdef readonly Executions executions         # None: nobody asks how long requests executed
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

    # Request `row` got a token at each of these times, [count], and `delay_ns` later.
    cdef inline int tokens_of(
            self, int32_t row, const int64_t* times_ns, int32_t count, int64_t delay_ns) except -1 nogil:
        cdef int32_t i
        for i in range(count):
            self.token(row, times_ns[i] + delay_ns, 1)
        return 0

    # Replica `index` has ended this iteration; only where wants_iterations. A row for each pipeline stage: the first
    # starts when it was scheduled, the others when it entered them.
    cdef int iteration(self, int32_t index, const Batch* batch) except -1 nogil

    # Iterations that follow one another have ended, of the same members and one stage: the batch, which is the first,
    # and those behind it. `ends_ns`, `used_blocks`: [count], of each.
    cdef int repeated(self, int32_t index, const Batch* batch, const int64_t* ends_ns, const int32_t* used_blocks,
                      const int64_t* contexts, int32_t count) except -1 nogil

    cdef void _fill(self, IterationRow* row, int32_t index, const Batch* batch) noexcept nogil
    cdef void _add_stages(self, const Batch* batch) noexcept nogil
    cdef int64_t _num_before(self, int64_t before_ns) noexcept nogil
    cdef int _grow_iterations(self) except -1 nogil
    cdef int _flush_tokens(self) except -1 nogil
