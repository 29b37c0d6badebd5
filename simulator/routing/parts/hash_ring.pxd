"""Consistent hashing: replicas own arcs of a ring of 64-bit hashes."""
cimport cython
from libc.stdint cimport int32_t, uint64_t

from simulator.signals.view cimport View


cdef struct RingPoint:
    uint64_t hash
    int32_t replica             # owns the hashes from the point before to this one
    int32_t spare


@cython.final
cdef class HashRing:
    cdef RingPoint* _points     # in order of hash
    cdef readonly int32_t size  # points

    # The first open replica at or after a hash with fewer than `limit` requests in flight; -1: there is none.
    cdef int32_t owner(self, uint64_t hash, View view, int32_t limit) noexcept nogil
