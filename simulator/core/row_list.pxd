"""A few rows in a growing array: requests with clients that gave up during an iteration."""
from libc.stdint cimport int32_t

from simulator.core.memory cimport resize


cdef struct RowList:            # all zero at first; the owner frees `rows`
    int32_t* rows               # [size]
    int32_t size
    int32_t room                # rows that fit before it must grow


# Add a row at the end. -1 without memory, and nothing changed.
cdef inline int add_row(RowList* listed, int32_t row) except -1 nogil:
    cdef int32_t room = 2 * listed.room + 16
    if listed.size == listed.room:
        resize(&listed.rows, room * sizeof(int32_t))
        listed.room = room
    listed.rows[listed.size] = row
    listed.size += 1
    return 0


# Is the row in the list? O(size).
cdef inline bint has_row(const RowList* listed, int32_t row) noexcept nogil:
    cdef int32_t i
    for i in range(listed.size):
        if listed.rows[i] == row:
            return True
    return False
