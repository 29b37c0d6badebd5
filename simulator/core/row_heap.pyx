"""Rows in order of a time, then of their number: a heap with four children to a node."""
from libc.stdint cimport int64_t

from simulator.core.memory cimport resize

cdef enum:
    FIRST_ROOM = 16


cdef void sift_down(RowHeap* heap, int64_t hole, TimedRow entry) noexcept nogil:
    cdef TimedRow* entries = heap.entries
    cdef int64_t first = 4 * hole + 1, child, other
    while first < heap.size:
        child = first
        for other in range(first + 1, min(first + 4, heap.size)):
            if timed_before(&entries[other], &entries[child]):
                child = other
        if not timed_before(&entries[child], &entry):
            break
        entries[hole] = entries[child]
        hole = child
        first = 4 * hole + 1
    entries[hole] = entry


cdef int push_row(RowHeap* heap, int64_t time_ns, int64_t row) except -1 nogil:
    cdef TimedRow entry
    cdef int64_t hole = heap.size, parent, room = max(2 * heap.room, <int64_t>FIRST_ROOM)
    if heap.size == heap.room:
        resize(&heap.entries, room * sizeof(TimedRow))
        heap.room = room
    entry.time_ns, entry.row = time_ns, row
    heap.size += 1
    while hole > 0:
        parent = (hole - 1) >> 2
        if not timed_before(&entry, &heap.entries[parent]):
            break
        heap.entries[hole] = heap.entries[parent]
        hole = parent
    heap.entries[hole] = entry
    return 0


cdef TimedRow pop_row(RowHeap* heap) noexcept nogil:
    cdef TimedRow first = heap.entries[0]
    heap.size -= 1
    if heap.size > 0:
        sift_down(heap, 0, heap.entries[heap.size])
    return first
