"""Base of all deciders: whether the prompt of a request is computed on a prefill replica."""
from typing import Any

import msgspec


class DecisionContext(msgspec.Struct, frozen=True):
    """Inputs of a decider.

    prefill, decode : simulator.signals.view.View of the replicas for either leg.
    workload : simulator.workload.base.Workload; only fields declared by clients may be read.
    block_size : tokens per KV block of the decode replicas, in which `decode.cached_blocks` counts.
    """

    prefill: Any
    decode: Any
    workload: Any
    block_size: int = 16


cdef class Decider:
    """Base of all deciders, which splits every request.

    One is built as `Decider(parameters, context)`.
    """

    def __cinit__(self, parameters, context, *_, **__):
        cdef const Request[::1] requests = context.workload.requests
        cdef const Demand[::1] demands = context.workload.demands
        self.prefill, self.decode, self._owners = context.prefill, context.decode, context.workload
        if len(requests):
            self.requests, self.demands = &requests[0], &demands[0]

    cdef bint splits(self, int32_t row, int32_t prefill, int32_t decode, int64_t now_ns) except -1 nogil:
        return True

    def decide(self, row, prefill, decode, now_ns):
        """Return whether a request is split, as the engine calls it (for tests)."""
        return self.splits(row, prefill, decode, now_ns)
