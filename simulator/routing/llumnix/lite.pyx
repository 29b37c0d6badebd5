"""Lite mode: the gateway's own count of the requests and tokens at each replica, without any status.

All gateways of a simulated cluster are one, and every replica is registered from the start. Gateways report the texts
of their requests at intervals; their sum over a replica equals a field of its state, and is read from there.
Source: llumnix-project/llumnix at 8a693b4, local_realtime_state.go.
"""
from libc.stdlib cimport calloc, free
from libc.string cimport memset
cimport cython

from simulator.routing.llumnix.account cimport Dispatch
from simulator.routing.llumnix.candidates cimport Candidate


@cython.final
cdef class LiteState(Dispatches):
    """The gateways' counts of `num_rows` requests at `num_replicas` replicas."""

    def __cinit__(self, int32_t num_replicas, int32_t num_rows):
        self.counts = <LiteCounts*>calloc(num_replicas, sizeof(LiteCounts))
        if self.counts == NULL:
            raise MemoryError()

    def __dealloc__(self):
        free(self.counts)

    cdef void add_replica(self, int32_t replica, int32_t version) noexcept nogil:
        if version > self.counts[replica].version:
            self.remove_replica(replica)
            self.counts[replica].version = version

    cdef void remove_replica(self, int32_t replica) noexcept nogil:
        while self.first_of_replica[replica] >= 0:
            self.drop(self.first_of_replica[replica])
        memset(&self.counts[replica], 0, sizeof(LiteCounts))

    cdef int allocate(self, int32_t row, int32_t replica, int32_t gateway, int64_t tokens) except -1 nogil:
        cdef Dispatch* one
        cdef LiteCounts* counts = &self.counts[replica]
        if self.find(row, replica) >= 0:
            return 0
        one = &self.items[self.insert(row, replica)]
        one.gateway, one.tokens = gateway, tokens
        counts.requests += 1
        counts.waiting_requests += 1
        counts.tokens += tokens
        counts.waiting_tokens += tokens
        return 0

    cdef void update(self, int32_t index, int64_t tokens) noexcept nogil:
        cdef Dispatch* one = &self.items[index]
        cdef LiteCounts* counts = &self.counts[one.replica]
        cdef int64_t more = max(<int64_t>0, tokens - one.tokens)
        one.tokens += more
        counts.tokens += more
        if not one.is_prefilled:
            counts.waiting_tokens += more

    cdef void prefilled(self, int32_t index) noexcept nogil:
        cdef Dispatch* one = &self.items[index]
        cdef LiteCounts* counts = &self.counts[one.replica]
        if not one.is_prefilled:
            one.is_prefilled = True
            counts.waiting_requests -= 1
            counts.waiting_tokens -= one.tokens

    cdef void release(self, int32_t index) noexcept nogil:
        cdef Dispatch* one = &self.items[index]
        cdef LiteCounts* counts = &self.counts[one.replica]
        self.prefilled(index)
        counts.requests -= 1
        counts.tokens -= one.tokens
        self.drop(index)


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
