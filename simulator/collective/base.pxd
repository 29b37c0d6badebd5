"""How long the accelerators of a replica take to exchange data."""
cimport cython
from libc.stdint cimport int32_t, int64_t


cdef enum CollectiveKind:       # num_bytes of each, as nccl-tests count:
    ALL_REDUCE                  # the buffer of one rank
    ALL_GATHER                  # the gathered buffer
    REDUCE_SCATTER              # the buffer of one rank before it
    ALL_TO_ALL                  # all that one rank sends, its own part included
    SEND_RECV                   # the message


cdef enum CollectiveGroup:      # ranks are laid out with tensor parallelism fastest, then expert, data, pipeline
    TENSOR
    EXPERT
    DATA
    PIPELINE


cdef enum:
    NUM_ORIGINS = 3             # of a predicted time, see memo.pxd


cdef class CollectiveModel:
    cdef readonly bint failed   # a time could not be given; the caller stops and calls raise_if_failed()
    cdef object _error          # why, the first one
    cdef readonly bint keeps_account    # it counts what it is asked in `tally`; set by the model
    cdef int32_t weight         # what is asked now counts so many times; the latency model says so, see there
    cdef int64_t tally[NUM_ORIGINS]     # but for what `_repeated` hold
    cdef list _repeated         # Questions

    # Nanoseconds of one collective over a group of the replica, launch included; 0 for a group of one. A pure function.
    cdef double time_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes) noexcept nogil

    # Let the tally hold all that was asked.
    cdef int settle(self) except -1

    # Remember why no time can be given.
    cdef int fail(self, object error) except -1


# Questions that are asked together, and again and again: the caller remembers the answer, and they only count again.
cdef class Questions:
    cdef CollectiveModel _model
    cdef int32_t _weight                # of the model, while they are asked
    cdef int64_t _times                 # they count so often, beyond the model's tally
    cdef int64_t _tally[NUM_ORIGINS]    # what it counts of them at once

    # Between these two the model is asked other questions than before; they count once they are asked again.
    cdef void begin(self) noexcept nogil
    cdef void end(self) noexcept nogil

    @cython.final
    cdef inline void ask_again(self) noexcept nogil:
        self._times += self._model.weight

    cdef void settle(self) noexcept nogil
