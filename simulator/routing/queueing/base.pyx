"""Base of queues in front of a router."""


cdef class RouterQueue:
    """A queue that holds nothing."""

    cdef int offer(self, int32_t row, int64_t now_ns) except -1 nogil:
        return GOES

    cdef int32_t next(self, int64_t now_ns) except -2 nogil:
        return -1

    cdef int remove(self, int32_t row) except -1 nogil:
        return 0

    # The face for tests and exploration.

    def offer_row(self, row, now_ns):
        """Offer an admitted request; return whether it waits, or None: it is refused."""
        return {GOES: False, WAITS: True, REFUSED: None}[self.offer(row, now_ns)]

    def next_row(self, now_ns):
        """Take out the request that is to be routed now; -1 if there is none."""
        return self.next(now_ns)

    def remove_row(self, row):
        """Take out a request with a client that gave up."""
        self.remove(row)
