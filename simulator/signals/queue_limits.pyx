"""Limits of an API server on the requests in its hands: vLLM's max_num_queued_reqs and max_num_queued_tokens.

The API server of one command `vllm serve` is in front of all ranks of that command. It refuses a request, HTTP 503, if
its unfinished requests, with this one, exceed the first limit; or if the prompts of its unfinished requests without
output have as many tokens as the second limit, or more. Cached and computed tokens count like all others.
Source: vLLM 0.32.0 and 0.33.0, vllm/v1/engine/async_llm.py, check_admission; output_processor.py,
get_num_queued_tokens; vllm/exceptions.py.
"""
from libc.stdlib cimport free
cimport cython

from simulator.core.memory cimport resize
from simulator.domain.request cimport COMPLETED

cdef int64_t ROW_BITS = 0xffffffff


@cython.final
cdef class QueueLimits:
    """Requests in the hands of an API server.

    requests : structured array of the workload. visits : int32 (requests,), zeros, shared by all servers.
    limits : largest number of requests, and of prompt tokens; None: no limit.
    first, count : replicas behind the server.
    """

    def __init__(self, requests, visits, limits, int32_t first, int32_t count):
        cdef const Request[::1] rows = requests
        cdef int32_t[::1] counted = visits
        self._owners = (requests, visits)
        if len(requests):
            self._requests, self._visits = &rows[0], &counted[0]
        self._most, self._most_tokens = (-1 if limit is None else limit for limit in limits)
        self._first, self._last = first, first + count

    def __dealloc__(self):
        free(self._entries)

    cdef bint admits(self) noexcept nogil:
        if self._most >= 0 and self.size >= self._most:
            self._forget_left()
            if self.size >= self._most:
                self.cause = QUEUED_REQS
                return False
        if self._most_tokens >= 0 and self.tokens >= self._most_tokens:
            self._forget_left()
            if self.tokens >= self._most_tokens:
                self.cause = QUEUED_TOKENS
                return False
        return True

    cdef int add(self, int32_t row) except -1 nogil:
        cdef int64_t room = 2 * self._room + 16
        if self.size == self._room:
            resize(&self._entries, room * sizeof(int64_t))
            self._room = room
        self._visits[row] += 1
        self._entries[self.size] = <int64_t>self._visits[row] << 32 | row
        self.size += 1
        self.tokens += self._requests[row].prompt_tokens
        return 0

    cdef void _forget_left(self) noexcept nogil:
        """Drop the entries of requests that have left, and count the tokens of the others anew."""
        cdef int64_t kept = 0, tokens = 0, i
        cdef const Request* request
        cdef int32_t row
        for i in range(self.size):
            row = <int32_t>(self._entries[i] & ROW_BITS)
            request = &self._requests[row]
            if (request.status >= COMPLETED or not self._first <= request.replica < self._last
                    or self._visits[row] != self._entries[i] >> 32):
                continue
            tokens += request.prompt_tokens if request.first_token_ns < 0 else 0
            self._entries[kept] = self._entries[i]
            kept += 1
        self.size, self.tokens = kept, tokens

    def check(self):
        """Raise AssertionError if a count is impossible."""
        assert 0 <= self.size <= self._room and self.tokens >= 0
