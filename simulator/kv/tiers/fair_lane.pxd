"""Copies of one direction that share the bandwidth of a link equally."""
from libc.stdint cimport int32_t, int64_t
cimport cython

from simulator.kv.tiers.lane cimport Lane


cdef struct Shared:
    double key                  # of one that waits for its first byte: when that comes; under way: the virtual end
    double work_ns
    int64_t end_ns              # of one that has ended
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
    cdef double _now_ns         # how far all this has come
    cdef double _virtual_ns

    cdef double _next_change(self) noexcept nogil
    cdef double _next_end(self) noexcept nogil
    cdef void _note_next_end(self) noexcept nogil
    cdef int _go_on(self) except -1 nogil
