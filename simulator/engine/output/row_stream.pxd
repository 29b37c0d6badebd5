"""Rows of one table, passed from the engine to their receiver in chunks."""
from libc.stdint cimport int8_t, int64_t
cimport cython


@cython.final
cdef class RowStream:
    cdef readonly int64_t total         # rows ever added
    cdef object _take                   # called with the rows that are passed on
    cdef object _rows                   # structured array (_room,), which _bytes borrows from
    cdef int8_t* _bytes
    cdef int64_t _row_bytes
    cdef int64_t _room
    cdef int64_t _held                  # rows not passed on yet

    # Return a new row, all zero, to be filled in before the next call.
    cdef void* add(self) except NULL nogil
