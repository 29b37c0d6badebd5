"""What a request waits for between admission and router."""
from libc.stdint cimport int32_t, int64_t


cdef class Stage:
    # Does a request that was let in have to wait? Who says so lets it go on, by Gateway.go_on. Asked again of one that
    # is to be sent somewhere else.
    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil
