"""What schedulers share that give a request the blocks of its longest text when they admit it."""
from libc.stdint cimport int32_t, int64_t

from simulator.domain.iteration cimport Batch
from simulator.scheduling.vidur cimport VidurScheduler


cdef class WholeRequests(VidurScheduler):
    cdef bint _reserves_declared        # reservation: up to its max_tokens, not up to max_model_len

    # The longest text of a request, in tokens.
    cdef int64_t longest_text(self, int32_t row) noexcept nogil

    # All members have a token, if all that run are members; False: somebody must be visited.
    cdef bint go_on_at_once(self, Batch* batch) except -1 nogil

    # Visit the i-th at hand: all that is left of its text.
    cdef bint go_on_at(self, Batch* batch, int32_t i) except -1 nogil

    # Admit who waits, in order, while there are places and blocks; their prompts are computed whole. `adds_entries`:
    # they go into the batch at once.
    cdef int admit_whole(self, Batch* batch, bint adds_entries) except -1 nogil
