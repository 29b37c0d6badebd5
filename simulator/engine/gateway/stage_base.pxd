"""Base of a stage that holds requests back between admission and router."""
from libc.stdint cimport int32_t, int64_t


cdef class Stage:
    # Return whether an admitted request has to wait. A stage behind the queue ends the wait with Gateway.go_on, and is
    # called again if the request is to be sent to another replica; one in front of it, with Gateway.return_to_gateway.
    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil

    # settle: requests left replicas, ended their prefill, or a replica became routable; called after all of an instant.
    # forget: the client of a request that may wait here has given up, and the gateway knows.
    cdef int settle(self, int64_t now_ns) except -1 nogil
    cdef int forget(self, int32_t row, int64_t now_ns) except -1 nogil
