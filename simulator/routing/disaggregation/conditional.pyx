"""Base of Dynamo's conditional disaggregation.

The verdict that a request stays at its decode replica holds only while that replica has room for it. A verdict reserves
nothing. Source: ai-dynamo/dynamo, lib/kv-router/src/conditional_disagg.rs (088ca50b) and
lib/llm/src/kv_router/prefill_router/conditional_bypass.rs (07a6c9ce).
"""
from typing import Annotated

import msgspec
from msgspec import Meta

from simulator.domain.replica_state cimport ReplicaState

Share = Annotated[float, Meta(ge=0, le=1e6)]
BusyShare = Annotated[Share, Meta(description=(
    "a prefill replica is busy with more prompt tokens to compute than this share of max_num_batched_tokens"))]


class DecodeGate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a decode replica takes no whole request, keys of [cluster.disaggregation]."""

    decode_busy_threshold: Annotated[Annotated[float, Meta(ge=0, le=1)] | None, Meta(description=(
        "a request is split after all if with its prompt more than this share of the decode replica's KV blocks would "
        "be in use; absent: no limit"))] = None


class ShortPrompts(DecodeGate, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which prompts are short, and mostly cached."""

    eff_isl_threshold: Annotated[int, Meta(ge=0, le=2**31 - 1, description=(
        "a request may stay at its decode replica if the replica lacks fewer tokens of the prompt than this"),
        extra={"unit": "tokens"})] = 2048
    eff_isl_ratio_threshold: Annotated[Share, Meta(description=(
        "a request may stay if its decode replica also lacks a smaller share of the prompt than this"))] = 0.7


cdef class Conditional(Decider):
    """Base of Dynamo's policies, which override `stays`."""

    def __cinit__(self, parameters, context, *_, **__):
        gate = parameters.decode_busy_threshold
        self._decode_busy = -1.0 if gate is None else gate
        self._block_size = context.block_size
        self.decode.wants_blocks = self.decode.wants_blocks or gate is not None

    cdef bint stays(self, int32_t row, int32_t prefill, int32_t decode, int64_t now_ns) except -1 nogil:
        return False

    cdef bint splits(self, int32_t row, int32_t prefill, int32_t decode, int64_t now_ns) except -1 nogil:
        cdef const ReplicaState* state = &self.decode.states[decode]
        cdef int64_t blocks
        if not self.stays(row, prefill, decode, now_ns):
            return True
        if self._decode_busy < 0:
            return False
        self.decode.look(now_ns)
        blocks = state.used_blocks + (self.requests[row].prompt_tokens + state.block_size - 1) // state.block_size
        return <double>blocks > self._decode_busy * <double>state.num_blocks

    cdef bint is_short(self, int32_t row, int32_t decode, int64_t tokens, double share, int64_t now_ns) except -1 nogil:
        cdef int64_t prompt = self.requests[row].prompt_tokens
        cdef int64_t missing = prompt - <int64_t>self.decode.cached_blocks(decode, row, now_ns) * self._block_size
        return missing < tokens and <double>missing / <double>max(prompt, <int64_t>1) < share

    cdef bint is_busy(self, int32_t prefill, double share, int64_t now_ns) except -1 nogil:
        cdef const ReplicaState* state = &self.prefill.states[prefill]
        if prefill < 0:
            return False                                # nothing is known of it
        self.prefill.look(now_ns)
        return (<double>(state.waiting_prefill_tokens + state.running_prefill_tokens)
                > share * <double>state.max_batched_tokens)
