"""`token_bucket`: prompt tokens at a rate, with bursts."""
cimport cython
from libc.stdint cimport int32_t, int64_t
from typing import Annotated

from simulator.admission.base cimport Admission

import msgspec
from msgspec import Meta

Tokens = Annotated[float, Meta(gt=0, le=1e15)]


class TokenBucketParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request is let in if the bucket holds its prompt tokens, and takes them out.

    The bucket is full at first and is refilled all the time: tokens = min(capacity, tokens + elapsed x rate). Source:
    BLIS (inference-sim), sim/admission.go, TokenBucket; J. Turner, IEEE Communications Magazine 24(10), 1986.
    """

    capacity_tokens: Annotated[Tokens, Meta(description="capacity of the bucket in prompt tokens")] = 10000.0
    refill_tokens_per_s: Annotated[Tokens, Meta(description="prompt tokens added to the bucket per second")] = 1000.0


@cython.final
cdef class TokenBucket(Admission):
    """Prompt tokens at a rate, with bursts; a prompt that does not fit is rejected."""

    Parameters = TokenBucketParameters

    cdef double _capacity, _per_s
    cdef readonly double tokens     # in the bucket after the last decision
    cdef int64_t _last_ns           # when that was

    def __init__(self, parameters, context):
        self._capacity, self._per_s = parameters.capacity_tokens, parameters.refill_tokens_per_s
        self.tokens = self._capacity

    cdef int admit(self, int32_t row, int64_t now_ns) except -1 nogil:
        cdef int32_t cost = self.requests[row].prompt_tokens
        if now_ns > self._last_ns:
            self.tokens = min(self._capacity, self.tokens + (now_ns - self._last_ns) * self._per_s / 1e9)
            self._last_ns = now_ns
        if self.tokens < cost:
            return 0
        self.tokens -= cost
        return 1
