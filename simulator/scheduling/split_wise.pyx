"""`split_wise`: batches of prompts on some replicas and of decodes on others, as vidur-alibabacloud has Splitwise.

A prefill replica computes whole prompts, as they came, `max_tokens_in_batch` of them at once; a decode replica has a
token of everyone that runs in each batch, then of those whose KV has come. Either gives a request the blocks of the
longest text when it admits it: a prefill replica until the prompt is computed, a decode replica until the answer is.
Source: vidur-alibabacloud (SimAI cef83f9d), vidur/scheduler/replica_scheduler/splitwise_replica_scheduler.py; Patel et
al., Splitwise, arXiv 2311.18677.

Where it departs from that: a request of one token is complete when its prompt is, and does not end the run; a longer
prompt than `max_tokens_in_batch` is refused, and does not stop the queue; of a longest text that fills no whole number
of blocks the last one counts. That a busy decode replica takes in requests before their KV has come belongs to the
hand-over: `upstream_compat` of domain/kv_transfer.py.
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
        "of those admitted to a batch, at most; a longer prompt is refused"))] = 4096


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
