"""Processor sharing in the processes that render, validate and tokenize requests.

vLLM's API server is one process with one event loop, which takes every request in it a step further, round robin.
So with n requests in c processes each is served at the rate min(1, c / n), and of N that arrive at once none is done
before about N times the need of one. Source of the shape: vLLM 0.32.0, vllm/entrypoints/openai (coroutines on one loop)
and vllm/entrypoints/cli/serve.py (api_server_count processes that accept at one socket).
"""
from libc.math cimport ceil
from libc.stdlib cimport free
cimport cython

from simulator.core.clock cimport NEVER_NS
from simulator.core.heap cimport pop_row, push_row
from simulator.engine.fleet.events cimport FRONT_END

cdef double STEPS = 16.0            # of service in a nanosecond
cdef double LONGEST = 2.0**58       # service that one may need, 208 days


@cython.final
cdef class FrontEnd:
    """Serve requests side by side, all at the same rate.

    index : of the first replica behind it. servers : processes.
    request_us, token_us : service that a request needs, and for each token of its prompt.
    limits : on the requests that have passed it and not left; None: no limits.
    """

    def __init__(self, int32_t index, int32_t servers, double request_us, double token_us,
                 QueueLimits limits=None):
        self.index, self._num_servers = index, servers
        self._request, self._token = request_us * 1e3 * STEPS, token_us * 1e3 * STEPS
        self._due_ns = NEVER_NS
        self.limits, self.takes_time = limits, request_us + token_us > 0

    def __dealloc__(self):
        free(self.heap.entries)

    cdef void _advance(self, int64_t now_ns) noexcept nogil:
        """Credit each request inside with the service since the last update."""
        cdef double passed = <double>(now_ns - self._last_ns) * STEPS
        if self.heap.size == 0:
            self._service = 0.0
        elif self.heap.size <= self._num_servers:
            self._service += passed
        else:
            self._service += passed * self._num_servers / <double>self.heap.size
        self._last_ns = now_ns

    cdef int take(self, EventQueue events, int64_t entry, int32_t prompt_tokens, int64_t now_ns) except -1 nogil:
        cdef double needed = self._request + self._token * prompt_tokens
        self._advance(now_ns)
        push_row(&self.heap, <int64_t>(self._service + min(needed, LONGEST) + 0.5), entry)
        return self.go_on(events, now_ns)

    cdef bint is_due(self, int64_t now_ns) noexcept nogil:
        if now_ns != self._due_ns:
            return False
        self._advance(now_ns)
        self._service = max(self._service, <double>self.heap.entries[0].key)
        self._due_ns = NEVER_NS
        return True

    cdef int64_t next_done(self) noexcept nogil:
        """Remove and return a finished request's entry; -1: no other is done."""
        if self.heap.size == 0 or <double>self.heap.entries[0].key > self._service:
            return -1
        return pop_row(&self.heap).number

    cdef void clear(self) noexcept nogil:
        self.heap.size, self._due_ns = 0, NEVER_NS

    cdef int go_on(self, EventQueue events, int64_t now_ns) except -1 nogil:
        """Push an event for the time at which the first request is done."""
        cdef double left
        cdef int64_t due_ns = NEVER_NS
        if self.heap.size > 0:
            left = (<double>self.heap.entries[0].key - self._service) / STEPS
            if self.heap.size > self._num_servers:
                left = left * <double>self.heap.size / self._num_servers
            if left < <double>(NEVER_NS - now_ns) / 2:
                due_ns = now_ns + max(<int64_t>ceil(left), <int64_t>0)
        if due_ns != self._due_ns and due_ns < NEVER_NS:
            events.push(due_ns, FRONT_END, FRONT_END, self.index, 0)
        self._due_ns = due_ns
        return 0
