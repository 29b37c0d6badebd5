"""Rows of several logs, merged in order of start, then of replica."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.tables cimport IterationRow
from simulator.engine.output.row_log cimport RowQueue


cdef struct Runner:             # a queue that takes part
    int64_t start_ns            # of its head; INT64_MAX: it has none
    RowQueue* queue


@cython.final
cdef class RowMerge:
    cdef list _logs             # list of RowLog
    cdef object _sink           # has .iterations(rows)
    cdef object _rows           # structured array (PIECE_ROWS,), which _out borrows from
    cdef IterationRow* _out
    cdef int64_t _num_out       # rows merged and not passed on yet
    cdef Runner* _runners       # [_num_runners], no replica is in two logs
    cdef int32_t* _losers       # [2 x _num_runners] of the tournament: the loser at each inner node; 0: its winner
    cdef int32_t _num_runners
    cdef int32_t _room

    cdef int _gather(self) except -1
    cdef int _enter(self, RowQueue* queue) except -1
    cdef void _begin(self) noexcept nogil
    cdef bint _merge(self, int64_t before_ns) noexcept nogil
    cdef int32_t _play(self, int32_t winner) noexcept nogil
