"""Prompts of whose tokens next to all are in the KV cache already, as far as sums tell."""
from simulator.domain.batch cimport BatchShape

cdef enum:
    FEW_TOKENS = 256            # of a chunk in the mean
    LONG_CONTEXT = 1024


# Whether the chunks of a batch compute few tokens behind many, in the mean.
cdef inline bint is_few_behind_many(const BatchShape* shape) noexcept nogil:
    return (shape.prefill_context_tokens >= <long long>LONG_CONTEXT * shape.num_chunks
            and shape.prefill_tokens <= <long long>FEW_TOKENS * shape.num_chunks)
