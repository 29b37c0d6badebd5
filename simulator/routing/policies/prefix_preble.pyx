"""`prefix_preble`: by the longest match if it is most of the prompt, else by the prefill work of late."""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t
cimport cython

from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.core.sliding_sums cimport SlidingSums
from simulator.routing.parts.pick cimport first_highest
from simulator.routing.parts.prefix_router cimport PrefixRouter

from simulator.routing.parts.prefix_router import Capacity

Price = Annotated[float, Meta(ge=0, le=1e9)]


class PrefixPrebleParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The longest match, or else the least cost of late, wins.

    If more than match_share of the prompt was sent to some replica: of the replicas that were sent most of it, the one
    with the fewest requests in the last window_s, drawn of several. Else the least cost in the last window_s, the
    lowest number of equals. Cost of a request: s x (base_us + per_prefill_token_us x new tokens) + per_output_token_us
    x output_tokens, s: share of new tokens in its prompt, as of its dispatch.
    Source: prefix-cache-preble of vllm-project/aibrix at e3e10f9e (pkg/plugins/gateway/algorithms); Srivatsa et al.,
    Preble, arXiv 2407.00023. It counts by nodes of a tree of prompts, and shares the cost of a node between the
    replicas with it; here each request counts where it was sent. Its times are those of Mistral 7B on a V100, of which
    the line above 384 tokens is here; attention and shorter prompts are left out.
    """

    match_share: Annotated[float, Meta(ge=0, le=1, description=(
        "share of the prompt above which the longest match wins"))] = 0.5
    window_s: Annotated[float, Meta(gt=0, le=1e6, description="window of requests and costs")] = 180.0
    base_us: Annotated[Price, Meta(description="cost of a prefill")] = 10_524.0
    per_prefill_token_us: Annotated[Price, Meta(description="cost of a new prompt token")] = 271.0
    per_output_token_us: Annotated[Price, Meta(description="cost of an output token")] = 150_000.0
    output_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1, description="output tokens of any request")] = 45
    capacity_blocks: Capacity = 200_000


@cython.final
cdef class PrefixPreble(PrefixRouter):
    """The replica that was sent this prefix, or the one with the least work."""

    Parameters = PrefixPrebleParameters

    cdef double _share, _base_s, _token_s, _output_s
    cdef SlidingSums _requests, _cost   # by replica; cost in seconds

    def __init__(self, parameters, context):
        self._share, self._base_s = parameters.match_share, parameters.base_us / 1e6
        self._token_s = parameters.per_prefill_token_us / 1e6
        self._output_s = parameters.per_output_token_us / 1e6 * parameters.output_tokens
        self._requests = SlidingSums(self.num_replicas, parameters.window_s)
        self._cost = SlidingSums(self.num_replicas, parameters.window_s)
        self.reads_state = self.has_scores = True

    cdef int32_t route(self, int32_t row, int64_t now_ns) except -2 nogil:
        if self._compare(row, now_ns, self.preference):
            return self.pick_preferred()
        return first_highest(self.preference, self.num_replicas)

    cdef int score(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        self._compare(row, now_ns, scores)
        return 0

    cdef int _compare(self, int32_t row, int64_t now_ns, double* scores) except -1 nogil:
        """Score all replicas; return whether matches decide."""
        cdef int32_t best = 0, i
        cdef bint is_matched
        self._requests.advance(now_ns)
        self._cost.advance(now_ns)
        if self.index.match(row, self.matched) > 0:
            for i in range(self.num_replicas):
                if self.view.accounts[i].is_routable:
                    best = max(best, self.matched[i])
        is_matched = best > 0 and (
            <double>best * self.index.block_size > self._share * self.requests[row].prompt_tokens)
        for i in range(self.num_replicas):
            if not self.view.accounts[i].is_routable or (is_matched and self.matched[i] < best):
                scores[i] = -INFINITY
            else:
                scores[i] = -self._requests.sums[i] if is_matched else -self._cost.sums[i]
        return is_matched

    cdef int sent(self, int32_t row, int32_t replica, int64_t now_ns) except -1 nogil:
        cdef double prompt = max(self.requests[row].prompt_tokens, 1), fresh
        self.index.match(row, self.matched)
        fresh = prompt - <double>self.matched[replica] * self.index.block_size
        self._requests.advance(now_ns)
        self._cost.advance(now_ns)
        self._requests.add(replica, 1.0)
        self._cost.add(replica, fresh / prompt * (self._base_s + self._token_s * fresh) + self._output_s)
        self.index.touch(row, replica)
        return 0
