"""Which replica gets a request: base of all routers."""
from libc.stdint cimport int32_t, int64_t


cdef class Router:
    """Choose among `num_replicas` replicas, numbered from 0. A policy overrides `route`."""

    def __cinit__(self, parameters, int32_t num_replicas, *_, **__):
        self.num_replicas = num_replicas

    cdef int32_t route(self, int32_t row, int64_t now_ns) noexcept nogil:
        return 0
