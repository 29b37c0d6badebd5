"""Which replica gets a request."""
from libc.stdint cimport int32_t, int64_t


cdef class Router:
    cdef readonly int32_t num_replicas
    cdef readonly bint reads_state      # looks at replicas; then these are brought up to date before each arrival

    # The replica for request `row`, which arrives at `now_ns`.
    cdef int32_t route(self, int32_t row, int64_t now_ns) noexcept nogil
