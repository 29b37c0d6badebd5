"""Processor sharing in the processes in front of an engine, which requests on their way to it share."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.core.event_queue cimport EventQueue
from simulator.core.heap cimport RowHeap
from simulator.signals.queue_limits cimport QueueLimits


@cython.final
cdef class FrontEnd:
    cdef RowHeap heap                   # requests inside, by the service at which each is done, in whole units
    cdef double _service  # that a request got which has been there since it was last empty; sixteenths of a ns
    cdef double _request, _token        # need of a request: fixed, and for each token of its prompt; the same unit
    cdef int64_t _last_ns               # when _service was last brought up to date
    cdef int64_t _due_ns                # when the first is done if no other enters; NEVER_NS: it is empty
    cdef readonly int32_t index         # of the first replica behind it
    cdef int32_t _num_servers
    cdef readonly QueueLimits limits    # on the requests behind it; None: there are none
    cdef readonly bint takes_time       # else requests pass at once, and `take` is not called

    # A request enters. An event FRONT_END is pushed if that changes when the first is done.
    cdef int take(self, EventQueue events, int64_t entry, int32_t prompt_tokens, int64_t now_ns) except -1 nogil

    # An event FRONT_END is due: return whether it is still valid. Then `next_done` yields finished requests, and
    # `go_on` follows.
    cdef bint is_due(self, int64_t now_ns) noexcept nogil
    cdef int64_t next_done(self) noexcept nogil
    cdef int go_on(self, EventQueue events, int64_t now_ns) except -1 nogil

    # Remove all requests.
    cdef void clear(self) noexcept nogil

    cdef void _advance(self, int64_t now_ns) noexcept nogil
