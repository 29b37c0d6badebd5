"""Detection, from sums, of prompts with nearly all tokens cached in KV."""
from simulator.domain.batch cimport BatchShape

cdef enum:
    FEW_TOKENS = 256            # mean tokens of a chunk
    LONG_CONTEXT = 1024


# Whether the mean chunk of a batch computes few tokens behind a long context.
cdef inline bint is_few_behind_many(const BatchShape* shape) noexcept nogil:
    return (shape.prefill_context_tokens >= <long long>LONG_CONTEXT * shape.num_chunks
            and shape.prefill_tokens <= <long long>FEW_TOKENS * shape.num_chunks)
