"""Output to the clients: tokens, and the end of each request."""
cimport cython

from simulator.domain.request cimport COMPLETED, DROPPED, FAILED, REJECTED

import numpy as np


@cython.final
cdef class Delivery:
    """The clients of a cluster.

    workload : its `requests` are written to.
    recorder : records tokens and gaps.
    max_model_len : longest text, prompt and output, in tokens.
    host : HostParameters, used for the times after an iteration.
    departures : list of requests that left replicas; None: not kept.
    longest_answers : tokens, int64 (requests,), limits of answers, and whether, bool (requests,), the KV pool
        sets the limit; None: max_model_len does. -1: the request is rejected with its first token.
    sibling : the Delivery of another pool of the cluster, which has the last tokens of requests from there.
    """

    def __init__(self, workload, Recorder recorder, int64_t max_model_len, host,
                 Departures departures=None, Delivery sibling=None, longest_answers=None):
        cdef Request[::1] requests = workload.requests
        cdef const Outcome[::1] outcomes = workload.outcomes
        self.pool_cuts = None if longest_answers is None else longest_answers[1]
        target_array, rejected_array, self.last_tokens = _columns(
            workload, max_model_len, longest_answers, None if sibling is None else sibling.last_tokens)
        cdef const int32_t[::1] targets = target_array
        cdef const int8_t[::1] rejected = rejected_array
        cdef int64_t[::1] last_token_ns = self.last_tokens
        self._owners = (workload.requests, workload.outcomes, target_array, rejected_array)
        self._num_clients = len(requests) - workload.num_prefill_legs
        self._num_heard = 0 if longest_answers is not None else self._num_clients
        if len(requests):
            self._requests = &requests[0]
            self._outcomes = &outcomes[0]
            self._targets = &targets[0]
            self._rejected = &rejected[0] if longest_answers is not None and rejected_array.any() else NULL
            self.last_token_ns = &last_token_ns[0]
        self._recorder = recorder
        self._departures = departures if departures is not None else Departures(0)
        self.output_ns = round(host.output_token_us * 1e3)
        self.gap_ns = self.output_ns if host.output_token_accumulates else 0
        self.completion_ns = round(host.completion_us * 1e3)

    def lane(self, Recorder recorder):
        """Return a Delivery to the same clients with another recorder, for another thread."""
        cdef Delivery other = Delivery.__new__(Delivery)
        other.last_tokens, other._owners, other._departures = self.last_tokens, self._owners, self._departures
        other._requests, other._outcomes, other._targets = self._requests, self._outcomes, self._targets
        other._rejected, other._num_clients, other._num_heard = self._rejected, self._num_clients, self._num_heard
        other.pool_cuts = self.pool_cuts
        other.last_token_ns, other._recorder = self.last_token_ns, recorder
        other.output_ns, other.gap_ns, other.completion_ns = self.output_ns, self.gap_ns, self.completion_ns
        return other

    def expect(self, int32_t row, int32_t tokens):
        """Set the tokens after which generation stops, of a request that has not arrived yet; >= 1."""
        (<int32_t*>self._targets)[row] = tokens

    cdef int deliver(self, int32_t row, int32_t tokens, int64_t now_ns) except -1 nogil:
        cdef Request* request = &self._requests[row]
        cdef int32_t unseen = 0                         # BLIS: the first token is sent with the second
        if row >= self._num_heard and (row >= self._num_clients or self.rejects(row)):
            return 0
        if request.first_token_ns < 0:
            unseen = request.output_tokens
            request.first_token_ns = now_ns + self.output_ns
            if self._departures.reports_prefills:
                self._departures.add(-1 - row)
        else:
            self._recorder.gaps.add(now_ns - self.last_token_ns[row] + self.gap_ns * tokens, 1)
        self.last_token_ns[row] = now_ns
        if self._outcomes[row].output_tokens == 0:
            return 0                                    # sampled, not kept
        request.output_tokens += tokens
        if self._recorder.wants_tokens:
            self._recorder.token(row, self.observed_ns(now_ns, request.output_tokens), tokens + unseen)
        return 0

    cdef void leave(self, int32_t row, int8_t status, int64_t now_ns) noexcept nogil:
        if (status == REJECTED or status == DROPPED) and self.last_token_ns[row] != NO_TOKEN_NS:
            status = FAILED
        self._requests[row].status = status
        if status == COMPLETED:
            self._requests[row].completed_ns = self.completed_ns(row, now_ns)
        self._recorder.finished += 1
        self._departures.add(row)


def _columns(workload, int64_t max_model_len, longest_answers, last_tokens):
    """Return the targets of all requests, whether each is rejected with its first token, and their last tokens."""
    if workload.chunks is not None:         # without limits but max_model_len, which rejects no first token
        return (workload.chunks.column(np.int32, lambda part: _targets(part, _most(part, max_model_len, None))),
                np.zeros(1, np.int8), workload.chunks.column(np.int64, lambda part: NO_TOKEN_NS))
    most = _most(workload, max_model_len, longest_answers)
    if last_tokens is None:
        last_tokens = np.full(len(workload.requests), NO_TOKEN_NS, np.int64)
    return _targets(workload, most), (most < 0).astype(np.int8), last_tokens


def _most(workload, int64_t max_model_len, longest_answers):
    room = max_model_len - workload.requests["prompt_tokens"].astype(np.int64)
    return np.minimum(workload.demands["max_tokens"], room if longest_answers is None else longest_answers[0])


def _targets(workload, most):
    return np.maximum(np.minimum(most, workload.outcomes["output_tokens"]), 1).astype(np.int32)
