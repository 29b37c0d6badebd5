"""Base of a stage that holds requests back between admission and router."""
from libc.stdint cimport int32_t, int64_t


cdef class Stage:
    # Return whether an admitted request has to wait. The stage ends the wait with Gateway.go_on. Called again if the
    # request is to be sent to another replica.
    cdef bint holds(self, int32_t row, int64_t now_ns) except -1 nogil

    # settle: requests left replicas, ended their prefill, or a replica became routable; called after all of an instant.
    # forget: the client of a request that may wait here gave up.
    cdef int settle(self, int64_t now_ns) except -1 nogil
    cdef int forget(self, int32_t row) except -1 nogil
