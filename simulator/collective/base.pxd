"""Duration of collective operations among the accelerators of a replica."""
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
    cdef readonly bint keeps_account    # it counts its predictions in `tally`; set by the model
    cdef int32_t weight         # number of times that a prediction counts now; set by the latency model, see there
    cdef int64_t tally[NUM_ORIGINS]     # predictions counted, without those that `_repeated` still hold
    cdef list _repeated         # Questions

    # Nanoseconds of one collective over a group of the replica, launch included; 0 for a group of one. A pure function.
    cdef double time_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes) noexcept nogil

    # Add the predictions that `_repeated` hold to the tally.
    cdef int settle(self) except -1

    # Remember why no time can be given.
    cdef int fail(self, object error) except -1


# Predictions that are made together and repeated: the caller remembers their sum, and repeats are only counted.
cdef class Questions:
    cdef CollectiveModel _model
    cdef int32_t _weight                # weight of the model, saved between begin() and end()
    cdef int64_t _times                 # repeats that the model's tally does not hold yet
    cdef int64_t _tally[NUM_ORIGINS]    # counts of one repeat

    # Other predictions than before are made between these calls; they count when they are repeated.
    cdef void begin(self) noexcept nogil
    cdef void end(self) noexcept nogil

    @cython.final
    cdef inline void ask_again(self) noexcept nogil:
        self._times += self._model.weight

    cdef void settle(self) noexcept nogil
