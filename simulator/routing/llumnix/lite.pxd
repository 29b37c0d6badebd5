"""Lite mode: the gateway's own count of the requests and tokens at each replica, without any status."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.request cimport Request
from simulator.routing.llumnix.account cimport Dispatches
from simulator.routing.llumnix.candidates cimport Candidates
from simulator.signals.view cimport View


cdef struct LiteCounts:             # of one replica
    int64_t tokens                  # of the texts of its requests, as far as reported
    int64_t waiting_tokens          # of requests without a first token
    int32_t requests
    int32_t waiting_requests
    int32_t version                 # of its registration; 0: not registered


@cython.final
cdef class LiteState(Dispatches):
    cdef LiteCounts* counts         # [replica]

    # A replica registers; with a version that is not newer: ignored. It has no requests then.
    cdef void add_replica(self, int32_t replica, int32_t version) noexcept nogil
    cdef void remove_replica(self, int32_t replica) noexcept nogil

    # A request was sent, with a prompt of `tokens`.
    cdef int allocate(self, int32_t row, int32_t replica, int32_t gateway, int64_t tokens) except -1 nogil

    # Its text has become longer; a report of less is ignored.
    cdef void update(self, int32_t index, int64_t tokens) noexcept nogil

    # It has its first token.
    cdef void prefilled(self, int32_t index) noexcept nogil

    # It has left. index: from `find`.
    cdef void release(self, int32_t index) noexcept nogil


@cython.final
cdef class LiteFeed:
    cdef View _view
    cdef Candidates _candidates
    cdef LiteState _state
    cdef const Request* _requests
    cdef int64_t _report_ns             # interval of reports; 0: none
    cdef int64_t _epoch                 # of the last report
    cdef int64_t* _outputs              # [replica] reported tokens of texts beyond prompts
    cdef bint _leaks                    # as upstream: without reports nothing is released
    cdef object _owners

    cdef int refresh(self, int64_t now_ns) except -1 nogil
    cdef int sent(self, int32_t row, int32_t replica, int64_t prompt_tokens) except -1 nogil
    cdef void left(self, int32_t row, int32_t replica) noexcept nogil
