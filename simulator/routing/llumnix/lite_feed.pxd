"""Lite mode in a simulated cluster: requests at each replica, as gateways count them."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.domain.request cimport Request
from simulator.routing.llumnix.candidates cimport Candidates
from simulator.routing.llumnix.lite cimport LiteState
from simulator.signals.view cimport View


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
