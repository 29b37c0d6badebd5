"""`split_wise`: prompts on some replicas and decodes on others, as in vidur-alibabacloud's Splitwise.

A prefill replica computes whole prompts in order of arrival, `max_tokens_in_batch` tokens at once; a decode replica has
in each batch a token of every running request, then of requests with newly arrived KV. Both reserve blocks for the
longest text at admission: a prefill replica until the prompt is computed, a decode replica until the answer is.
Source: vidur-alibabacloud (SimAI cef83f9d), vidur/scheduler/replica_scheduler/splitwise_replica_scheduler.py; Patel et
al., Splitwise, arXiv 2311.18677.

Differences: a request of one token completes with its prompt, and does not end the run; a prompt longer than
`max_tokens_in_batch` is refused, and does not stop the queue; if the longest text fills no whole number of blocks, the
last one counts. Admission to a busy decode replica before the KV has arrived belongs to the KV transfer:
`upstream_compat` of domain/kv_transfer.py.
"""
from libc.stdint cimport int8_t, int32_t
cimport cython

from simulator.domain.request cimport REJECTED
from simulator.scheduling.whole_requests cimport WholeRequests

from typing import Annotated

from msgspec import Meta

from simulator.scheduling.base import MemoryNeeds, SchedulerFacts
from simulator.scheduling.whole_requests import WholeRequestsParameters


class SplitWiseParameters(WholeRequestsParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of vidur-alibabacloud's scheduler, under its names."""

    max_tokens_in_batch: Annotated[int, Meta(ge=1, le=2**31 - 1, extra={"unit": "tokens"}, description=(
        "tokens of requests admitted to a batch, at most; a longer prompt is refused"))] = 4096


@cython.final
cdef class SplitWise(WholeRequests):
    """Prompts on prefill replicas, decodes on decode replicas.

    See `SplitWiseParameters`.
    """

    Parameters = SplitWiseParameters

    def __init__(self, parameters, context):
        WholeRequests.__init__(self, parameters, context)
        self._max_new_tokens = parameters.max_tokens_in_batch

    @classmethod
    def memory(cls, parameters, deployment, max_model_len):
        """See Scheduler."""
        return MemoryNeeds(parameters.max_tokens_in_batch + parameters.batch_size_cap, parameters.batch_size_cap)

    @staticmethod
    def facts(parameters):
        """See Scheduler."""
        return SchedulerFacts(
            parameters.batch_size_cap, parameters.max_tokens_in_batch + parameters.batch_size_cap, takes_threads=True,
            takes_stages=False, takes_arrived=True,
            why_no_both="its batches are of prompts on some replicas and of decodes on others, and vidur-alibabacloud "
                        "stops on an assertion where a replica does both")

    def limits(self):
        """See Scheduler."""
        own = self._max_new_tokens, f"are longer than max_tokens_in_batch = {self._max_new_tokens:,}"
        return own, *WholeRequests.limits(self)

    cdef int8_t refusal(self, int32_t row) noexcept nogil:
        if self._requests[row].prompt_tokens > self._max_new_tokens:
            return REJECTED
        return WholeRequests.refusal(self, row)
