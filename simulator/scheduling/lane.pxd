"""Rows that wait in order of arrival, of which any may leave: a queue that a policy looks through.

Ties go by the rank of the request id, as in waiting_queue.pxd.
"""
from libc.stdint cimport int32_t

from simulator.core.row_list cimport RowList
from simulator.domain.request cimport Demand, Request


cdef struct Lane:               # all zero at first; whoever has it frees `listed.rows`
    RowList listed              # from `first` on
    int32_t first


cdef inline int32_t lane_size(const Lane* lane) noexcept nogil:
    return lane.listed.size - lane.first


# The i-th that waits, of lane_size().
cdef inline int32_t lane_row(const Lane* lane, int32_t i) noexcept nogil:
    return lane.listed.rows[lane.first + i]


cdef inline bint came_before(const Request* requests, const Demand* demands, int32_t row, int32_t other) noexcept nogil:
    if requests[row].arrival_ns != requests[other].arrival_ns:
        return requests[row].arrival_ns < requests[other].arrival_ns
    return demands[row].tie_rank < demands[other].tie_rank


# A row comes, or leaves; it is there then. O(rows that came later), O(rows that came before).
cdef void enter_lane(Lane* lane, int32_t row, const Request* requests, const Demand* demands) noexcept nogil
cdef void leave_lane(Lane* lane, int32_t row) noexcept nogil
