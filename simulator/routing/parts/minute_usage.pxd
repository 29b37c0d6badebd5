"""Requests and tokens of each replica in the current minute of the clock, and their limits."""
cimport cython
from libc.stdint cimport int32_t, int64_t


@cython.final
cdef class MinuteUsage:
    cdef readonly int32_t num_replicas
    cdef int64_t* tokens                # [replica] in the current minute, like requests
    cdef int64_t* requests
    cdef double* _most_tokens           # [replica] pools.tpm; infinity: no limit, like pools.rpm
    cdef double* _most_requests
    cdef int64_t _minute                # number of the current minute

    # Begin a new minute if the clock has reached one: all counts are 0.
    cdef void advance(self, int64_t now_ns) noexcept nogil

    # Forget all counts.
    cdef void clear(self) noexcept nogil

    # Count requests and tokens, after `advance`.
    cdef inline void count(self, int32_t replica, int64_t requests, int64_t tokens) noexcept nogil:
        self.requests[replica] += requests
        self.tokens[replica] += tokens

    # Return whether so many more tokens are within the limit; whether one more request is, `margin` requests below it.
    cdef inline bint has_tokens(self, int32_t replica, int64_t more) noexcept nogil:
        return self.tokens[replica] + more <= self._most_tokens[replica]

    cdef inline bint has_requests(self, int32_t replica, int32_t margin) noexcept nogil:
        return self.requests[replica] + 1 + margin <= self._most_requests[replica]
