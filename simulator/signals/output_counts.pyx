"""Output tokens of requests that a gateway has seen: it passes each token on to the client."""


cdef class OutputCounts:
    """Counts of the requests in a table, `records.REQUEST`."""

    def __init__(self, requests):
        cdef const Request[::1] borrowed = requests
        self._owner, self._requests = requests, &borrowed[0] if len(requests) else NULL

    cdef void look(self, int64_t now_ns) noexcept nogil:
        pass

    cdef int32_t outputs(self, int32_t row) except -1 nogil:
        return self._requests[row].output_tokens
