"""Number of tokens that ranks in lock step together bring to the experts."""
from simulator.domain.batch cimport EAGER, rows_of


cdef void gather(Gathered* gathered, const BatchShape* shapes, int32_t num_busy, int32_t num_ranks,
                 bint pads) noexcept nogil:
    cdef int64_t longest = 1, total
    cdef int32_t i
    gathered.prefill_tokens, gathered.decode_tokens = 0, num_ranks - num_busy
    for i in range(num_busy):
        gathered.prefill_tokens += shapes[i].prefill_tokens
        gathered.decode_tokens += shapes[i].decode_tokens + shapes[i].pad_tokens
        longest = max(longest, rows_of(&shapes[i]))
    if num_busy > 0 and shapes[0].graph > EAGER:        # dummies run the same graph
        gathered.decode_tokens += (num_ranks - num_busy) * (longest - 1)
    total = gathered.prefill_tokens + gathered.decode_tokens
    if pads and pads_to_longest(total, longest, num_ranks, gathered.prefill_tokens > 0):
        gathered.decode_tokens += longest * num_ranks - total


def padding_mode(tokens, has_prompts=False):
    """Return SGLang's padding mode and the number of gathered tokens.

    tokens : of each rank, dummies included.
    """
    if pads_to_longest(sum(tokens), max(tokens), len(tokens), has_prompts):
        return "MAX_LEN", max(tokens) * len(tokens)
    return "SUM_LEN", sum(tokens)
