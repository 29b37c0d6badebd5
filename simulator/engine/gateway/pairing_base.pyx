"""Who decides whether the two legs of a request are apart: what the gateway knows of it."""
from libc.stdint cimport int32_t, int64_t


cdef class PairingBase:
    """Base of `hand_over.pairing.Pairing`, which knows the gateways that know it."""

    cdef int route(self, int32_t row, int64_t now_ns) except -1 nogil:
        return 0
