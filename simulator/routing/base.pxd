"""Which replica gets a request: the one question a router answers."""
from libc.stdint cimport int32_t, int64_t


cdef class Router:
    cdef readonly int32_t num_replicas
    cdef readonly bint reads_state      # it looks at replicas; these are then brought up to date before each arrival

    # The replica, 0 .. num_replicas - 1, for request `row`, which arrives at `now_ns`. Called once per request.
    cdef int32_t route(self, int32_t row, int64_t now_ns) noexcept nogil
