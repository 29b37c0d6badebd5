"""Ends of prompt chunks for layers with states that are kept where blocks end.

Source: vLLM 0.32.0, vllm/v1/core/sched/scheduler.py, _mamba_block_aligned_split.
"""
from libc.stdint cimport int64_t


cdef struct AlignedText:        # in tokens
    int64_t prompt
    int64_t text                # prompt and outputs so far
    int64_t junction            # see KVCache
    int64_t alignment           # chunks end at multiples of it
    int64_t checkpoint          # states are also written inside chunks, in multiples of it behind their begin; 0: not
    int64_t grid                # such a chunk begins at a multiple of it
    int64_t tail                # a further end behind the last multiple: lookups find its state as well; 0: none
    int64_t dropped             # of a hit that are computed again; a state that ends no more than that before is of use
    int64_t largest             # chunk that the scheduler's limits allow


# The part of `tokens` behind the first `start` that is computed now; 0: the prompt must wait for more tokens.
cdef int64_t aligned_chunk(const AlignedText* it, int64_t start, int64_t tokens) noexcept nogil
