"""A queue of rows in order of arrival; see lane.pxd."""
from libc.string cimport memmove

from simulator.core.row_list cimport add_row


cdef void enter_lane(Lane* lane, int32_t row, const Request* requests, const Demand* demands) noexcept nogil:
    cdef int32_t i = lane.listed.size
    cdef int32_t* rows
    add_row(&lane.listed, row)
    rows = lane.listed.rows
    while i > lane.first and came_before(requests, demands, row, rows[i - 1]):
        rows[i] = rows[i - 1]
        i -= 1
    rows[i] = row


cdef void leave_lane(Lane* lane, int32_t row) noexcept nogil:
    cdef int32_t* rows = lane.listed.rows
    cdef int32_t i = lane.first
    while rows[i] != row:
        i += 1
    memmove(rows + lane.first + 1, rows + lane.first, (i - lane.first) * sizeof(int32_t))
    lane.first += 1
    if 2 * lane.first >= lane.listed.size:          # removed rows take up half of the list
        lane.listed.size -= lane.first
        memmove(rows, rows + lane.first, lane.listed.size * sizeof(int32_t))
        lane.first = 0
