"""Copies of one direction that share the bandwidth of a link equally."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.tiers.lane cimport Lane


cdef struct Shared:
    double key                  # while it waits for its first byte: when that arrives; under way: the virtual end
    double work_ns
    int64_t end_ns              # once it has ended
    int32_t copy
    int32_t spare


cdef struct Row:                # sorted by key, equal ones in order of insertion
    Shared* copies              # [size]
    int32_t size
    int32_t room


@cython.final
cdef class FairLane(Lane):
    cdef Row _waiting           # for their first byte
    cdef Row _active
    cdef Row _ended             # in order of their end
    cdef double _now_ns         # the instant up to which the lane is simulated
    cdef double _virtual_ns

    cdef double _next_change(self) noexcept nogil
    cdef double _next_end(self) noexcept nogil
    cdef void _note_next_end(self) noexcept nogil
    cdef int _go_on(self) except -1 nogil
