"""Base of the policy that gives a request one leg or two: the part that the gateway uses."""


cdef class PairingBase:
    """Base of pairings of two gateways, which refer to each other."""

    cdef int route(self, int32_t row, int64_t now_ns) except -1 nogil:
        return 0
