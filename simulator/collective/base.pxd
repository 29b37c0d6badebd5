"""Duration of collective operations among the accelerators of a replica."""
from libc.stdint cimport int32_t


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


cdef class CollectiveModel:
    cdef readonly bint failed   # a time could not be given; the caller stops and calls raise_if_failed()
    cdef object _error          # why, the first one
    cdef readonly bint keeps_account    # the model counts its predictions; set by the model
    cdef bint is_counting       # predictions now are to be counted; set by the latency model

    # Nanoseconds of one collective over a group of the replica, launch included; 0 for a group of one. A pure function.
    cdef double time_ns(self, CollectiveGroup group, CollectiveKind kind, double num_bytes) noexcept nogil

    # Must time_ns be called even if the result is known, so that it is counted?
    cdef inline bint counts_each(self) noexcept nogil:
        return self.keeps_account and self.is_counting

    # Remember why no time can be given.
    cdef int fail(self, object error) except -1
