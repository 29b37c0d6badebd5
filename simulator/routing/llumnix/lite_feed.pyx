"""Lite mode in a simulated cluster: requests at each replica, as gateways count them.

All gateways are one here, and every replica is registered from the start. Gateways report the texts of their requests
at intervals; their sum over a replica equals a field of its state, and is read from there.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
cimport cython

from simulator.domain.request cimport Request
from simulator.routing.llumnix.candidates cimport Candidate, Candidates
from simulator.routing.llumnix.lite cimport LiteState
from simulator.signals.view cimport View


@cython.final
cdef class LiteFeed:
    """Keeps the lite fields of candidates.

    view : View of the replicas.
    candidates : one per replica.
    parameters : LlumnixParameters.
    requests : NumPy array of the requests.
    """

    def __cinit__(self, View view, *_, **__):
        self._outputs = <int64_t*>calloc(view.num_replicas, sizeof(int64_t))
        if self._outputs == NULL:
            raise MemoryError()

    def __init__(self, View view, Candidates candidates, parameters, requests):
        cdef const Request[::1] rows
        cdef int32_t i
        if len(requests):
            rows = requests
            self._requests = &rows[0]
        self._owners, self._view, self._candidates = requests, view, candidates
        self._state = LiteState(view.num_replicas, len(requests))
        self._report_ns = round(1e9 * parameters.requests_report_duration_s)
        self._leaks = parameters.upstream_compat and self._report_ns == 0
        for i in range(view.num_replicas):
            self._state.add_replica(i, 1)
            candidates.items[i].infer_type = view.accounts[i].infer_type
        if self._report_ns > 0:
            view.wants_levels = True

    def __dealloc__(self):
        free(self._outputs)

    cdef int refresh(self, int64_t now_ns) except -1 nogil:
        cdef int32_t i
        cdef Candidate* c
        if self._report_ns > 0 and now_ns // self._report_ns != self._epoch:
            self._epoch = now_ns // self._report_ns
            self._view.look(now_ns)
            for i in range(self._candidates.count):
                self._outputs[i] = max(<int64_t>0, self._view.states[i].waiting_tokens
                                       + self._view.states[i].running_tokens - self._state.counts[i].tokens)
        for i in range(self._candidates.count):
            c = &self._candidates.items[i]
            c.is_schedulable = self._view.accounts[i].is_routable
            c.lite_requests = self._state.counts[i].requests
            c.lite_tokens = self._state.counts[i].tokens + self._outputs[i]
        return 0

    cdef int sent(self, int32_t row, int32_t replica, int64_t prompt_tokens) except -1 nogil:
        return self._state.allocate(row, replica, 0, prompt_tokens)

    cdef void left(self, int32_t row, int32_t replica) noexcept nogil:
        cdef int32_t index = self._state.find(row, replica)
        if index >= 0 and not self._leaks:
            self._state.release(index)
            self._outputs[replica] -= min(self._outputs[replica], <int64_t>self._requests[row].output_tokens)
