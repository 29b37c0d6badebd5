"""Cached part of a prompt on each replica, in whole chunks of Llumnix's index."""
from libc.stdint cimport int8_t, int32_t, int64_t

from simulator.routing.llumnix.candidates cimport Candidate


# The length of the run of chunks that a replica holds, from the first of `held` on: a gap ends it for good. As upstream
# has it, the run may begin later and still counts.
cdef int32_t run_of_chunks(const int8_t* held, int32_t num_chunks, bint may_begin_late) noexcept nogil

# Note that `hit_tokens` of the prompt are cached there. As upstream has it, a replica without hits misses none.
cdef inline void note_hits(Candidate* candidate, int64_t prompt_tokens, int64_t hit_tokens,
                           bint cold_misses_none) noexcept nogil:
    candidate.hit_tokens = hit_tokens
    candidate.miss_tokens = 0 if hit_tokens == 0 and cold_misses_none else prompt_tokens - hit_tokens
