"""What schedulers share that give a request the blocks of all its text when they admit it."""
from libc.stdint cimport int32_t, int64_t

from simulator.domain.iteration cimport Batch
from simulator.scheduling.vidur cimport VidurScheduler


cdef enum Reservation:          # in the order of RESERVATIONS
    MAX_MODEL_LEN
    MAX_TOKENS
    EXPECTED_TOKENS


cdef class WholeRequests(VidurScheduler):
    cdef Reservation _reservation
    cdef int64_t _max_new_tokens        # that those admitted to a batch compute in it, at most

    # The text of a request that it gets blocks for when it is admitted, in tokens.
    cdef int64_t reserved_text(self, int32_t row) noexcept nogil

    # All members have a token, if all that run are members; False: somebody must be visited.
    cdef bint go_on_at_once(self, Batch* batch) except -1 nogil

    # Visit the i-th at hand: all that is left of its text.
    cdef bint go_on_at(self, Batch* batch, int32_t i) except -1 nogil

    # Admit who waits, in order, while there are places and blocks; their prompts are computed whole. `adds_entries`:
    # they go into the batch at once. Who is longer than a batch may be, after a restart, is computed alone.
    cdef int admit_whole(self, Batch* batch, bint adds_entries) except -1 nogil
