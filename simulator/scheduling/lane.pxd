"""A queue of rows in order of arrival that any row may leave, for a policy that searches it.

Ties go by the rank of the request id, as in waiting_queue.pxd.
"""
from libc.stdint cimport int32_t

from simulator.core.row_list cimport RowList
from simulator.domain.request cimport Demand, Request


cdef struct Lane:               # all zero at first; its owner frees `listed.rows`
    RowList listed              # rows, from `first` on
    int32_t first


cdef inline int32_t lane_size(const Lane* lane) noexcept nogil:
    return lane.listed.size - lane.first


# The i-th waiting row, i < lane_size().
cdef inline int32_t lane_row(const Lane* lane, int32_t i) noexcept nogil:
    return lane.listed.rows[lane.first + i]


cdef inline bint came_before(const Request* requests, const Demand* demands, int32_t row, int32_t other) noexcept nogil:
    if requests[row].arrival_ns != requests[other].arrival_ns:
        return requests[row].arrival_ns < requests[other].arrival_ns
    return demands[row].tie_rank < demands[other].tie_rank


# Add a row; remove a row that is in the lane. O(rows that arrived later), O(rows that arrived before).
cdef void enter_lane(Lane* lane, int32_t row, const Request* requests, const Demand* demands) noexcept nogil
cdef void leave_lane(Lane* lane, int32_t row) noexcept nogil
