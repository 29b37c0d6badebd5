"""Waiting requests by size, and the one with the least slack, for the order slack of the gateway queue.

Requests of one size go in order of arrival. Source: vllm-project/aibrix, pkg/plugins/gateway/queue/slo_queue.go and
pkg/cache/model_gpu_profile.go at 6baddd3a and 01b4928a.
"""
cimport cython
from libc.stdlib cimport free, malloc

from simulator.core.errors cimport broken
from simulator.core.index_list cimport NONE, new_list

import numpy as np


def sizes_and_slack(workload, rule):
    """Return the size of each request, a number, and its slack at arrival, in ns.

    workload : simulator.workload.base.Workload. rule : domain.slack.SlackRule.
    """
    demands = workload.demands
    prompts = np.maximum(workload.requests["prompt_tokens"], 1).astype(float)
    outputs = np.where(demands["expected_tokens"] >= 0, demands["expected_tokens"], demands["max_tokens"])
    outputs = np.maximum(outputs, 1).astype(float)
    logs = np.log2(np.stack((prompts, outputs), axis=1))
    _, sizes = np.unique(np.floor(logs + 0.5), axis=0, return_inverse=True)
    rows = np.log2([(row.prompt_tokens, row.output_tokens) for row in rule.profile])
    latency_ms, least = np.zeros(len(logs)), np.full(len(logs), np.inf)
    for row, size in zip(rule.profile, rows, strict=True):
        distance = ((logs - size) ** 2).sum(axis=1)
        latency_ms[distance <= least] = row.latency_ms
        least = np.minimum(least, distance)
    slack_ms = rule.slack_ms(latency_ms, prompts, outputs)
    return sizes.reshape(-1).astype(np.int32), np.rint(slack_ms * 1e6).astype(np.int64)


@cython.final
cdef class SizeFlows:
    """The flows of all sizes of a workload in its lines, none waiting at first."""

    def __cinit__(self, workload, int32_t num_lines, rule):
        cdef const int32_t[::1] sizes
        cdef const int64_t[::1] slack_ns
        cdef int32_t i
        self._owners = size_of, slack_of = sizes_and_slack(workload, rule)
        sizes, slack_ns = size_of, slack_of
        if len(size_of):
            self._size_of, self._slack_ns = &sizes[0], &slack_ns[0]
        self._num_sizes = size_of.max(initial=0) + 1
        self._num_flows = num_lines * self._num_sizes
        self._links = IndexLinks(len(size_of))
        self._dues = <Due*>malloc(max(len(size_of), 1) * sizeof(Due))
        self._flows = <IndexList*>malloc(self._num_flows * sizeof(IndexList))
        if self._dues == NULL or self._flows == NULL:
            raise MemoryError()
        for i in range(self._num_flows):
            self._flows[i] = new_list()

    def __dealloc__(self):
        free(self._dues)
        free(self._flows)

    cdef void push(self, int32_t row, int32_t line, int64_t now_ns, int64_t place) noexcept nogil:
        self._dues[row] = Due(now_ns + self._slack_ns[row], place)
        self._links.push_back(&self._flows[line * self._num_sizes + self._size_of[row]], row)

    cdef void remove(self, int32_t row, int32_t line) noexcept nogil:
        self._links.remove(&self._flows[line * self._num_sizes + self._size_of[row]], row)

    cdef int32_t first(self, int32_t line) noexcept nogil:
        cdef int32_t i, row, found = NONE
        for i in range(line * self._num_sizes, (line + 1) * self._num_sizes):
            row = self._flows[i].head
            if row != NONE and (found == NONE or self._dues[row].by_ns < self._dues[found].by_ns or (
                    self._dues[row].by_ns == self._dues[found].by_ns
                    and self._dues[row].place < self._dues[found].place)):
                found = row
        return found

    cdef int check(self, int64_t size) except -1 nogil:
        cdef int32_t i
        cdef int64_t found = 0
        for i in range(self._num_flows):
            self._links.check_list(&self._flows[i])
            found += self._flows[i].size
        return broken("SizeFlows: the flows hold not all rows that wait") if found != size else 0
