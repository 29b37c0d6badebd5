"""Requests that wait for their grammars in SGLang's scheduler.

Between passes such requests are in the waiting queue, where gateways count them and clients can withdraw them.
"""
from libc.stdint cimport int8_t, int32_t, int64_t
cimport cython

from simulator.core.row_list cimport RowList
from simulator.domain.request cimport Demand
from simulator.scheduling.waiting_queue cimport WaitingQueue


@cython.final
cdef class GrammarQueue:
    cdef RowList rows                   # oldest first
    cdef RowList ready                  # rows that `collect` has taken out, oldest first
    cdef const int64_t* _compile_ns     # [grammar] compile time
    cdef const int8_t* _fails           # [grammar] compilation fails
    cdef int8_t* _is_known              # [grammar] a pass has seen the end of a compilation
    cdef int64_t* _ready_ns             # [row] end of the compilation for a row; NEVER_NS: no pass has read the row
    cdef int64_t* _free_ns              # [_num_workers] when a worker has done all its work; NULL: no limit
    cdef int32_t _num_workers
    cdef int32_t _num_grammars
    cdef int32_t _num_unread            # rows that no pass has read
    cdef bint is_hidden                 # the rows are not in the waiting queue
    cdef readonly int64_t num_compiled, compile_ns      # compilations, and their total time
    cdef WaitingQueue _waiting
    cdef const Demand* _demands
    cdef object _owners

    # Must a request with this grammar (-1: none) wait for it? Did its compilation fail?
    cdef inline bint is_awaited(self, int32_t grammar) noexcept nogil:
        return grammar >= 0 and not self._is_known[grammar]

    cdef inline bint fails(self, int32_t grammar) noexcept nogil:
        return grammar >= 0 and self._is_known[grammar] and self._fails[grammar]

    # A request begins to wait. Its compilation starts at the next `read`.
    cdef int add(self, int32_t row) except -1 nogil

    # At the begin of a pass: take the rows out of the waiting queue, those that have left it are forgotten; then start
    # the compilations of rows that no pass has read. `show`, at the end of the pass: put them back behind all others.
    cdef int hide(self) except -1 nogil
    cdef void read(self, int64_t now_ns) noexcept nogil
    cdef int show(self) except -1 nogil

    # Move the rows with compiled grammars to `ready`.
    cdef int collect(self, int64_t now_ns) except -1 nogil

    # The end of the next compilation of a row; NEVER_NS: no row waits.
    cdef int64_t next_ns(self) noexcept nogil

    # Do other rows wait than these? Called between passes.
    cdef bint others_wait(self) noexcept nogil

    # Drop all grammars and rows.
    cdef void forget(self) noexcept nogil

    cdef void _compile(self, int32_t row, int64_t now_ns) noexcept nogil
