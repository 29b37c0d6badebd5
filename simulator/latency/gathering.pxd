"""Number of tokens that ranks in lock step together bring to the experts.

A rank without tokens brings one, its dummy. Under SGLang's attention data parallelism a buffer has the length of all
batches together (SUM_LEN), or each batch is padded to the longest (MAX_LEN): the latter if no rank computes a prompt
and padding at most doubles the tokens. Source: SGLang, python/sglang/srt/layers/dp_attention.py, DpPaddingMode.
"""
from libc.stdint cimport int32_t, int64_t

from simulator.domain.batch cimport BatchShape


cdef struct Gathered:
    int64_t prefill_tokens
    int64_t decode_tokens       # padding included


cdef void gather(Gathered* gathered, const BatchShape* shapes, int32_t num_busy, int32_t num_ranks,
                 bint pads) noexcept nogil

# Whether SGLang pads all batches to the longest, of `longest` tokens; `total` : of all ranks.
cdef inline bint pads_to_longest(int64_t total, int64_t longest, int32_t num_ranks, bint has_prompts) noexcept nogil:
    return not (has_prompts and num_ranks > 1) and 2 * total >= longest * num_ranks
