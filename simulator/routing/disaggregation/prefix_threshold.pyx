"""`prefix_threshold`: prompts that a decode replica has mostly cached stay there.

Source: llm-d/llm-d-router@ebab6879, pkg/epp/framework/plugins/scheduling/profilehandler/disagg/
prefix_based_pd_decider.go. BLIS (inference-sim) splits where more than its threshold is not cached: non_cached_tokens
is then one more.
"""
from libc.stdint cimport int32_t, int64_t
from typing import Annotated

cimport cython
import msgspec
from msgspec import Meta

from simulator.routing.disaggregation.base cimport Decider

Tokens = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class PrefixThresholdParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of [cluster.disaggregation]."""

    non_cached_tokens: Annotated[Tokens, Meta(description=(
        "split if the decode replica lacks at least this many tokens of the prompt; 0: never"))] = 16
    prompt_tokens: Annotated[Tokens, Meta(description="split if, in addition, the prompt has this many tokens")] = 0


@cython.final
cdef class PrefixThreshold(Decider):
    """Splits by the tokens of a prompt that its decode replica has not cached."""

    Parameters = PrefixThresholdParameters
    needs_decode = True

    cdef int64_t _non_cached_tokens, _prompt_tokens
    cdef int32_t _block_size

    def __init__(self, parameters, context):
        self._non_cached_tokens, self._prompt_tokens = parameters.non_cached_tokens, parameters.prompt_tokens
        self._block_size = context.block_size
        self.decode.wants_caches = True

    cdef bint splits(self, int32_t row, int32_t prefill, int32_t decode, int64_t now_ns) except -1 nogil:
        cdef int64_t tokens = self.requests[row].prompt_tokens
        if self._non_cached_tokens == 0 or tokens < max(self._non_cached_tokens, self._prompt_tokens):
            return False
        tokens -= <int64_t>self.decode.cached_blocks(decode, row, now_ns) * self._block_size
        return tokens >= self._non_cached_tokens
