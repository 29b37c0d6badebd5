"""Who decides whether the two legs of a request are apart, and sends it."""
from libc.stdint cimport int32_t, int64_t


cdef class PairingBase:
    # A request that is to be sent to a replica: send it, or have the gateway turn it away.
    cdef int route(self, int32_t row, int64_t now_ns) except -1 nogil
