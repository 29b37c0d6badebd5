"""Requests that SGLang's scheduler has not read from its socket: --scheduler-recv-interval.

Such requests are in the waiting queue, where gateways count them and clients can withdraw them, but no pass sees them.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.core.row_list cimport RowList
from simulator.scheduling.waiting_queue cimport WaitingQueue


cdef class SglangInbox:
    cdef int64_t _interval              # scheduler_recv_interval
    cdef int64_t count                  # weights of passes since requests were last read
    cdef RowList unread                 # rows, oldest first
    cdef WaitingQueue _waiting
    cdef readonly bint is_on            # some passes read nothing

    # A request arrives. Take the unread requests out of the waiting queue for the time of a pass; those that have left
    # it are forgotten.
    cdef int add(self, int32_t row) except -1 nogil
    cdef int hide(self) except -1 nogil

    # Put unread requests back behind all others.
    cdef int show(self) except -1 nogil

    # Count a pass; return whether it reads, which sets `count` to 0. `had_prompts`: the batch before had.
    cdef bint reads(self, bint had_prompts) noexcept nogil

    # Passes behind decodes were made in which nothing was unread.
    cdef void repeat(self, int32_t count) noexcept nogil
