"""Base of the policy that gives a request one leg or two, and sends it."""
from libc.stdint cimport int32_t, int64_t


cdef class PairingBase:
    # Send a request to a replica, or have the gateway turn it away.
    cdef int route(self, int32_t row, int64_t now_ns) except -1 nogil
