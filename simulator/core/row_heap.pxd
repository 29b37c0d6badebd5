"""Rows in order of a time, then of their number."""
cimport cython
from libc.stdint cimport int32_t, int64_t

from simulator.core.arithmetic cimport pair_before
from simulator.core.clock cimport NEVER_NS


cdef struct TimedRow:
    int64_t time_ns             # >= 0
    int64_t row                 # >= 0; settles equal times


cdef inline bint timed_before(const TimedRow* a, const TimedRow* b) noexcept nogil:
    return pair_before(a.time_ns, a.row, b.time_ns, b.row)


cdef struct RowHeap:            # all zero at first; the owner frees `entries`
    TimedRow* entries           # [size] children of i: 4i + 1 .. 4i + 4
    int64_t size
    int64_t room                # entries that fit before it must grow


# The time of the first; NEVER_NS if empty.
cdef inline int64_t first_ns(const RowHeap* heap) noexcept nogil:
    return heap.entries[0].time_ns if heap.size > 0 else NEVER_NS

# Add a row. -1 without memory, and nothing changed.
cdef int push_row(RowHeap* heap, int64_t time_ns, int64_t row) except -1 nogil

# Remove and return the first. The heap must not be empty.
cdef TimedRow pop_row(RowHeap* heap) noexcept nogil
