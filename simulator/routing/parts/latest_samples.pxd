"""The latest samples of each replica, and their mean or a percentile."""
cimport cython
from libc.stdint cimport int32_t


@cython.final
cdef class LatestSamples:
    cdef readonly int32_t num_replicas
    cdef int32_t _length                # samples per replica, the latest
    cdef double _percentile             # from 0 to 1; -1: the mean
    cdef double* _samples               # [replica x length], oldest first
    cdef double* _sorted                # [length] scratch
    cdef int32_t* counts                # [replica] samples
    cdef double* values                 # [replica] mean or percentile; of no meaning without samples

    # Add the latest sample of a replica; at `length` samples the oldest leaves.
    cdef void add(self, int32_t replica, double sample) noexcept nogil

    # Forget all samples.
    cdef void clear(self) noexcept nogil

    cdef double _summary(self, const double* samples, int32_t count) noexcept nogil
