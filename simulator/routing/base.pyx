"""Which replica gets a request: the base of all routers."""
from libc.stdint cimport int32_t, int64_t


cdef class Router:
    """Base of all routers; a policy overrides `route`.

    A router is built as `Policy(parameters, num_replicas)`, with its own frozen `Parameters` and the number of replicas
    to choose from.
    """

    def __cinit__(self, parameters, int32_t num_replicas, *_, **__):
        self.num_replicas = num_replicas

    cdef int32_t route(self, int32_t row, int64_t now_ns) noexcept nogil:
        return 0
