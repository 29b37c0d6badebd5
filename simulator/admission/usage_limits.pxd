"""Saturation at which each priority of a gateway queue is held back."""
cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t


@cython.final
cdef class UsageLimits:
    cdef int8_t _policy                 # as in usage_limits.pyx
    cdef double _least, _most           # ceilings of the lowest and of the most urgent band
    cdef bint _is_by_value
    cdef int64_t _calls                 # of `begin` with a saturation from 0.5 to below 1

    # A request is to be passed on at this saturation; called before `ceiling`.
    cdef void begin(self, double saturation) noexcept nogil

    # The ceiling of the band at `position` of `num_open`, 0: the most urgent. `height`: (its priority - least) /
    # (most - least), of the open bands.
    cdef double ceiling(self, int32_t position, int32_t num_open, double height, double saturation) noexcept nogil
