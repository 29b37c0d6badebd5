"""Base of schedulers that reserve blocks for all of a request's text at admission."""
from libc.stdint cimport int32_t, int64_t

from simulator.domain.iteration cimport Batch
from simulator.scheduling.vidur cimport VidurScheduler


cdef enum Reservation:          # in the order of RESERVATIONS
    MAX_MODEL_LEN
    MAX_TOKENS
    EXPECTED_TOKENS


cdef class WholeRequests(VidurScheduler):
    cdef Reservation _reservation
    cdef bint _is_buddy                 # room is a power of two of tokens
    cdef int64_t _max_new_tokens        # most tokens that requests admitted to a batch compute in it

    # The text that a request gets blocks for at admission, in tokens.
    cdef int64_t reserved_text(self, int32_t row) noexcept nogil

    # Schedule all members, if all running sequences are members; False: sequences must be visited.
    cdef bint go_on_at_once(self, Batch* batch) except -1 nogil

    # Schedule all that is left of the text of the i-th sequence at hand.
    cdef bint go_on_at(self, Batch* batch, int32_t i) except -1 nogil

    # Admit waiting requests, in order, while there are places and blocks; their prompts are computed whole.
    # `adds_entries`: add them to the batch at once. A text longer than a batch, after a restart, is computed alone.
    cdef int admit_whole(self, Batch* batch, bint adds_entries) except -1 nogil
